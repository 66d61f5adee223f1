"""Where the texts of a corpus come from."""

from swapformer.task.source.base import Document, Row, Source
from swapformer.task.source.files import Files
from swapformer.task.source.huggingface import HuggingFace
from swapformer.task.source.library import Library

__all__ = ["Document", "Files", "HuggingFace", "Library", "Row", "Source"]
