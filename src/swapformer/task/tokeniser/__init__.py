"""How a text is written as numbers."""

from swapformer.task.tokeniser.base import CLASSIFY, END, MASK, PAD, SEPARATE, Learned, Tokeniser
from swapformer.task.tokeniser.plain import Bytes, Characters
from swapformer.task.tokeniser.subword import BPE, WordPiece

__all__ = [
    "BPE",
    "CLASSIFY",
    "END",
    "MASK",
    "PAD",
    "SEPARATE",
    "Bytes",
    "Characters",
    "Learned",
    "Tokeniser",
    "WordPiece",
]
