"""Scores: how well a query and a key match, before masking."""

from swapformer.model.score.base import Score
from swapformer.model.score.learned import Additive, Bilinear, Cosine, LearnedDot
from swapformer.model.score.product import Dot, Gaussian, Softcap

__all__ = ["Additive", "Bilinear", "Cosine", "Dot", "Gaussian", "LearnedDot", "Score", "Softcap"]
