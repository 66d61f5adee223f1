"""Ladders of a study: the sizes at which every arm is trained, smallest first.

    ladder:
      sizes:                          # name → overrides
        d64: [model.d_model=64, model.num_heads=4]
        d96: [model.d_model=96, model.num_heads=6]
      tokens_per_parameter: 20        # the budget of each size, by the baseline's parameters

A size is a condition of the study, `rung=d64`, like one of a grid, and may stand beside one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swapformer.errors import UsageError, quote
from swapformer.ranges import Positive, fits
from swapformer.results.arms import RUNG
from swapformer.study.comparison import require_keys
from swapformer.study.config import overrides as texts

TOKENS_PER_PARAMETER = "tokens_per_parameter"
KEYS = ("sizes", TOKENS_PER_PARAMETER)
BUDGETS = ("budget.steps", "budget.tokens", "budget.flops")


@dataclass(frozen=True)
class Ladder:
    """The sizes of a study with their overrides, smallest first; `ratio`: tokens for a parameter."""

    sizes: Mapping[str, tuple[str, ...]]
    ratio: float | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it sets."""
        own = dict.fromkeys(texts.key(override) for found in self.sizes.values() for override in found)
        return (*own, *(BUDGETS if self.ratio is not None else ()))


@dataclass(frozen=True)
class Condition:
    """A condition of a study: its values by factor, and the overrides that make it."""

    values: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()


def conditions(ladder: Ladder | None, grid: list[tuple[str, ...]]) -> dict[str, Condition]:
    """Every rung in every cell of a grid, by name; one without a name where there is neither."""
    found = {}
    for name, own in (ladder.sizes if ladder else {"": ()}).items():
        rung = {RUNG: name} if name else {}
        for cell in grid:
            text = ", ".join([*(f"{key}={value}" for key, value in rung.items()), *cell])
            found[text] = Condition({**rung, **texts.values(cell)}, (*own, *cell))
    return found


def parse_ladder(raw: object) -> Ladder | None:
    """The `ladder` of a study file. Raises UsageError."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping) or "sizes" not in raw:
        raise UsageError(f"`ladder` must be {{sizes: {{NAME: [OVERRIDE, …], …}}}}, not {quote(raw)}")
    require_keys(raw, KEYS, "`ladder`")
    sizes, ratio = _named(raw["sizes"]), raw.get(TOKENS_PER_PARAMETER)
    if ratio is not None and not fits(Positive, ratio):
        raise UsageError(f"`{TOKENS_PER_PARAMETER}` must be a number above 0, such as 20, not {quote(ratio)}")
    if len(sizes) < 2:
        raise UsageError("a `ladder` needs at least two different sizes, and four for a law over them")
    seen: dict[tuple[str, ...], str] = {}
    for name, own in sizes.items():
        if (other := seen.setdefault(tuple(sorted(own)), name)) != name:
            raise UsageError(f"the sizes {quote(other)} and {quote(name)} of `ladder` are the same; remove one")
    return Ladder(sizes, None if ratio is None else float(ratio))


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
