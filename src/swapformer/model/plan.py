"""Plans: the one factory per slot from which each layer is built, and the parts that layers share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from swapformer.model.attention import Attention
from swapformer.model.block import Block
from swapformer.model.dims import Dims
from swapformer.model.ffn import FFN
from swapformer.model.norm import Norm
from swapformer.model.pattern import Pattern
from swapformer.model.placement import Placement
from swapformer.model.position import Position
from swapformer.model.residual import Residual
from swapformer.model.sublayer import Sublayer

Factory = Callable[..., Any]


class LayerPlan:
    """How one layer is built: its sizes and, for each slot, a factory `factory(dims, **parts it uses) → part`.

    Args:
        dims: the layer's sizes.
        slots: a factory for every slot of a layer.
        shared: parts that layers share, filled while they are built: pass one mapping to all layers of a model.
    """

    def __init__(self, dims: Dims, slots: Mapping[str, Factory], shared: dict[Hashable, Any]) -> None:
        self.dims = dims
        self._slots = slots
        self._shared = shared

    def part(self, slot: str, **parts: Any) -> Any:
        """A new part of a slot."""
        return self._slots[slot](self.dims, **parts)

    def _share(self, slot: str) -> Any:
        """One instance for each distinct (settings, number and width of heads).

        A position that is added to the embeddings knows no heads: layers share it whatever theirs are.
        """
        heads = (self.dims.num_heads, self.dims.head_dim)
        embeds = getattr(_target(self._slots[slot]), "embeds", False)
        key = (slot, _identity(self._slots[slot]), None if embeds else heads)
        if key not in self._shared:
            self._shared[key] = self.part(slot)
        return self._shared[key]

    def _user(self, slot: str) -> Any:
        """A part built from the parts that it uses."""
        uses: tuple[str, ...] = getattr(_target(self._slots[slot]), "uses", ())
        return self.part(slot, **{name: self.pattern() if name == "pattern" else self.part(name) for name in uses})

    def position(self) -> Position:
        return self._share("position")

    def pattern(self) -> Pattern:
        return self._share("pattern")

    def attention(self) -> Attention:
        return self._user("attention")

    def ffn(self) -> FFN:
        return self._user("ffn")

    def norm(self) -> Norm:
        return self.part("norm")

    def placement(self) -> Placement:
        return self.part("placement")

    def residual(self) -> Residual:
        return self.part("residual")

    def sublayer(self) -> Sublayer:
        return Sublayer(self.norm, self.residual(), self.placement())

    def block(self, branches: int) -> Block:
        return self.part("block", branches=branches, sublayer=self.sublayer)


def _target(factory: Factory) -> Any:
    return factory.func if isinstance(factory, partial) else factory


def _identity(factory: Factory) -> Hashable:
    """Equal for factories of the same class with the same settings."""
    settings = factory.keywords if isinstance(factory, partial) else {}
    return _target(factory), repr(sorted(settings.items()))


@dataclass(frozen=True)
class ModelPlan:
    """How a model is built.

    Attributes:
        dims: sizes of the model.
        layers: one plan for each layer, first to last.
    """

    dims: Dims
    layers: tuple[LayerPlan, ...]

    def __post_init__(self) -> None:
        assert len(self.layers) == self.dims.num_layers, "a model plan needs one plan for each of its layers"
