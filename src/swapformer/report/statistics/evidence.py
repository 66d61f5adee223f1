"""Measured values of a study as arrays over seeds, and the rules for comparing two arms."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from swapformer.errors import UsageError, cut
from swapformer.report import number_format
from swapformer.report.derive import times_of, ways_of
from swapformer.report.records import Records
from swapformer.report.statistics import estimates
from swapformer.report.statistics.claim_fields import Term, difference
from swapformer.report.statistics.estimates import (
    UNBOUNDED,
    BoolArray,
    Estimate,
    FloatArray,
    MeanEstimate,
    Region,
    mean_estimate,
)
from swapformer.results.arms import arm_name, is_computation
from swapformer.results.items import ItemMeans, Items, items_of
from swapformer.results.manifest import Manifest
from swapformer.results.moments import split_moment
from swapformer.results.record import DIVERGED, FINISHED

_OF_SEEDS = ("values", "finished", "diverged", "classes", "losses", "unreached")
"""What evidence has for each seed."""
NOT_JUDGED = "not judged: "
"""How the note on a claim begins whose baseline has not beaten what it must."""
LONGEST = 240
"""Characters of a reason why an arm has no result."""


@dataclass(frozen=True)
class PairedValues:
    """Values of two arms at the seeds where both finished in one environment class; in `apart` the classes differ.

    `range`: the values that they could take.
    """

    x: FloatArray
    y: FloatArray
    seeds: tuple[int, ...]
    apart: tuple[int, ...]
    range: Region = UNBOUNDED

    @property
    def bounds(self) -> Region:
        """The range of possible differences."""
        return self.range[0] - self.range[1], self.range[1] - self.range[0]


@dataclass(frozen=True)
class Evidence:
    """All measurements that verdicts are based on; every array has one entry for each of `seeds`.

    `values[arm, metric]` is nan where the trial did not finish or came to no finite number, but a trial that diverged
    has what was measured before its training; there is none for a metric that an arm does not have. `classes[arm]`
    names the environment class of each trial (without an entry: one class). `losses[arm]` has a hash of all losses of
    each finished trial, and `changes[arm]` the settings in which the arm differs from the baseline, each with its
    value.
    `evaluated[arm]`: what its trials were evaluated on, by evaluation set; nothing where that was not kept.
    `censored`: the metrics that are times to a target, cut off at the budget; `unreached[arm, metric]`: the seeds that
    did not reach it, where any did not.
    `ranges`: the values that a metric can take, where the study says so.
    `unbeaten`: what the baseline has to beat and does not, in words; no claim is judged while there is any.
    `operations[arm]`: counted operations of a training.
    `last_steps[arm]`: the step at which its runs ended, the furthest, of results that were measured elsewhere.
    `absent[arm]`: why none of its trials came to an end, as what may stand behind its name.
    `items[arm]`: its sums over evaluated items, of each seed or as the mean of several. `generated`: items are samples
    and no text. `elsewhere`: it was measured by others, who keep no items.
    """

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Mapping[tuple[str, str], FloatArray]
    finished: Mapping[str, BoolArray]
    diverged: Mapping[str, BoolArray]
    directions: Mapping[str, str]
    classes: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)
    losses: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)
    changes: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    evaluated: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    censored: frozenset[str] = frozenset()
    unreached: Mapping[tuple[str, str], BoolArray] = field(default_factory=dict)
    operations: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    items: Mapping[str, ItemMeans] = field(default_factory=dict)
    generated: bool = False
    ranges: Mapping[str, Region] = field(default_factory=dict)
    unbeaten: tuple[str, ...] = ()
    last_steps: Mapping[str, float] = field(default_factory=dict)
    elsewhere: bool = False

    def range_of(self, metric: str, *values: FloatArray) -> Region:
        """The possible values of a metric: as the study says, or [0, 1] where all `values` are, as shares and rates."""
        share = all(((each >= 0) & (each <= 1)).all() for each in values)
        return self.ranges.get(metric, (0.0, 1.0) if share else UNBOUNDED)

    def restrict(self, seeds: Collection[int], without: Collection[tuple[str, int]] = ()) -> Evidence:
        """The evidence from these seeds only, and not `without` what arms have with a seed."""
        kept = np.isin(np.array(self.seeds, dtype=int), list(seeds))
        rows: dict[str, Any] = {
            name: {key: self._without(key, row, without)[kept] for key, row in getattr(self, name).items()}
            for name in _OF_SEEDS
        }
        return replace(self, seeds=tuple(seed for seed in self.seeds if seed in seeds), **rows)

    def _without(self, key: Any, row: NDArray[Any], without: Collection[tuple[str, int]]) -> NDArray[Any]:
        """A row of an arm, nothing with the seeds that it is without."""
        if not without:
            return row
        arm = key if isinstance(key, str) else key[0]
        gone = [index for index, seed in enumerate(self.seeds) if (arm, seed) in without]
        if not gone:
            return row
        left = row.copy()
        left[gone] = {"f": math.nan, "b": False}.get(row.dtype.kind, "")
        return left

    def items_of(self, arm: str) -> Items:
        """The sums over evaluated items of an arm, as the mean of its finished seeds; nothing where some kept none."""
        return items_of(self.items.get(arm, {}), self._seeds_at(self.finished.get(arm, self._no_seed)))

    def finite_values(self, arm: str, metric: str) -> FloatArray:
        """The finished values of an arm, in the order of the seeds."""
        values = self.seed_values(arm, metric)
        return values[np.isfinite(values)]

    def pairs(self, arm: str, than: str, metric: str) -> PairedValues:
        """The values of both arms where they can be compared seed by seed."""
        x, y = self.seed_values(arm, metric), self.seed_values(than, metric)
        both = np.isfinite(x) & np.isfinite(y)
        same = self.same_class(arm, than)
        x, y = x[both & same], y[both & same]
        seeds, apart = self._seeds_at(both & same), self._seeds_at(both & ~same)
        return PairedValues(x, y, seeds, apart, self.range_of(metric, x, y))

    def mean_difference(self, arm: str, than: str, metric: str, relative: float = 0.0) -> Estimate:
        """The estimate of mean(arm - than), paired by seed; of two means where no seed is shared (`are_unpaired`).

        The `flattering_limits` are given up, so that a mean claim can never favour an arm that lost trials.
        With `relative` r the margin r·|mean(than)| moves with the data: the standard error is then the larger of those
        of `arm - than ± r·than`.
        """
        if self.are_unpaired(arm, than, metric) and not relative:
            estimate = estimates.unpaired_estimate(self.finite_values(arm, metric), self.finite_values(than, metric))
            return estimates.opened(estimate, *self.flattering_limits(difference(arm, than, metric)))
        pairs = self.pairs(arm, than, metric)
        apart = pairs.x - pairs.y
        if self.same_model(arm, than, metric):
            return estimates.SameModelEstimate(n=len(apart))
        estimate = mean_estimate(apart, pairs.bounds)
        if relative and not isinstance(estimate, estimates.UnknownEstimate):
            spreads = [float((apart + sign * relative * pairs.y).std(ddof=1)) for sign in (-1, 1)]
            moving = MeanEstimate(estimate.value, estimate.n, max(spreads) / math.sqrt(estimate.n))
            if moving.standard_error > 0:
                estimate = moving if isinstance(estimate, MeanEstimate) else estimates.WiderEstimate(estimate, moving)
        return estimates.opened(estimate, *self.flattering_limits(difference(arm, than, metric)))

    def are_unpaired(self, arm: str, than: str, metric: str) -> bool:
        """Whether two arms share no seed at which both ended, but have values in one environment class."""
        here, there = self._has(arm, metric), self._has(than, metric)
        if not here.any() or not there.any() or (self.ended(arm) & self.ended(than)).any() or (here & there).any():
            return False
        one_class = np.full(len(self.seeds), "", dtype=object)
        where = {*self.classes.get(arm, one_class)[here], *self.classes.get(than, one_class)[there]}
        return len(where) == 1

    def left_out(self, arm: str, than: str, metric: str) -> dict[str, int]:
        """Arm → seeds with a value that are not compared, because the other arm was not trained with them."""
        if self.are_unpaired(arm, than, metric):
            return {}
        counts = {
            one: int((self._has(one, metric) & ~self.ended(other) & ~self._has(other, metric)).sum())
            for one, other in ((arm, than), (than, arm))
        }
        return {one: count for one, count in counts.items() if count}

    def _has(self, arm: str, metric: str) -> BoolArray:
        return np.isfinite(self.seed_values(arm, metric))

    def same_model(self, arm: str, than: str, metric: str | None) -> bool:
        """Whether two arms trained the same model, so that they agree in a metric (None: in diverging) with every seed.

        Their losses are equal to the last digit with every seed; a metric at its ceiling is not enough. Arms that
        differ in how they are computed alone, such as their kernel, may agree: that is what they are compared for.
        """
        apart = self.settings_apart(arm, than)
        if apart and all(map(is_computation, apart)):
            return False
        here, there = (self.losses.get(each, np.full(len(self.seeds), "", dtype=object)) for each in (arm, than))
        both = self.finished.get(arm, self._no_seed) & self.finished.get(than, self._no_seed)
        both = both & self.same_class(arm, than)
        if not both.any() or not (here[both] == there[both]).all() or not here[both].all():
            return False
        if metric is None:
            return bool((self.diverged[arm] == self.diverged[than]).all())
        pairs = self.pairs(arm, than, metric)
        return bool(len(pairs.x)) and bool((pairs.x == pairs.y).all())

    def settings_apart(self, arm: str, than: str) -> list[str]:
        """The settings in which two arms differ."""
        apart = self.changes.get(arm, frozenset()) ^ self.changes.get(than, frozenset())
        return sorted({leaf for leaf, _ in apart})

    def flattering_limits(self, terms: Sequence[Term], ordered: bool = False) -> tuple[bool, bool]:
        """Whether the limits of a sum below and above would flatter an arm, being only of its survivors.

        With a metric that is better when lower, what an arm with a positive weight lost would raise the sum, which
        opens the limit above. Without a good direction, and where the order of values makes the number (`ordered`),
        both are open, and of times that are mostly cut off (`cut_off`).
        """
        below = above = bool(self.cut_off([(term.name, term.metric) for term in terms]))
        for term in terms:
            if not self.lost(term.name, term.metric).any():
                continue
            direction = self.directions.get(term.metric)
            if not direction or ordered:
                return True, True
            raised = (direction == "lower") == (term.weight > 0)
            below, above = below or not raised, above or raised
        return below, above

    def lost(self, arm: str, metric: str) -> BoolArray:
        """The seeds whose trial gave no number: it diverged, or it finished without a finite value.

        What was measured before the training is there, however it ended.
        """
        ended_without = self.diverged.get(arm, self._no_seed) & ~np.isfinite(self.seed_values(arm, metric))
        return ended_without | self.unmeasured(arm, metric)

    def cut_off(self, of: Collection[tuple[str, str]]) -> list[str]:
        """The arms of (arm, metric) that are times to a target which half of the arm's trials, or more, do not reach.

        The mean of such times, cut off at the budget, says little, and its few other values vary less than their law.
        """
        found = [
            arm
            for arm, metric in of
            if metric in self.censored and 2 * self.unreached_count(arm, metric) >= self._has(arm, metric).sum() > 0
        ]
        return list(dict.fromkeys(found))

    def unreached_count(self, arm: str, metric: str) -> int:
        """The number of trials of an arm that do not reach the target of a time."""
        return int((self.cut_times(arm, metric) & self._has(arm, metric)).sum())

    def cut_times(self, arm: str, metric: str) -> BoolArray:
        """The seeds with which an arm did not reach the target that a metric is the time to."""
        return self.unreached.get((arm, metric), self._no_seed)

    def unmeasured(self, arm: str, metric: str) -> BoolArray:
        """The seeds whose trial finished without a finite value of a metric that the arm has."""
        if (arm, metric) not in self.values:
            return self._no_seed
        return self.finished.get(arm, self._no_seed) & ~np.isfinite(self.seed_values(arm, metric))

    def evaluated_apart(self, arm: str, than: str, metric: str) -> dict[str, tuple[str, str]]:
        """The evaluation sets behind a metric that are not of the same items in both arms, with the items of each.

        A number without a length that others have at each length is of its split's first set, any other of them all.
        """
        here, there = self.evaluated.get(arm, {}), self.evaluated.get(than, {})
        split, _, name = metric.partition("/")
        split, (_, at, length) = "val" if split == "probe" else split, split_moment(name)[0].partition("@")
        of_one_set = at or any(other.startswith(f"{metric}@") for _, other in self.values)
        return {
            each: (", ".join(sorted(here[each])), ", ".join(sorted(there[each])))
            for each in sorted(here.keys() & there.keys())
            if (each == split + at + length if of_one_set else each.partition("@")[0] == split)
            and len(here[each] | there[each]) > 1
        }

    def never_finished(self, arm: str, metric: str) -> bool:
        """Whether trials of the arm diverged and none finished or has a value, which rules it out as the best."""
        ended = self.finished[arm] | np.isfinite(self.seed_values(arm, metric))
        return bool(self.diverged[arm].any()) and not bool(ended.any())

    def seed_values(self, arm: str, metric: str) -> FloatArray:
        """The values of an arm in the order of `seeds`, nan if missing."""
        return self.values.get((arm, metric), np.full(len(self.seeds), math.nan))

    @property
    def _no_seed(self) -> BoolArray:
        return np.zeros(len(self.seeds), dtype=bool)

    def _seeds_at(self, chosen: BoolArray) -> tuple[int, ...]:
        return tuple(seed for seed, yes in zip(self.seeds, chosen, strict=True) if yes)

    def ended(self, arm: str) -> BoolArray:
        """The seeds with which trials of the arm ended."""
        return self.finished.get(arm, self._no_seed) | self.diverged.get(arm, self._no_seed)

    def same_class(self, *arms: str) -> BoolArray:
        """The seeds with which trials of all these arms ran in one environment class."""
        found = [self.classes.get(arm, np.full(len(self.seeds), "", dtype=object)) for arm in arms]
        return np.all([each == found[0] for each in found], axis=0).astype(bool)

    def terms_apart(self, terms: Sequence[Term]) -> set[int]:
        """The seeds that have all values of a sum, which are not of one environment class."""
        values = np.array([self.seed_values(term.name, term.metric) for term in terms])
        same = self.same_class(*(term.name for term in terms))
        return set(self._seeds_at(np.isfinite(values).all(axis=0) & ~same))


def gather(records: Records) -> Evidence:
    """The evidence that the records of a study hold."""
    arms, ranges = records.manifest.possible, records.manifest.ranges
    seeds = tuple(sorted({int(seed) for seed in records.cells["seed"]} | set(records.manifest.seeds)))
    index_of = {seed: index for index, seed in enumerate(seeds)}
    values = {(arm, metric): np.full(len(seeds), math.nan) for _, arm, metric in sorted(records.infinite)}
    for arm, seed, metric, value in records.metrics[["arm", "seed", "metric", "value"]].itertuples(index=False):
        if metric in ranges and not ranges[metric][0] <= value <= ranges[metric][1]:
            raise UsageError(
                f"`ranges` says that {metric} lies from {ranges[metric][0]:g} to {ranges[metric][1]:g}, but {arm} has "
                f"{value:g} with seed {seed}; correct it"
            )
        values.setdefault((arm, metric), np.full(len(seeds), math.nan))[index_of[seed]] = value
    finished, diverged = ({arm: np.zeros(len(seeds), dtype=bool) for arm in arms} for _ in range(2))
    classes = {arm: np.full(len(seeds), "", dtype=object) for arm in arms}
    for arm, seed, status, where in records.cells[["arm", "seed", "status", "environment"]].itertuples(index=False):
        finished[arm][index_of[seed]] = status == "finished"
        diverged[arm][index_of[seed]] = status == "diverged"
        classes[arm][index_of[seed]] = where
    evaluated: dict[str, dict[str, frozenset[str]]] = {}
    for (_, arm, _), sets in records.evaluations.items():
        known = evaluated.setdefault(arm, {})
        for name, items in sets.items():
            known[name] = known.get(name, frozenset()) | {items}
    losses = {arm: np.full(len(seeds), "", dtype=object) for arm in arms}
    for (_, arm, seed), found in records.losses.items():
        losses[arm][index_of[seed]] = found
    unreached: dict[tuple[str, str], BoolArray] = {}
    for _, arm, seed, metric in sorted(records.unreached):
        unreached.setdefault((arm, metric), np.zeros(len(seeds), dtype=bool))[index_of[seed]] = True
    where = records.manifest.condition
    changes = {
        each.arm: frozenset((leaf, value) for leaf, _, value in each.changes)
        for each in records.manifest.fairness
        if where is None or each.condition == where
    }
    unbeaten = tuple(_unbeaten(records.manifest, values, records.directions))
    return Evidence(
        arms, seeds, values, finished, diverged, records.directions, classes, losses, changes, evaluated,
        frozenset(times_of(ways_of(records.manifest.derive, records.manifest.claims))), unreached,
        _operations(records), _absent(records),
        {arm: found for (_, arm), found in records.items.items()}, records.generated,
        ranges, unbeaten, _last_steps(records), records.whole,
    )  # fmt: skip


def _last_steps(records: Records) -> dict[str, float]:
    """Arm → the furthest step that its runs came to, of a table of results where that is known."""
    steps = records.cells.groupby("arm", sort=False)["steps"].max() if records.whole else pd.Series(dtype=float)
    return {str(arm): float(step) for arm, step in steps.items() if not math.isnan(step)}


def _unbeaten(
    manifest: Manifest, values: Mapping[tuple[str, str], FloatArray], directions: Mapping[str, str]
) -> Iterator[str]:
    """Each number of `must_beat` that the baseline's mean over its finished trials is not better than."""
    for metric, numbers in manifest.must_beat.items():
        found = values.get((manifest.baseline, metric), np.full(1, math.nan))
        mean = float(found[np.isfinite(found)].mean()) if np.isfinite(found).any() else math.nan
        for name, value in numbers.items():
            ahead = mean > value if directions.get(metric) == "higher" else mean < value
            if not ahead and not math.isnan(mean):
                yield (
                    f"{NOT_JUDGED}{manifest.baseline} has not beaten {name} in {metric} "
                    f"({mean:.6g}, which has {number_format.stated(value)})"
                )


def _absent(records: Records) -> dict[str, str]:
    """Arm → why it has no result with any seed, of those that are impossible and those that never got to an end."""
    found = {
        arm: f"is impossible: {cut(reason, LONGEST).rstrip('.')}" for arm, reason in records.manifest.impossible.items()
    }
    for arm, rows in records.cells.groupby("arm", sort=False):
        if not rows["status"].isin((FINISHED, DIVERGED)).any():
            first = rows.iloc[0]
            why = ": ".join(filter(None, (str(first["status"]), cut(first["reason"] or "", LONGEST).rstrip("."))))
            found[str(arm)] = f"has no trial that came to an end ({why})"
    return found


def _operations(records: Records) -> dict[str, float]:
    """Arm → counted operations of a training, where they are known."""
    where = records.manifest.condition or ""
    return {each.arm: float(each.flops) for each in records.manifest.fairness if each.condition == where}


def join(by_condition: Mapping[str, Evidence]) -> Evidence:
    """The evidence of all conditions at once; an arm is named with its condition.

    What arms changed, their losses and what they were evaluated on are left out: they are compared within conditions.
    """

    def named(name: str) -> dict[Any, Any]:
        """One field of every condition, whose keys are an arm, or an arm and a metric."""
        return {
            (arm_name(key[0], at), *key[1:]) if isinstance(key, tuple) else arm_name(key, at): value
            for at, each in by_condition.items()
            for key, value in getattr(each, name).items()
        }

    rows: dict[str, Any] = {name: named(name) for name in (*_OF_SEEDS, "operations", "absent", "items", "last_steps")}
    return replace(
        next(iter(by_condition.values())),
        arms=tuple(arm_name(arm, at) for at, each in by_condition.items() for arm in each.arms),
        directions={metric: way for each in by_condition.values() for metric, way in each.directions.items()},
        changes={}, evaluated={},
        unbeaten=tuple(dict.fromkeys(line for each in by_condition.values() for line in each.unbeaten)),
        **{**rows, "losses": {}},
    )  # fmt: skip
