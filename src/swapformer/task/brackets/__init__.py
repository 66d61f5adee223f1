"""Nested brackets: which must be closed (Dyck languages with k kinds and a depth limit; Hewitt et al. 2020)."""

from swapformer.task.brackets.closing import Brackets
from swapformer.task.brackets.dyck import Dyck

__all__ = ["Brackets", "Dyck"]
