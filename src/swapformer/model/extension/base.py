"""The extension slot's base."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.ranges import Declared

Projected = tuple[Tensor, Tensor, Tensor]
"""Queries [B, Q, H·E], keys [B, K, G·E] and values [B, K, G·V], before they are split into heads."""


class Extension(Declared):
    """Base of the slot: its hooks change nothing, so the base is an attention without extensions.

    A layer has any number of extensions, by name (`model/extension=[gate,convolution]`); the attention calls each hook
    of all of them, sorted by name, in this order: `project`, `values`, `heads`, `loss`, `output`. They act inside every
    attention of the layer, so in a decoder that reads a source in both. The first line of an extension's YAML puts it
    under its name: `# @package model.extension.NAME`.

    `uses` names the slots whose parts the constructor takes as keywords: ("pattern",) or none.

    Facts, of which the attention states what follows from those of all its extensions:
        sees_order: it tells tokens by their order itself, beside position and pattern.
        anchored: it counts tokens from the row's beginning or by its length.
        isotropic: it leaves an attention that sees only distances as it is.
        caches: tokens can be read one after the other, with what `context.cache` keeps of those before.
        crosses: it also works where keys and values come from another sequence.
        has_auxiliary_loss: whether `loss` returns something in training.
        shares_values: whether `values` mixes those of several layers, which must then have one shape.
        training_only: without it a trained model would compute the same.
        state_width: elements that it caches of a sequence whatever its length, known once its modules are made.
    """

    sees_order: bool = False
    anchored: bool = False
    isotropic: bool = True
    caches: bool = True
    crosses: bool = True
    has_auxiliary_loss: bool = False
    shares_values: bool = False
    training_only: ClassVar[bool] = False
    state_width: int = 0

    uses: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dims: Dims) -> None:
        """`dims` are the sizes of the layer."""

    def modules(self, query_width: int, key_width: int, value_width: int) -> Mapping[str, nn.Module]:
        """The modules with weights that it brings, made for widths of all heads side by side: H·E, G·E, G·V.

        Called once. The attention registers each under its name here, and so the weights are called by it in
        checkpoints and have their random streams by it: `gate` becomes `attention.gate.weight`.
        """
        return {}

    def project(self, projected: Projected, context: Context, *, crosses: bool) -> Projected:
        """The replacements of queries, keys and values; `crosses` where keys are another sequence's."""
        return projected

    def values(self, v: Tensor, context: Context) -> Tensor:
        """The replacement of the new values v [B, G, T, V]."""
        return v

    def heads(self, heads: Tensor) -> Tensor:
        """The replacement of the heads' outputs [B, H, Q, V]."""
        return heads

    def loss(self, heads: Tensor, weights: Callable[[], Tensor], context: Context, *, crosses: bool) -> Tensor | None:
        """A scalar to add to the training loss, weighted; None for nothing. Called only in training.

        Args:
            heads: outputs of the heads [B, H, Q, V].
            weights: computes the attention weights [B, H, Q, K] once more.
            context: what the queries and keys are.
            crosses: whether keys are another sequence's.
        """
        return None

    def output(self, heads: Tensor, x: Tensor) -> Tensor:
        """The replacement of the heads side by side [B, Q, H·V], before the last matrix; x [B, Q, D] is the input."""
        return heads
