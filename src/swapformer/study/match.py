"""Solves a size so that an arm costs what the baseline does, before anything is built for real."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import count
from typing import Any

from hydra.errors import InstantiationException

from swapformer.errors import UsageError, suggest
from swapformer.results.arms import UNITS, MatchedSize, Measure
from swapformer.study.comparison import Matching
from swapformer.study.config import overrides as texts
from swapformer.study.config.alternatives import alternatives

LARGEST = 1 << 20
"""No size that is solved for grows beyond this many units."""
FIRST_GUESS = 64
"""Where the search begins for a size that a part works out."""
FINEST = 1000
"""Units of a size that is not whole: thousandths."""
SKIPPED = 512
"""Impossible sizes in a row, such as widths that heads do not divide, after which the search gives up."""

Cost = Callable[[Mapping[str, Any], Measure], int]
Resize = Callable[[tuple[str, ...]], Mapping[str, Any]]
"""From overrides that set a size to the configuration with it."""


def solve_as_built(
    matching: Matching, config: Mapping[str, Any], target: int, cost: Cost, compose: Resize
) -> MatchedSize:
    """What `solve` finds, of what is built: other settings may follow the size, such as those of `model.layers`.

    Changing one number of a configuration is a hundred times faster than composing it again, so that is tried first
    where no layer has settings of its own.

    Raises:
        UsageError: as `solve` does.
    """
    if not _has_layers(config["model"]):
        found = solve(matching, config, target, cost)
        if cost(compose(overrides(found, config)), matching.measure) == found.cost:
            return found
    return solve(matching, config, target, cost, compose)


def solve(
    matching: Matching, config: Mapping[str, Any], target: int, cost: Cost, compose: Resize | None = None
) -> MatchedSize:
    """The size that brings the cost of `config` nearest to `target`, the smaller of two that are equally near.

    A size that is a whole number (or null, which a part works out) is solved for whole numbers, one that is not for
    thousandths; sizes that the model refuses are passed over. The cost must grow with the size. It takes the place of
    settings that it is an alternative to.

    Args:
        matching: what is made equal, and by which key.
        config: the resolved configuration of an arm.
        target: what it must cost.
        cost: counts it.
        compose: makes the configuration with another size; by default, its number is changed and nothing else.

    Raises:
        UsageError: where the size is no number of this configuration, changes nothing, or cannot come near enough.
    """
    key, units = matching.key, UNITS[matching.measure]
    now = _look_up(config, key)
    if target < 1:
        raise UsageError(f"`match` needs a baseline with {units}, but it has none; match another cost")
    found = cost(config, matching.measure)
    if found == target:
        return MatchedSize(matching.measure, key, None, found, target)
    displaced = unset(config, key)

    def value(size: int) -> int | float:
        return size / FINEST if isinstance(now, float) else size

    @cache
    def of(size: int) -> float:
        """The cost of a size; infinite where the model cannot have it."""
        try:
            if compose is not None:
                return cost(compose((f"{key}={value(size)}", *displaced)), matching.measure)
            changed = {key: value(size), **dict.fromkeys(map(texts.key, displaced))}
            return cost(_with(config, changed), matching.measure)
        except (ValueError, TypeError, RuntimeError, InstantiationException):
            return math.inf

    def possible(sizes: Iterable[int]) -> int | None:
        return next((size for size in sizes if of(size) < math.inf), None)

    def from_here(size: int) -> float:
        """The cost of the nearest possible size from here on."""
        nearest = possible(range(size, size + SKIPPED))
        return math.inf if nearest is None else of(nearest)

    start = max(round((now or FIRST_GUESS) * (FINEST if isinstance(now, float) else 1)), 2)
    first = _smallest(from_here, target, start)
    if first > LARGEST or (value(1) != now and of(1) == found):
        raise UsageError(f"`match` cannot use {key}: with it, {units} of this arm do not grow as far as the baseline's")
    near = [possible(range(first - 1, max(first - SKIPPED, 0), -1)), possible(range(first, first + SKIPPED))]
    sizes = [size for size in near if size is not None]
    best = min(sizes, key=lambda size: abs(of(size) - target), default=None)
    if best is None or abs(of(best) / target - 1) > matching.within:
        closest = " and ".join(f"{value(size):g} ({100 * (of(size) / target - 1):+.3g} %)" for size in sizes)
        raise UsageError(
            f"`match` cannot bring {units} to within {100 * matching.within:g} % of the baseline's {target:,} "
            f"by {key}: the nearest are {closest or 'impossible'}; choose another size, or allow more with `within`"
        )
    return MatchedSize(matching.measure, key, value(best), int(of(best)), target)


def _smallest(cost: Callable[[int], float], target: int, start: int) -> int:
    """The smallest size of at least 1 that costs `target` or more, found from `start`; beyond LARGEST without one.

    Between two sizes the next guess lies on the straight line, and every third in the middle: costs are nearly linear
    in a width, and counting them takes longer than all the rest.
    """
    if cost(1) >= target:
        return 1
    low, high = 1, start
    while cost(high) < target:
        low, high = high, 2 * high
        if high > LARGEST:
            return high
    for turn in count():
        if high - low == 1:
            return high
        rise = cost(high) - cost(low)
        share = 0.5 if turn % 3 == 2 or not math.isfinite(rise) else (target - cost(low)) / rise
        guess = min(max(low + round(share * (high - low)), low + 1), high - 1)
        low, high = (low, guess) if cost(guess) >= target else (guess, high)
    raise AssertionError("the loop ends when no size lies between")


def _look_up(config: Mapping[str, Any], key: str) -> int | float | None:
    """The number under a key, or None where it is null."""
    node: Any = config
    for name in key.split("."):
        if not isinstance(node, Mapping) or name not in node:
            known = suggest(name, node) if isinstance(node, Mapping) else ""
            raise UsageError(f"`match` adjusts {key}, which this arm does not have{known}")
        node = node[name]
    if isinstance(node, Mapping):
        raise UsageError(f"`match` adjusts a number, but {key} is a group of {', '.join(map(str, node)) or 'nothing'}")
    if isinstance(node, bool) or not (node is None or isinstance(node, int | float)):
        raise UsageError(f"`match` adjusts a number, but {key} is {node!r}")
    return node


def overrides(found: MatchedSize, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The overrides that set the size which was found for a configuration."""
    return (*found.override, *unset(config, found.key)) if found.override else ()


def unset(config: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The overrides that unset what a size takes the place of (see `alternatives`)."""
    parent, _, name = key.rpartition(".")
    node: Any = config
    for step in parent.split("."):
        node = node.get(step) if isinstance(node, Mapping) else None
    others = alternatives(node, name) if isinstance(node, Mapping) else ()
    return tuple(f"{parent}.{other}=null" for other in others if node[other] is not None)


def _has_layers(model: Mapping[str, Any]) -> bool:
    """Whether some layers differ in their settings."""
    return bool(model.get("layers") or model.get("encoder", {}).get("layers"))


def _with(config: Mapping[str, Any], values: Mapping[str, int | float | None]) -> dict[str, Any]:
    """The configuration with other values under some keys."""
    changed = dict(config)
    for key, value in values.items():
        parent, _, rest = key.partition(".")
        changed[parent] = _with(changed[parent], {rest: value}) if rest else value
    return changed
