"""The number of seeds that a claim needs: before a study is run, and after it left a claim undecided."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy import special

from swapformer.report.statistics import estimates
from swapformer.report.statistics.estimates import Estimate, Region, ShareEstimate, is_within, region_p_values

MOST_SEEDS = 1000
WANTED = 0.8
"""The power that is asked for."""


UNKNOWN = (math.nan, math.nan)


@dataclass(frozen=True)
class SeedRange:
    """From `low` to `high` seeds would decide; None stands for more than `MOST_SEEDS`.

    `chances`: the power at either end if the observed difference and spread are the true ones; nan where it is unknown.
    """

    low: int | None
    high: int | None
    chances: tuple[float, float] = UNKNOWN

    @property
    def effort(self) -> tuple[float, float]:
        """A key that sorts ranges from the cheapest to the most expensive."""
        return (math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)


def power(distance: float, sd: float, seeds: int, error: float = 0.05, freedom: float = 1.0) -> float:
    """P(the one-sided t limit with this error stays clear of an edge that lies `distance` from the true mean).

    `sd` is that of one seed's difference, in the units of `distance`; `freedom`: the degrees of freedom that each seed
    after the first brings, 1 where differences are paired and up to 2 where not. By the noncentral t.
    """
    if seeds < 2 or distance <= 0 or sd <= 0:
        return 0.0
    degrees = freedom * (seeds - 1)
    threshold = float(special.stdtrit(degrees, 1 - error))
    shift = math.sqrt(seeds) * distance / sd
    missed = float(special.nctdtr(degrees, shift, threshold))
    return 1.0 if math.isnan(missed) else 1 - missed  # nan where it is too small to be computed


def fewest(enough: Callable[[int], bool]) -> int | None:
    """The smallest number of seeds that is enough, where more are enough too; None for more than `MOST_SEEDS`."""
    high = 2
    while not enough(high):
        if high >= MOST_SEEDS:
            return None
        high = min(2 * high, MOST_SEEDS)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def detectable(seeds: int, alpha: float, wanted: float = WANTED, freedom: float = 1.0) -> float:
    """The distance from a margin, in standard deviations of a seed's difference, that so many seeds find.

    `freedom`: the degrees of freedom that each seed after the first brings, as for `power`. Infinite for one seed.
    """
    if seeds < 2:
        return math.inf
    low, high = 0.0, 1.0
    while power(high, 1.0, seeds, alpha, freedom) < wanted:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, 1.0, seeds, alpha, freedom) >= wanted else (middle, high)
    return high


def seeds_for(estimate: Estimate, region: Region, error: float) -> SeedRange | None:
    """The range of seeds that would decide a difference like this one, with this error; None where none would."""
    below, above = region
    inside = below < estimate.value < above
    distance = min(abs(estimate.value - below), abs(estimate.value - above))
    if isinstance(estimate, estimates.AroundEstimate):
        if estimate.bias >= distance or (any(estimate.open) and region_p_values(estimate, region)[not inside] == 1):
            return None  # no seed closes an open side, or takes a possible bias away
        shift = estimate.bias if inside else -estimate.bias
        return seeds_for(estimate.inner, (below + shift, above - shift), error)
    if isinstance(estimate, estimates.FactorEstimate):
        logs = tuple(math.log(edge) if edge > 0 else -math.inf for edge in region)
        return seeds_for(estimate.inner, (logs[0], logs[1]), error)
    if isinstance(estimate, estimates.WiderEstimate):
        parts = [seeds_for(part, region, error) for part in (estimate.inner, estimate.second)]
        return None if None in parts else max((part for part in parts if part is not None), key=lambda p: p.effort)
    if isinstance(estimate, estimates.MeanEstimate) and math.isfinite(distance):
        return _seeds_by_t(estimate, distance, error)
    if not isinstance(estimate, estimates.IdenticalEstimate | ShareEstimate) or not distance < math.inf:
        return None
    if isinstance(estimate, estimates.IdenticalEstimate) and math.isinf(estimate.most - estimate.least):
        return None  # there is nothing to judge by
    if distance == 0:
        return SeedRange(None, None)  # other seeds will say something else, but not how soon
    enough = fewest(lambda seeds: is_within(min(region_p_values(_repeated(estimate, seeds), region)), error))
    return SeedRange(enough, enough)


def _seeds_by_t(estimate: estimates.MeanEstimate, distance: float, error: float) -> SeedRange | None:
    """The fewest seeds for the small and the large end of what the spread over seeds may truly be.

    The spread's 80 % interval (chi-squared) is translated into a range; the observed distance is taken as the true
    one. An error over items stays as it is: None where it alone leaves the difference open.
    """
    seeds, item_error, items = estimate, 0.0, 2
    if isinstance(estimate, estimates.ItemsEstimate):
        seeds, item_error, items = estimate.over_seeds, estimate.item_error, estimate.items
    each, sd = seeds.freedom / (seeds.n - 1), seeds.standard_error * math.sqrt(seeds.n)

    def chance(n: int, sd: float) -> float:
        total, freedom = estimates.errors_together(sd / math.sqrt(n), each * (n - 1), item_error, items)
        return power(distance, total * math.sqrt(n), n, error, freedom / (n - 1))

    if item_error and chance(10**9, sd) < WANTED:
        return None
    found: list[tuple[int | None, float]] = []
    for tail in (0.1, 0.9):
        spread = sd * math.sqrt(seeds.freedom / float(special.chdtri(seeds.freedom, tail)))
        least = fewest(lambda n, spread=spread: chance(n, spread) >= WANTED)  # type: ignore[misc]
        enough = None if least is None else max(least, seeds.n + 1)
        found.append((enough, math.nan if enough is None else chance(enough, sd)))
    (low, first), (high, last) = found
    return SeedRange(low, high, (first, last))


def _repeated(estimate: estimates.IdenticalEstimate | ShareEstimate, seeds: int) -> Estimate:
    """The estimate from so many seeds that say the same, on average."""
    if isinstance(estimate, estimates.IdenticalEstimate):
        return replace(estimate, n=seeds)
    count, other = (None if each is None else each * seeds / estimate.n for each in (estimate.count, estimate.other))
    return ShareEstimate(count or 0.0, seeds, other)
