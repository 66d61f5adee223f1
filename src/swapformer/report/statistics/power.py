"""How many seeds a claim needs: before a study is run, and after it left a claim undecided."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scipy import special

from swapformer.report.statistics import estimates
from swapformer.report.statistics.bounded import MallowsEstimate
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.contrasts import ExactEstimate, ShareEstimate
from swapformer.report.statistics.estimates import Estimate, Region, edges, region_p_values
from swapformer.report.statistics.ladder import FactorEstimate
from swapformer.report.statistics.rates import RateEstimate

MOST_SEEDS = 1000


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
    if shift > 35:  # the noncentral t is not computed reliably out there; the normal law is exact enough
        return float(special.ndtr(shift - threshold))
    return 1 - float(special.nctdtr(degrees, shift, threshold))


def seeds_to_decide(
    distance: float, sd: float, error: float = 0.05, wanted: float = 0.8, freedom: float = 1.0
) -> int | None:
    """The fewest seeds with power `wanted`; None for more than `MOST_SEEDS`."""
    return fewest(lambda seeds: power(distance, sd, seeds, error, freedom) >= wanted)


def seeds_range(
    distance: float, sd: float, seeds: int, error: float = 0.05, wanted: float = 0.8, freedom: float = 1.0
) -> SeedRange:
    """The fewest seeds that would decide, for the small and the large end of what `sd` may truly be.

    `sd` was estimated from `seeds` seeds: its 80 % interval (chi-squared) is translated into a range. The observed
    distance is taken as the true one. Never below one seed more than there are; None for more than `MOST_SEEDS`.
    """
    degrees = freedom * (seeds - 1)
    small, large = (sd * math.sqrt(degrees / float(special.chdtri(degrees, tail))) for tail in (0.1, 0.9))
    needed = (seeds_to_decide(distance, spread, error, wanted, freedom) for spread in (small, large))
    low, high = (None if each is None else max(each, seeds + 1) for each in needed)
    chances = (math.nan if n is None else power(distance, sd, n, error, freedom) for n in (low, high))
    return SeedRange(low, high, (next(chances), next(chances)))


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


@dataclass(frozen=True)
class PowerPlan:
    """How many of a study's claims its seeds could decide, given a power and assumed effects.

    `detectable`: the distance from the margin, in standard deviations of the paired differences, that these seeds
    find when every claim is tested at Holm's first (strictest) level. `needed`: seeds that would decide every claim.
    """

    claims: int
    decidable: int
    seeds: int
    detectable: float
    needed: int | None
    power: float

    def __str__(self) -> str:
        if not self.claims:
            return "no claims: the report will show differences without verdicts"
        text = (
            f"{self.seeds} seeds could decide {self.decidable} of {self.claims} claims "
            f"({self.power:.0%} power); they see a distance of {self.detectable:.2g} standard deviations from a margin"
        )
        if self.decidable == self.claims:
            return text
        return text + ("; more than 1000 seeds would be needed" if self.needed is None else f"; {self.needed} would do")


def power_plan(
    claims: Sequence[Claim],
    seeds: int,
    *,
    effect: float | Mapping[str, float] = 2.0,
    sd: float | Mapping[str, float] = 1.0,
    alpha: float = 0.05,
    wanted: float = 0.8,
) -> PowerPlan:
    """How many claims so many seeds could decide, computed before anything is run.

    `effect` is the assumed distance between the true difference and the nearest edge of the claim, `sd` the assumed
    standard deviation of the paired differences; each is one number, or one per metric. With the default `sd=1`,
    `effect` counts in standard deviations. Where shares of seeds are claimed (that diverge, reach a value or win),
    all seeds are taken to agree, or as many of them as the claim's middle says. What is exact needs one seed.
    Claims are tested as Holm would: the likeliest first, at `alpha / m`, then `alpha / (m - 1)` …
    """
    exact = sum(claim.exact for claim in claims)
    claims = [claim for claim in claims if not claim.exact]
    m = len(claims)
    powers = [
        partial(_decides, claim, None if claim.metric is None else _size(effect, sd, claim.metric)) for claim in claims
    ]
    powers.sort(key=lambda of: of(seeds, alpha / m), reverse=True)
    decidable = 0
    while decidable < m and powers[decidable](seeds, alpha / (m - decidable)) >= wanted:
        decidable += 1

    def seeds_of(rank: int) -> int | None:
        return fewest(lambda n: powers[rank](n, alpha / (m - rank)) >= wanted)

    each = [seeds_of(rank) for rank in range(m)]
    needed = None if None in each else max((one for one in each if one), default=2)
    return PowerPlan(m + exact, decidable + exact, seeds, detectable(seeds, alpha / max(m, 1), wanted), needed, wanted)


def _size(effect: float | Mapping[str, float], sd: float | Mapping[str, float], metric: str) -> float:
    far, spread = (value if isinstance(value, int | float) else value[metric] for value in (effect, sd))
    return far / max(spread, 1e-300)


def _decides(claim: Claim, size: float | None, seeds: int, level: float) -> float:
    """At least so likely a claim that holds is supported: each arm and each edge may fail it (Bonferroni)."""
    if size is None or claim.kind == "reaches":
        return float(seeds > 1 and min(_clearest(claim, seeds)) <= level)
    if claim.kind == "trend" and min(_clearest(claim, seeds)) > level:
        return 0.0
    two = (claim.kind == "within" and not claim.of_best) or (claim.bounds is not None and edges(claim.bounds) == 2)
    return 1 - (2 if two else 1) * max(len(claim.than), 1) * (1 - power(size, 1.0, seeds, level))


def _clearest(claim: Claim, seeds: int) -> list[float]:
    """The p-values of a claim about shares or orders where all seeds agree, or as many as lie in its middle."""
    region = claim.region(None, 0.0)
    found: list[Estimate]
    if claim.kind == "trend":
        arms = len(claim.arms)
        found = [MallowsEstimate(1.0, seeds, arms, 0.0), MallowsEstimate(1.0, seeds, arms, 0.0).negate()]
    elif claim.than:
        found = [RateEstimate(seeds, 0, seeds), RateEstimate(0, 0, seeds), RateEstimate(0, seeds, seeds)]
    else:
        low, high = max(region[0], 0.0), min(region[1], 1.0)
        found = [ShareEstimate(count, seeds) for count in {0, round((low + high) / 2 * seeds), seeds}]
    inside = [one for one in found if region[0] < one.value < region[1]]
    return [region_p_values(one, region)[0] for one in inside] or [1.0]


def detectable(seeds: int, alpha: float, wanted: float = 0.8, freedom: float = 1.0) -> float:
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
    distance = min(abs(estimate.value - below), abs(estimate.value - above))
    if isinstance(estimate, estimates.OpenEstimate):
        holds, fails = region_p_values(estimate, region)
        if (holds if below < estimate.value < above else fails) == 1:
            return None  # the open side is the one that would have to close
        return seeds_for(estimate.inner, region, error)
    if isinstance(estimate, estimates.BiasedEstimate):
        outside = -1 if below < estimate.value < above else 1
        return seeds_for(estimate.inner, (below - outside * estimate.bias, above + outside * estimate.bias), error)
    if isinstance(estimate, FactorEstimate):
        logs = tuple(math.log(edge) if edge > 0 else -math.inf for edge in region)
        return seeds_for(estimate.inner, (logs[0], logs[1]), error)
    if isinstance(estimate, estimates.WiderEstimate):
        parts = [seeds_for(part, region, error) for part in (estimate.first, estimate.second)]
        return None if None in parts else max((part for part in parts if part is not None), key=lambda p: p.effort)
    if isinstance(estimate, estimates.UnknownEstimate | ExactEstimate) or not math.isfinite(distance):
        return None

    def fewest_alike(of: Callable[[int], Estimate]) -> int | None:
        """The fewest seeds that decide, if all of them say the same."""
        return fewest(lambda seeds: min(region_p_values(of(seeds), region)) <= error)

    if isinstance(estimate, estimates.IdenticalEstimate):
        if distance == 0 or math.isinf(estimate.least):
            return None  # at the very edge with every seed, or nothing to judge by
        enough = fewest_alike(lambda seeds: replace(estimate, n=seeds))
        return SeedRange(enough, enough)
    if isinstance(estimate, MallowsEstimate):
        share = estimate.inversions / estimate.n
        enough = fewest_alike(lambda n: replace(estimate, n=n, inversions=share * n))
        return SeedRange(enough, enough)
    if isinstance(estimate, RateEstimate):
        # Approximate: a t interval, with one more seed of either kind in the spread.
        n, gained, lost = estimate.n, estimate.gained, estimate.lost
        split, net = (gained + lost + 1) / (n + 2), (abs(gained - lost) + 1) / (n + 2)
        found = seeds_range(distance, math.sqrt(split - net**2), n, error)
        least = fewest_alike(lambda n: RateEstimate(n, 0, n) if gained >= lost else RateEstimate(0, n, n))
        low, high = (None if one is None or least is None else max(one, least) for one in (found.low, found.high))
        return SeedRange(low, high)
    if isinstance(estimate, ShareEstimate):  # approximate too, with one more seed of either kind
        share = (estimate.count + 1) / (estimate.n + 2)
        found = seeds_range(distance, math.sqrt(share * (1 - share)), max(estimate.n, 2), error)
        return replace(found, chances=UNKNOWN)
    assert isinstance(estimate, estimates.MeanEstimate), f"an estimate of unknown kind: {estimate!r}"
    n = estimate.n
    return seeds_range(distance, estimate.standard_error * math.sqrt(n), n, error, freedom=estimate.freedom / (n - 1))
