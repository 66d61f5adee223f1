"""What stands where a norm would and holds no size."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.layers import shift
from swapformer.model.norm.base import Norm


class Shift(Norm):
    """x + b, with one scalar b that starts at 0.

    With model/placement=pre it is the scalar bias that Fixup (Zhang et al. 2019, arXiv:1901.09321) has before the first
    matrices of each branch and before the head, where the authors' Transformer puts it in place of LayerNorm.
    """

    rescales = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.bias = shift(1)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x + self.bias
