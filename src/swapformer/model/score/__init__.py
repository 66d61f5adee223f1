"""Scores: how well a query and a key match, before masking."""

from swapformer.model.score.base import Score
from swapformer.model.score.functions import Additive, Bilinear, Cosine, Dot, Gaussian, LearnedDot, Softcap

__all__ = ["Additive", "Bilinear", "Cosine", "Dot", "Gaussian", "LearnedDot", "Score", "Softcap"]
