"""Copying: the plainest task that needs positions. See Kazemnejad et al. 2023 (arXiv:2305.19466) for both variants."""

from __future__ import annotations

from torch import Tensor

from swapformer.task.symbols import SymbolList


class Copy(SymbolList):
    """n symbols, a separator, then the same n symbols and an end token: `3 1 4 | 3 1 4 <end>`."""

    one_stream_each = True  # published numbers come from these batches

    def answer_at(self, length: int) -> int:
        return length

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1)
