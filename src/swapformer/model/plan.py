"""Plans: the one factory per slot from which each layer is built, and the parts that layers share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from swapformer.interface import Interface
from swapformer.model.attention import Attention
from swapformer.model.block import Block, Sublayer
from swapformer.model.dims import Dims
from swapformer.model.extension import Extension
from swapformer.model.ffn import FFN
from swapformer.model.norm import Norm
from swapformer.model.pattern import Full, Pattern
from swapformer.model.placement import Placement
from swapformer.model.position import Position
from swapformer.model.residual import Residual

Factory = Callable[..., Any]


class LayerPlan:
    """The building plan of one layer: its sizes and, for each slot, a factory `factory(dims, **parts it uses) → part`.

    Args:
        dims: the layer's sizes.
        slots: a factory for every slot of a layer; for the extensions a factory for each name.
        shared: parts that layers share, filled while they are built: pass one mapping to all layers of a model.
    """

    def __init__(self, dims: Dims, slots: Mapping[str, Any], shared: dict[Hashable, Any]) -> None:
        self.dims = dims
        self._slots = slots
        self._shared = shared

    def part(self, slot: str, **parts: Any) -> Any:
        """A new part of a slot, with new ones of what it combines; the extensions by name."""
        if slot == "extension":
            return self.extensions(self.pattern())
        return _made(self._slots[slot], self.dims, **parts)

    def kind(self, slot: str) -> Any:
        """The class of a slot's part, whose facts are known without making one."""
        return _target(self._slots[slot])

    @property
    def position_dims(self) -> Dims:
        """The sizes that the position encoding is made for, for the attention may show it a part of each head only."""
        factory = self._slots["attention"]
        narrowed = getattr(_target(factory), "position_dims", None)
        return self.dims if narrowed is None else narrowed(self.dims, **_settings(factory))

    def _shared_part(self, slot: str, factory: Factory, dims: Dims) -> Any:
        """One instance for each distinct (class, settings, sizes that the part reads).

        The settings that the part names in `combines` are parts of the same slot, made and shared likewise.
        """
        reads: tuple[str, ...] = getattr(_target(factory), "reads", ("num_heads", "head_dim"))
        settings = repr(sorted(_settings(factory).items()))
        key = (slot, _target(factory), settings, tuple(getattr(dims, size) for size in reads))
        if key not in self._shared:
            combines: tuple[str, ...] = getattr(_target(factory), "combines", ())
            parts = {name: self._shared_part(slot, _settings(factory)[name], dims) for name in combines}
            self._shared[key] = factory(dims, **parts)
        return self._shared[key]

    def _user(self, factory: Factory, pattern: Pattern) -> Any:
        """A part built from the parts that it uses, all of which follow one pattern."""
        uses: tuple[str, ...] = getattr(_target(factory), "uses", ())
        parts = {name: self.part(name) for name in uses if name not in ("pattern", "extension")}
        if "pattern" in uses:
            parts["pattern"] = pattern
        if "extension" in uses:
            parts["extension"] = self.extensions(pattern)
        return _made(factory, self.dims, **parts)

    def extensions(self, pattern: Pattern) -> dict[str, Extension]:
        """New extensions for an attention that follows a pattern, by name and sorted by it."""
        return {name: self._user(factory, pattern) for name, factory in sorted(self._slots["extension"].items())}

    def position(self) -> Position:
        return self._shared_part("position", self._slots["position"], self.position_dims)

    def pattern(self) -> Pattern:
        return self._shared_part("pattern", self._slots["pattern"], self.dims)

    def attention(self) -> Attention:
        return self._user(self._slots["attention"], self.pattern())

    def cross_attention(self) -> Attention:
        """Attention to a source, all of which may be seen."""
        return self._user(self._slots["attention"], Full(self.dims))

    def can_cache(self) -> bool:
        """Whether the layer's output for a token stays as it is when others follow."""
        pattern, position = self.pattern(), self.position()
        stays = not (pattern.depends_on_length or position.depends_on_length)
        return self.attention().caches and pattern.causal and stays

    def ffn(self) -> FFN:
        return self._user(self._slots["ffn"], self.pattern())

    def norm(self) -> Norm:
        return self.part("norm")

    def placement(self) -> Placement:
        return self.part("placement")

    def residual(self, branch: int = 0, branches: int = 1) -> Residual:
        return self._slots["residual"](replace(self.dims, branch=branch, branches=branches))

    def sublayer(self, branch: int, branches: int) -> Sublayer:
        """Residual branch number `branch` of the layer's `branches`."""
        return Sublayer(self.norm, self.residual(branch, branches), self.placement())

    def block(self, branches: int) -> Block:
        return self.part("block", branches=branches, sublayer=self.sublayer)


def _made(factory: Factory, dims: Dims, **parts: Any) -> Any:
    combines: tuple[str, ...] = getattr(_target(factory), "combines", ())
    inner = {name: _made(_settings(factory)[name], dims) for name in combines}
    return factory(dims, **inner, **parts)


def _target(factory: Factory) -> Any:
    return factory.func if isinstance(factory, partial) else factory


def _settings(factory: Factory) -> Mapping[str, Any]:
    return factory.keywords if isinstance(factory, partial) else {}


@dataclass(frozen=True)
class ModelPlan:
    """The building plan of a model.

    Attributes:
        dims: sizes of the model.
        layers: one plan for each layer, first to last.
        interface: what goes in and what comes out.
        depth: makes the part that says how many of the layers a token goes through.
        encoder: one plan for each layer of the encoder whose output the layers read; empty if missing.
    """

    dims: Dims
    layers: tuple[LayerPlan, ...]
    interface: Interface
    depth: Factory
    encoder: tuple[LayerPlan, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.layers) == self.dims.num_layers, "a model plan needs one plan for each of its layers"

    @property
    def stacks(self) -> tuple[tuple[LayerPlan, ...], ...]:
        """The layers of each stack."""
        return (self.encoder, self.layers) if self.encoder else (self.layers,)
