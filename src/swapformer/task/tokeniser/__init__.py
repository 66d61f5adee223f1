"""Tokenisers: how a text is written as numbers."""

from swapformer.task.tokeniser.base import CLASSIFY, END, MASK, PAD, SEPARATE, LearnedTokens, Tokeniser
from swapformer.task.tokeniser.foreign import Numbers, TokenizerJson
from swapformer.task.tokeniser.plain import Bytes, Characters
from swapformer.task.tokeniser.subword import BPE, WordPiece
from swapformer.task.tokeniser.trained import Trained

__all__ = ["CLASSIFY", "END", "MASK", "PAD", "SEPARATE", "LearnedTokens", "Tokeniser"]
__all__ += ["BPE", "Bytes", "Characters", "Numbers", "TokenizerJson", "Trained", "WordPiece"]
