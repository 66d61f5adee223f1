"""Where the texts of a corpus come from."""

from swapformer.task.source.base import Source
from swapformer.task.source.document import Document, Row
from swapformer.task.source.files import Files, text_of
from swapformer.task.source.functions import Functions
from swapformer.task.source.huggingface import HuggingFace
from swapformer.task.source.library import Library
from swapformer.task.source.snippets import Snippets

__all__ = ["Document", "Files", "Functions", "HuggingFace", "Library", "Row", "Snippets", "Source", "text_of"]
