"""Tokenisers: how a text is written as numbers."""

from swapformer.task.tokeniser.base import CLASSIFY, END, MASK, PAD, SEPARATE, VOCABULARY_FILE, LearnedTokens, Tokeniser
from swapformer.task.tokeniser.plain import Bytes, Characters
from swapformer.task.tokeniser.subword import BPE, WordPiece
from swapformer.task.tokeniser.trained import Trained

__all__ = [
    "BPE",
    "CLASSIFY",
    "END",
    "MASK",
    "PAD",
    "SEPARATE",
    "VOCABULARY_FILE",
    "Bytes",
    "Characters",
    "LearnedTokens",
    "Tokeniser",
    "Trained",
    "WordPiece",
]
