"""A study's values as arrays over seeds, and the rules by which two arms may be compared."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swapformer.report.estimates import Estimate, FloatArray, Opened, RateEstimate, Unknown, mean_estimate
from swapformer.report.records import Records

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Values of two arms at the seeds where both finished, in one environment class; `apart` seeds were refused."""

    x: FloatArray
    y: FloatArray
    seeds: tuple[int, ...]
    apart: tuple[int, ...]


@dataclass(frozen=True)
class Evidence:
    """Everything that verdicts look at; all arrays run over `seeds`.

    `values[arm, metric]` is nan where the trial did not finish or the metric is not there. `classes[arm]` names the
    environment class of each trial (one class everywhere where it is not given).
    """

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Mapping[tuple[str, str], FloatArray]
    finished: Mapping[str, BoolArray]
    diverged: Mapping[str, BoolArray]
    directions: Mapping[str, str]
    classes: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)

    def among(self, seeds: Collection[int]) -> Evidence:
        """What these seeds alone tell."""
        kept = np.isin(np.array(self.seeds, dtype=int), list(seeds))
        return Evidence(
            self.arms,
            tuple(seed for seed in self.seeds if seed in seeds),
            {key: row[kept] for key, row in self.values.items()},
            {arm: row[kept] for arm, row in self.finished.items()},
            {arm: row[kept] for arm, row in self.diverged.items()},
            self.directions,
            {arm: row[kept] for arm, row in self.classes.items()},
        )

    def of(self, arm: str, metric: str) -> FloatArray:
        """The finished values of an arm, in the order of the seeds."""
        values = self._values(arm, metric)
        return values[np.isfinite(values)]

    def pairs(self, arm: str, than: str, metric: str) -> Pairs:
        """The values of both arms where they can be compared seed by seed."""
        x, y = self._values(arm, metric), self._values(than, metric)
        both = np.isfinite(x) & np.isfinite(y)
        same = self._same_class(arm, than)
        return Pairs(x[both & same], y[both & same], self._named(both & same), self._named(both & ~same))

    def mean_difference(self, arm: str, than: str, metric: str, relative: float = 0.0) -> Estimate:
        """The estimate of mean(arm - than), paired by seed.

        **Diverged trials.** The mean over the survivors flatters an arm that diverged, so the limit on its flattering
        side is given up: with a metric that is better when lower, a diverged `arm` opens the limit above, a diverged
        `than` the one below; without a good direction both open. A mean claim can therefore never favour an arm that
        diverged. With `relative` r the margin r·|mean(than)| moves with the data: the standard error is then the
        larger of those of `arm - than ± r·than`.
        """
        pairs = self.pairs(arm, than, metric)
        difference = pairs.x - pairs.y
        error = None
        if relative and len(difference) > 1:
            spreads = [float((difference + sign * relative * pairs.y).std(ddof=1)) for sign in (-1, 1)]
            error = max(spreads) / math.sqrt(len(difference))
        estimate = mean_estimate(difference, error)
        arm_diverged, than_diverged = self.has_diverged(arm), self.has_diverged(than)
        if not (arm_diverged or than_diverged):
            return estimate
        direction = self.directions.get(metric)
        above = {"lower": arm_diverged, "higher": than_diverged}.get(direction or "", True)
        below = {"lower": than_diverged, "higher": arm_diverged}.get(direction or "", True)
        return Opened(estimate, below, above)

    def rate_difference(self, arm: str, than: str) -> Estimate:
        """The estimate of the difference of divergence rates, over the seeds that ended in both arms."""
        ended = self._ended(arm) & self._ended(than) & self._same_class(arm, than)
        n = int(ended.sum())
        if n < 2:
            return Unknown(n=n)
        return RateEstimate(int(self.diverged[arm][ended].sum()) - int(self.diverged[than][ended].sum()), n)

    def has_diverged(self, arm: str) -> bool:
        """Whether any trial of the arm diverged."""
        return arm in self.diverged and bool(self.diverged[arm].any())

    def never_finished(self, arm: str) -> bool:
        """Whether trials of the arm diverged and none finished: it is out of the race for the best."""
        return self.has_diverged(arm) and not bool(self.finished[arm].any())

    def _values(self, arm: str, metric: str) -> FloatArray:
        return self.values.get((arm, metric), np.full(len(self.seeds), math.nan))

    def _named(self, chosen: BoolArray) -> tuple[int, ...]:
        return tuple(seed for seed, yes in zip(self.seeds, chosen, strict=True) if yes)

    def _ended(self, arm: str) -> BoolArray:
        nowhere = np.zeros(len(self.seeds), dtype=bool)
        return self.finished.get(arm, nowhere) | self.diverged.get(arm, nowhere)

    def _same_class(self, arm: str, than: str) -> BoolArray:
        everywhere = np.full(len(self.seeds), "", dtype=object)
        return np.asarray(self.classes.get(arm, everywhere) == self.classes.get(than, everywhere), dtype=bool)


def gather(records: Records) -> Evidence:
    """The evidence in a study's records."""
    arms = records.manifest.possible
    seeds = tuple(sorted({int(seed) for seed in records.cells["seed"]} | set(records.manifest.seeds)))
    place = {seed: index for index, seed in enumerate(seeds)}
    values: dict[tuple[str, str], FloatArray] = {}
    for arm, seed, metric, value in records.metrics[["arm", "seed", "metric", "value"]].itertuples(index=False):
        values.setdefault((arm, metric), np.full(len(seeds), math.nan))[place[seed]] = value
    finished = {arm: np.zeros(len(seeds), dtype=bool) for arm in arms}
    diverged = {arm: np.zeros(len(seeds), dtype=bool) for arm in arms}
    classes = {arm: np.full(len(seeds), "", dtype=object) for arm in arms}
    for arm, seed, status, where in records.cells[["arm", "seed", "status", "environment"]].itertuples(index=False):
        finished[arm][place[seed]] = status == "finished"
        diverged[arm][place[seed]] = status == "diverged"
        classes[arm][place[seed]] = where
    return Evidence(arms, seeds, values, finished, diverged, records.directions, classes)
