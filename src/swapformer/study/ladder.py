"""Ladders of a study: the sizes at which every arm is trained, smallest first.

    ladder:
      sizes:                          # name → overrides
        d64: [model.d_model=64, model.num_heads=4]
        d96: [model.d_model=96, model.num_heads=6]
      tokens_per_parameter: 20        # or a list of them: the budget of each size, by the baseline's parameters

or, for sizes that grow by a constant factor,

    ladder: {key: model.d_model, from: 64, to: 256, steps: 4, multiple: 32, tokens_per_parameter: 20}

A size is a condition of the study, `rung=d64`, like one of a grid, and may stand beside one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.ranges import Positive, fits
from swapformer.results.arms import RUNG, TOKENS_PER_PARAMETER
from swapformer.study.config import overrides as texts

NAMED = ("sizes", TOKENS_PER_PARAMETER)
SPACED = ("key", "from", "to", "steps", "multiple", TOKENS_PER_PARAMETER)
BUDGETS = ("budget.steps", "budget.tokens", "budget.flops")


@dataclass(frozen=True)
class Rung:
    """A size of a ladder with its budget: what it is called in a condition, its overrides, tokens for a parameter."""

    values: Mapping[str, str]
    overrides: tuple[str, ...]
    tokens_per_parameter: float | None = None


@dataclass(frozen=True)
class Ladder:
    """The rungs of a study, smallest first."""

    sizes: Mapping[str, tuple[str, ...]]
    ratios: tuple[float, ...] = ()

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Every size with every budget."""
        if not self.ratios:
            return tuple(Rung({RUNG: name}, own) for name, own in self.sizes.items())
        several = len(self.ratios) > 1
        return tuple(
            Rung({RUNG: name, **({TOKENS_PER_PARAMETER: f"{ratio:g}"} if several else {})}, own, ratio)
            for name, own in self.sizes.items()
            for ratio in self.ratios
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it sets."""
        own = dict.fromkeys(texts.key(override) for found in self.sizes.values() for override in found)
        return (*own, *(BUDGETS if self.ratios else ()))


@dataclass(frozen=True)
class Condition:
    """A condition of a study: its values by factor, the overrides that make it, and the rung that it is at."""

    values: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    rung: Rung | None = None


def conditions(ladder: Ladder | None, grid: list[tuple[str, ...]]) -> dict[str, Condition]:
    """Every rung in every cell of a grid, by name; one without a name where there is neither."""
    found = {}
    for rung in ladder.rungs if ladder else (None,):
        for cell in grid:
            own = dict(rung.values) if rung else {}
            values = {**own, **texts.values(cell)}
            name = ", ".join([*(f"{key}={value}" for key, value in own.items()), *cell])
            found[name] = Condition(values, (*(rung.overrides if rung else ()), *cell), rung)
    return found


def parse_ladder(raw: object) -> Ladder | None:
    """The `ladder` of a study file. Raises UsageError."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise UsageError(
            f"`ladder` must be {{sizes: {{NAME: [OVERRIDE, …], …}}}}, or have key, from, to, steps: not {quote(raw)}"
        )
    known = NAMED if "sizes" in raw else SPACED
    for key in raw:
        if key not in known:
            raise UsageError(f"unknown key {quote(key)} in `ladder`{suggest(str(key), {*NAMED, *SPACED})}")
    sizes = _named(raw["sizes"]) if "sizes" in raw else _spaced(raw)
    if len(sizes) < 2:
        raise UsageError("a `ladder` needs at least two different sizes, and four for a law over them")
    seen: dict[tuple[str, ...], str] = {}
    for name, own in sizes.items():
        if (other := seen.setdefault(tuple(sorted(own)), name)) != name:
            raise UsageError(f"the sizes {quote(other)} and {quote(name)} of `ladder` are the same; remove one")
    return Ladder(sizes, _ratios(raw.get(TOKENS_PER_PARAMETER, [])))


def _named(raw: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping):
        raise UsageError(f"`ladder.sizes` must map names to lists of overrides, not {quote(raw)}")
    found = {}
    for name, own in raw.items():
        if not isinstance(name, str) or not name or set(name) & set("/,="):
            raise UsageError(f"a size's name must be a text without / , or =, not {quote(name)}")
        found[name] = texts.check(own, f"the size {quote(name)}")
        if not own or texts.value(own, "seed") is not None:
            raise UsageError(f"the size {quote(name)} must set something, and no seed")
    return found


def _spaced(raw: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Sizes from one number to another by a constant factor, each rounded to a multiple."""
    for name in ("key", "from", "to", "steps"):
        if name not in raw:
            raise UsageError(f"`ladder` needs `{name}`, or `sizes` that are named")
    key, steps, multiple = raw["key"], raw["steps"], raw.get("multiple", 1)
    if not isinstance(key, str) or not key or "=" in key:
        raise UsageError(f"`ladder.key` must be a key of the configuration such as model.d_model, not {quote(key)}")
    for name, value in (("from", raw["from"]), ("to", raw["to"]), ("steps", steps), ("multiple", multiple)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 10**9:
            raise UsageError(f"`ladder.{name}` must be a whole number from 1, not {quote(value)}")
    if raw["from"] >= raw["to"] or not 2 <= steps <= 100:
        raise UsageError(
            f"`ladder` must go from a smaller to a larger number in 2 to 100 steps, not from {raw['from']} to "
            f"{raw['to']} in {steps}"
        )
    factor = math.log(raw["to"] / raw["from"]) / (steps - 1)
    numbers = [max(1, round(raw["from"] * math.exp(factor * at) / multiple)) * multiple for at in range(steps)]
    if len(set(numbers)) < steps:
        shown = ", ".join(map(str, numbers))
        raise UsageError(f"`ladder` would have {shown} of {key}, some of them twice; take fewer steps")
    return {f"{key.rpartition('.')[2]}{number}": (f"{key}={number}",) for number in numbers}


def _ratios(raw: object) -> tuple[float, ...]:
    given: list[Any] = raw if isinstance(raw, list) else [raw]
    if not all(fits(Positive, each) for each in given) or len(set(given)) < len(given):
        raise UsageError(
            f"`{TOKENS_PER_PARAMETER}` must be a number above 0, such as 20, or a list of them, not {quote(raw)}"
        )
    return tuple(float(each) for each in given)
