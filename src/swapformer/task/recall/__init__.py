"""Recalling what a key was paired with (Ba et al. 2016; multi-query: Arora et al. 2023, arXiv:2312.04927)."""

from swapformer.task.recall.associative import AssociativeRecall
from swapformer.task.recall.needle import Needle

__all__ = ["AssociativeRecall", "Needle"]
