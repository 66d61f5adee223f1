"""Residual streams of several tensors: ResiDual, DenseFormer, DenseNet and hyper-connections."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import gain
from swapformer.model.residual.base import Residual, Update
from swapformer.ranges import Count, Positive

History = tuple[Tensor, ...]


class ResiDual(Residual):
    """Two streams: x ← norm(x + F(x)) and d ← d + F(x), closed as x + norm(d) (Xie et al. 2023, arXiv:2304.14802).

    Both start from the embeddings, and branches read x. The norms are those of the placement: `dual` has a norm after
    the sum, which applies only to x, and a final one, which applies only to d. Without the first both streams are one.
    """

    keeps: ClassVar[str] = "the two streams of ResiDual"
    reads_stream: ClassVar[bool] = False
    needs_norms: ClassVar[tuple[str, ...]] = ("after", "final")

    def open(self, x: Tensor) -> History:
        return x, x

    def read(self, state: History) -> Tensor:
        return state[0]

    def write(self, state: History, update: Tensor) -> History:
        return state[0] + update, state[1] + update

    def normalise(self, state: History, norm: Update) -> History:
        return norm(state[0]), state[1]

    def close(self, state: History, norm: Update) -> Tensor:
        return state[0] + norm(state[1])


class Dense(Residual):
    """Each layer starts from a learned average of the embeddings and all layers' outputs: Y_i = Σ_{j≤i} α_ij X_j.

    X_0 are the embeddings, X_i the output of layer i on Y_{i−1}, whose branches add as usual; the model's output is
    Y_N. α starts as the identity, which is no average (DenseFormer: Pagliardini et al. 2024, arXiv:2402.02622, without
    dilation). State: X_0 … X_i.
    """

    keeps: ClassVar[str] = "the outputs of all earlier layers"
    reads_stream: ClassVar[bool] = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.starts_layer = dims.branch == 0
        ends = dims.layer == dims.num_layers - 1 and dims.branch == dims.branches - 1
        self.entering = gain(dims.layer + 1, start=0.0) if self.starts_layer and dims.layer else None
        self.closing = gain(dims.num_layers + 1, start=0.0) if ends else None

    def open(self, x: Tensor) -> History:
        return (x,)

    def read(self, state: History) -> Tensor:
        return _average(state, self.entering)

    def write(self, state: History, update: Tensor) -> History:
        earlier = state if self.starts_layer else state[:-1]
        return *earlier, self.read(state) + update

    def normalise(self, state: History, norm: Update) -> History:
        return *state[:-1], norm(state[-1])

    def close(self, state: History, norm: Update) -> Tensor:
        return norm(_average(state, self.closing))


def _average(history: History, weights: Tensor | None) -> Tensor:
    """The last of a history plus Σ weights_j X_j."""
    last = history[-1]
    if weights is None:
        return last
    return last + sum(weight * x for weight, x in zip(weights, history, strict=True))


class DenseNet(Residual):
    """Branch k reads a learned map of the embeddings and all earlier updates, [X_0; …; X_k] (W_k + [I … I])ᵀ.

    X_0 are the embeddings and X_k is the update of branch k − 1 of the model, none of them ever summed: the dense
    connections of Huang et al. 2017 (arXiv:1608.06993), where the first matrix of a branch maps the concatenation.
    Here W_k [D, (k+1)·D] maps it before the branch's norm and matrices; the model's output is read by a map of its own
    from all of them. All W_k start at 0, so the model starts as the plain sum, and have no weight decay. A norm after
    the sum applies to the newest update. State: X_0 … X_k.
    """

    keeps: ClassVar[str] = "the embeddings and all updates"
    reads_stream: ClassVar[bool] = False
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


class HyperConnections(Residual):
    """n streams H [n, D]: a branch reads A_mᵀH, and H ← BᵀF(A_mᵀH) + A_rᵀH; closed as the sum of the streams.

    B [1, n] starts at 1, A_r [n, n] as the identity, and A_m [n, 1] picks stream k mod n for branch k of the model, so
    the model starts as the plain sum. With `dynamic` the three follow the stream: B + s_b·tanh(N·W_b)ᵀ,
    A_m + s_a·tanh(N·W_m), A_r + s_a·tanh(N·W_r), where N is H normalised over D without gain, and W_b, W_m [D, 1],
    W_r [D, n] start at 0 (Zhu et al. 2024, arXiv:2409.19606). All streams start from the embeddings.

    State: H, [B, T, n, D].

    Args:
        streams: n.
        dynamic: s_a and s_b at initialisation, 0.01 in the paper; None for static connections.

    Raises:
        ValueError: if n is below 1.
    """

    keeps: ClassVar[str] = "the streams of hyper-connections"
    reads_stream: ClassVar[bool] = False

    def __init__(self, dims: Dims, *, streams: Count, dynamic: Positive | None) -> None:
        super().__init__(dims)
        self.streams, self.read_stream = streams, (dims.layer * dims.branches + dims.branch) % streams
        self.spread = gain(streams, start=1.0)
        self.pick, self.mix = gain(streams, start=0.0), gain(streams, streams, start=0.0)
        # W_m, W_r and W_b side by side: [D, 1 + n + 1].
        self.follow = None if dynamic is None else gain(dims.d_model, streams + 2, start=0.0)
        self.scales = None if dynamic is None else gain(2, start=dynamic)

    def open(self, x: Tensor) -> Tensor:
        return x.unsqueeze(2).expand(-1, -1, self.streams, -1)

    def read(self, state: Tensor) -> Tensor:
        pick, _, _ = self._connections(state)
        return torch.einsum("...n, ...nd -> ...d", pick, state)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        _, mix, spread = self._connections(state)
        return torch.einsum("...nm, ...nd -> ...md", mix, state) + spread.unsqueeze(-1) * update.unsqueeze(2)

    def normalise(self, state: Tensor, norm: Update) -> Tensor:
        return torch.stack([norm(stream) for stream in state.unbind(2)], dim=2)

    def close(self, state: Tensor, norm: Update) -> Tensor:
        return norm(state.sum(dim=2))

    def _connections(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A_m [B, T, n], A_r [B, T, n, n] and B [B, T, n], one of each for every token."""
        one = torch.eye(self.streams, device=state.device, dtype=self.mix.dtype)
        pick, mix, spread = self.pick + one[self.read_stream], self.mix + one, self.spread
        if self.follow is None or self.scales is None:
            return pick.expand(*state.shape[:3]), mix.expand(*state.shape[:3], -1), spread.expand(*state.shape[:3])
        moved = torch.tanh(functional.layer_norm(state, state.shape[-1:]) @ self.follow)
        a, b = self.scales.unbind()
        return pick + a * moved[..., 0], mix + a * moved[..., 1:-1], spread + b * moved[..., -1]
