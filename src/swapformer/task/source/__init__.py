"""Sources of text: where the documents of a corpus come from."""

from swapformer.task.source.base import Document, Source, TextRow
from swapformer.task.source.files import Files, text_of
from swapformer.task.source.huggingface import HuggingFace
from swapformer.task.source.installed import Installed
from swapformer.task.source.library import Functions, Library, Snippets

__all__ = [
    "Document",
    "Files",
    "Functions",
    "HuggingFace",
    "Installed",
    "Library",
    "Snippets",
    "Source",
    "TextRow",
    "text_of",
]
