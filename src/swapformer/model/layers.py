"""Leaf modules: the only code that makes parameters, each of which declares its role.

An initialisation goes by role and fans, never by a parameter's name, so a new part is initialised like every other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.dims import Side


class Role(StrEnum):
    """The purpose of a parameter, by which it is initialised, decayed and counted."""

    TOKEN_EMBEDDING = "token_embedding"
    SEGMENT_EMBEDDING = "segment_embedding"
    POSITION_EMBEDDING = "position_embedding"  # added to the stream
    POSITION_BIAS = "position_bias"  # added to attention logits
    POSITION_KEY = "position_key"  # multiplied with queries or keys, like a key
    POSITION_MAP = "position_map"  # a linear map inside a position encoding
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    LANDMARK = "landmark"  # sums keys or values over tokens
    LATENT = "latent"  # compresses a token to the vector that queries, keys or values are made from
    ATTENTION_OUT = "attention_out"  # last matrix of the attention branch
    FFN_IN = "ffn_in"
    FFN_GATE = "ffn_gate"
    FFN_OUT = "ffn_out"  # last matrix of the feed-forward branch
    GATE = "gate"  # scales the update of a branch, element by element
    ROUTER = "router"  # chooses among experts
    SCORE = "score"  # matrices within the match of query and key
    POOLER = "pooler"  # between an encoder's states and the answers read from them
    HEAD = "head"
    BIAS = "bias"
    GAIN = "gain"  # scales: of norms, of branches, of logits
    MATRIX = "matrix"  # with two axes or more, of a model of the user's own, which declares no other role
    VECTOR = "vector"  # with one axis or none, of such a model

    @property
    def is_embedding(self) -> bool:
        return self in (
            Role.TOKEN_EMBEDDING, Role.SEGMENT_EMBEDDING, Role.POSITION_EMBEDDING, Role.POSITION_BIAS, Role.POSITION_KEY
        )  # fmt: skip

    @property
    def is_position(self) -> bool:
        return self in (Role.POSITION_EMBEDDING, Role.POSITION_BIAS, Role.POSITION_KEY, Role.POSITION_MAP)

    @property
    def ends_branch(self) -> bool:
        """Whether the weight writes a residual branch's update."""
        return self in (Role.ATTENTION_OUT, Role.FFN_OUT)

    @property
    def is_matrix(self) -> bool:
        """Whether weight decay applies: matrices and tables decay, biases and gains do not."""
        return self not in (Role.BIAS, Role.GAIN, Role.VECTOR)


@dataclass(frozen=True)
class Origin:
    """The starting value of a parameter: `start + std·z`, with z standard normal and std from the initialisation.

    Attributes:
        role: purpose of the parameter.
        fan_in: terms summed into one output; for a table its rows.
        fan_out: outputs that one input reaches; for a table its columns.
        start: the constant it starts from.
        slices: matrices stacked along the first axis, each with a separate random stream; None for a single one.
        active: how many of the slices one token uses; None for all.
        side: the kind of stack that the parameter belongs to.
    """

    role: Role
    fan_in: int
    fan_out: int
    start: float = 0.0
    slices: int | None = None
    active: int | None = None
    side: Side = Side.DECODER

    @property
    def active_share(self) -> float:
        """The share of the parameter that one token uses."""
        return 1.0 if self.slices is None or self.active is None else self.active / self.slices


def declare(parameter: nn.Parameter, origin: Origin) -> nn.Parameter:
    """Attach its origin to a parameter; returns the parameter."""
    parameter.origin = origin  # type: ignore[attr-defined]
    return parameter


def declare_side(module: nn.Module, side: Side) -> None:
    """Declare the kind of stack of every parameter in a module."""
    for name, parameter in module.named_parameters():
        declare(parameter, replace(origin_of(name, parameter), side=side))


def origin_of(name: str, parameter: nn.Parameter) -> Origin:
    """The origin declared for a parameter.

    Raises:
        ValueError: if the parameter was not made through a leaf of this module.
    """
    origin = getattr(parameter, "origin", None)
    if not isinstance(origin, Origin):
        raise ValueError(
            f"every parameter must declare its role, but `{name}` does not; make it with `Linear`, `Embedding` or "
            "`gain` from swapformer.model.layers."
        )
    return origin


def roles_of_leaf(model: nn.Module, name: str) -> Iterator[Role]:
    """The role of the matrix in a parameter's leaf: a bias belongs to that matrix."""
    weight = getattr(model.get_submodule(name.rpartition(".")[0]), "weight", None)
    if isinstance(weight, nn.Parameter) and (role := origin_of(name, weight).role).is_matrix:
        yield role


class Linear(nn.Module):
    """y = xWᵀ + b, with W [out, in] and b [out].

    Args:
        in_features, out_features: widths of input and output.
        role: purpose of the weight.
        bias: whether b exists.
    """

    def __init__(self, in_features: int, out_features: int, role: Role, *, bias: bool) -> None:
        super().__init__()
        origin = Origin(role, in_features, out_features)
        self.weight = declare(nn.Parameter(torch.empty(out_features, in_features)), origin)
        self.bias = declare(nn.Parameter(torch.empty(out_features)), replace(origin, role=Role.BIAS)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        out_features, in_features = self.weight.shape
        return f"{in_features}, {out_features}, bias={self.bias is not None}"


class StackedLinear(nn.Module):
    """S linear maps side by side: y_s = x_s W_sᵀ + b_s, with W [S, out, in] and b [S, out]; fans are those of one.

    Args:
        slices: S.
        in_features, out_features: widths of input and output of each map.
        role: purpose of the weights.
        bias: whether b exists.
        active: how many of the maps one token uses; None for all.
    """

    def __init__(
        self, slices: int, in_features: int, out_features: int, role: Role, *, bias: bool, active: int | None = None
    ) -> None:
        super().__init__()
        origin = Origin(role, in_features, out_features, slices=slices, active=active)
        self.weight = declare(nn.Parameter(torch.empty(slices, out_features, in_features)), origin)
        biases = nn.Parameter(torch.empty(slices, out_features)) if bias else None
        self.bias = None if biases is None else declare(biases, replace(origin, role=Role.BIAS))

    def forward(self, x: Tensor) -> Tensor:
        """Apply every map to its own slice of the last but one axis: x [..., S, in] → [..., S, out]."""
        y = torch.einsum("...si,soi->...so", x, self.weight)
        return y if self.bias is None else y + self.bias

    def one(self, index: int, x: Tensor) -> Tensor:
        """Apply one of the maps: x [..., in] → [..., out]."""
        return functional.linear(x, self.weight[index], None if self.bias is None else self.bias[index])

    def extra_repr(self) -> str:
        slices, out_features, in_features = self.weight.shape
        return f"{slices} × ({in_features}, {out_features}), bias={self.bias is not None}"


class Embedding(nn.Module):
    """A table [rows, width] that is read by index."""

    def __init__(self, rows: int, width: int, role: Role) -> None:
        super().__init__()
        self.weight = declare(nn.Parameter(torch.empty(rows, width)), Origin(role, rows, width))

    def forward(self, index: Tensor) -> Tensor:
        return functional.embedding(index, self.weight)

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


def gain(*shape: int, start: float) -> nn.Parameter:
    """A scale that starts at a constant whatever the initialisation."""
    return declare(nn.Parameter(torch.full(shape, start)), Origin(Role.GAIN, 1, 1, start))


def shift(*shape: int, start: float = 0.0) -> nn.Parameter:
    """An offset that starts at a constant whatever the initialisation (it has no fan)."""
    return declare(nn.Parameter(torch.full(shape, start)), Origin(Role.BIAS, 0, 1, start))
