"""Taps: the named places where a model can be watched, or overwritten, while it computes.

`with record(model, "blocks.*.attn.hook_pattern") as seen:` gives what a forward computes at the places of these names,
and `with replace(model, {name: function}):` lets it go on with something else. Names are those of TransformerLens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from swapformer.ranges import Declared

Function = Callable[[Tensor], Tensor]
"""What takes the place of a value, with the same shape."""

FORMED = ("hook_attn_scores", "hook_pattern")
"""What fused kernels never form: to replace it, an attention computes by its definition."""


@dataclass(frozen=True, eq=False)
class Watcher:
    """The actions at a place: a function of its value, and whether that may be another value."""

    act: Function
    replaces: bool


class Tapped(Declared, nn.Module):
    """A module with places where it can be watched: it calls `tap` there with what it has computed.

    Unwatched, `tap` gives back its argument, so that a step dispatches the same operators in the same order as without.

    Attributes:
        places: the name of each place, and the axes of its value in the letters of `dims` (see `names`).
        skips_weights: whether a training step may leave some of its weights without a gradient; none of ours does.
    """

    places: ClassVar[Mapping[str, str]] = MappingProxyType({})
    skips_weights: bool = False
    _watchers: Mapping[str, tuple[Watcher, ...]] | None = None

    @property
    def observed(self) -> bool:
        """Whether any place of the model that the module belongs to is watched."""
        return self._watchers is not None

    def watched(self, *places: str) -> bool:
        """Whether somebody looks at one of these places."""
        return self._watchers is not None and any(place in self._watchers for place in places)

    def replaced(self, *places: str) -> bool:
        """Whether the value at one of these places may be replaced."""
        watchers = self._watchers or {}
        return any(watcher.replaces for place in places for watcher in watchers.get(place, ()))

    def tap(self, place: str, value: Tensor) -> Tensor:
        """The value that the computation continues with: `value`, or what a watcher of the place put in its stead."""
        if self._watchers is None:
            return value
        for watcher in self._watchers.get(place, ()):
            value = watcher.act(value)
        return value

    def tap_as(self, place: str, value: Any, there: Callable[[Any], Tensor], back: Callable[[Tensor], Any]) -> Any:
        """The same for a value that is shown as `there(value)`, which `back` turns into a value again."""
        return back(self.tap(place, there(value))) if self.watched(place) else value

    def sites(self) -> Iterator[Site]:
        """The places of the module and of its parts, by the names that they have for whoever holds the module."""
        for place, axes in self.places.items():
            yield Site(place, self, place, axes)


@dataclass(frozen=True, eq=False)
class Site:
    """A place of a model.

    Attributes:
        name: by which it is asked for.
        owner: the module that calls `tap`, with the name `place`.
        place: the place's name within the owner.
        axes: of the value, in the letters of `dims`.
        instead: what can be replaced where this can only be watched; None where it can be replaced itself.
    """

    name: str
    owner: Tapped
    place: str
    axes: str
    instead: str | None = None

    def under(self, prefix: str) -> Site:
        """The same place in a module of which its own is the part `prefix`."""
        instead = None if self.instead is None else f"{prefix}.{self.instead}"
        return changed(self, name=f"{prefix}.{self.name}", instead=instead)


def names(model: Tapped, pattern: str = "*") -> dict[str, str]:
    """The name of every place of a model that fits, and the axes of its value, such as "B H Q K".

    Weights need no numbers. Letters as in `swapformer.model.dims`; the table in docs/guides/watching.md has the others.
    """
    return {site.name: site.axes for site in model.sites() if fnmatchcase(site.name, pattern)}


def missing(model: Tapped, *patterns: str, replacing: bool = False) -> str | None:
    """The reason why a model cannot be watched, or overwritten, at the places of these names; None if it can.

    Only what is stated of the model is read, so that a probe can ask before anything is trained. In a name `*` stands
    for anything; a pattern needs one place that it fits.
    """
    sites = list(model.sites())
    for pattern in patterns:
        found = [site for site in sites if fnmatchcase(site.name, pattern)]
        if not found:
            return _unknown(pattern, [site.name for site in sites])
        for site in found:
            if replacing and site.instead is not None:
                return (
                    f"what branches read here is a mixture of several streams, so {site.name} can be recorded but not "
                    f"replaced; replace {site.instead}"
                )
    return None


@contextmanager
def record(model: Tapped, *patterns: str) -> Iterator[dict[str, Tensor]]:
    """Watch a model: name → value at each place that fits a pattern (all without one), as the last forward had it.

    A forward replaces the values of the one before, so read them between two batches. They are the
    tensors of the computation itself, with their gradients where these are enabled. `hook_pattern` and
    `hook_attn_scores` of a fused kernel are formed besides, from the same queries and keys, which leaves the output as
    it is. While a model is watched it stores all activations, also where it would compute them again in the backward
    pass.

    Args:
        model: a whole model, or a part that is called by itself.
        patterns: names, in which `*` stands for anything. Those of a place that an inner `replace` overwrites have the
            value before it, those of an outer one the value after.

    Raises:
        ValueError: if a pattern fits no place, with the nearest names.
    """
    seen: dict[str, Tensor] = {}

    def see(name: str) -> Function:
        def act(value: Tensor) -> Tensor:
            seen[name] = value
            return value

        return act

    with _watching(model, [(site, Watcher(see(site.name), False)) for site in _chosen(model, patterns or ("*",))]):
        yield seen


@contextmanager
def replace(model: Tapped, functions: Mapping[str, Function]) -> Iterator[tuple[str, ...]]:
    """Let a model go on with `functions[name](value)` instead of the value at each place that fits a name.

    Gives the names of the attentions that compute by their definition for the time of the block, whatever their kernel
    ("blocks.0.attn"): those whose `hook_attn_scores` or `hook_pattern` is replaced. Weights are then dropped out as the
    reference drops them; those that an approximation implies are not.

    Raises:
        ValueError: if a name fits no place or one that can only be recorded, and in a forward if a function gives
            another shape or type.
    """
    chosen = [
        (site, Watcher(_checked(site.name, function), True))
        for pattern, function in functions.items()
        for site in _chosen(model, (pattern,), replacing=True)
    ]
    formed = dict.fromkeys(site.name.rpartition(".")[0] for site, _ in chosen if site.place in FORMED)
    with _watching(model, chosen):
        yield tuple(formed)


def _chosen(model: Tapped, patterns: tuple[str, ...], *, replacing: bool = False) -> list[Site]:
    if problem := missing(model, *patterns, replacing=replacing):
        raise ValueError(problem)
    return [site for site in model.sites() if any(fnmatchcase(site.name, pattern) for pattern in patterns)]


def _unknown(pattern: str, known: list[str]) -> str:
    shown = known if "*" not in pattern else list(dict.fromkeys(re.sub(r"\b\d+\b", "*", name) for name in known))
    near = get_close_matches(pattern, shown, n=3, cutoff=0.6) or shown[:3]
    hint = f"; near it are {', '.join(near)}" if near else ""
    return f"a name must fit a place that the model's parts have, but none fits {pattern[:80]!r}{hint}"


def _checked(name: str, function: Function) -> Function:
    """The function, held to the shape and type of what it replaces."""

    def act(value: Tensor) -> Tensor:
        given: Any = function(value)
        if getattr(given, "shape", None) != value.shape or given.dtype != value.dtype:
            found = f"{tuple(given.shape)} of {given.dtype}" if hasattr(given, "dtype") else type(given).__name__
            raise ValueError(
                f"what replaces {name} must be a tensor {tuple(value.shape)} of {value.dtype}, but the function gave "
                f"{found}; return one of the shape and type that it is called with"
            )
        return given

    return act


@contextmanager
def _watching(model: Tapped, chosen: list[tuple[Site, Watcher]]) -> Iterator[None]:
    """Set up watchers behind those that are there; contexts end in the reverse order of their beginning."""
    owners = {id(site.owner): site.owner for site in model.sites()}
    before = {key: owner._watchers for key, owner in owners.items()}
    for owner in owners.values():
        own = dict(owner._watchers or {})
        for site, watcher in chosen:
            if site.owner is owner:
                own[site.place] = (*own.get(site.place, ()), watcher)
        owner._watchers = own
    try:
        yield
    finally:
        for key, owner in owners.items():
            owner._watchers = before[key]
