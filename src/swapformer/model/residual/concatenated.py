"""A stream of everything that was ever written, side by side."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import gain
from swapformer.model.residual.base import Residual, Update

History = tuple[Tensor, ...]


class DenseNet(Residual):
    """Branch k reads a learned map of the embeddings and all earlier updates, [X_0; …; X_k] (W_k + [I … I])ᵀ.

    X_0 are the embeddings and X_k is the update of branch k − 1 of the model, none of them ever summed: the dense
    connections of Huang et al. 2017 (arXiv:1608.06993), where the concatenation meets the first matrix of a branch.
    Here it meets W_k [D, (k+1)·D] before the branch's norm and matrices; the model's output is read by a map of its own
    from all of them. All W_k start at 0, so the model starts as the plain sum, and have no weight decay. A norm after
    the sum falls on the newest update. State: X_0 … X_k.
    """

    keeps: ClassVar[str] = "the embeddings and all updates"
    counts_updates: ClassVar[bool] = True

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        width, before = dims.d_model, dims.layer * dims.branches + dims.branch
        ends = dims.layer == dims.num_layers - 1 and dims.branch == dims.branches - 1
        self.reading = gain(width, (before + 1) * width, start=0.0)
        self.closing = gain(width, (before + 2) * width, start=0.0) if ends else None

    def open(self, x: Tensor) -> History:
        return (x,)

    def read(self, state: History) -> Tensor:
        return _mapped(state, self.reading)

    def write(self, state: History, update: Tensor) -> History:
        return *state, update

    def normalise(self, state: History, norm: Update) -> History:
        return *state[:-1], norm(state[-1])

    def close(self, state: History, norm: Update) -> Tensor:
        assert self.closing is not None, "the last branch of the model closes its stream"
        return norm(_mapped(state, self.closing))


def _mapped(history: History, weight: Tensor) -> Tensor:
    """Σ_j X_j (W_j + I)ᵀ, with W = [W_0 … W_k]."""
    first, *others = history
    return sum(others, first) + functional.linear(torch.cat(history, dim=-1), weight)
