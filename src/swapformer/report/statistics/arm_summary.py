"""Summaries of arms: mean, interval, errors, and the paired comparison with the baseline, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from swapformer.report import number_format
from swapformer.report.records import Records
from swapformer.report.statistics.estimates import UNBOUNDED, FloatArray, mean_estimate
from swapformer.report.statistics.evidence import Evidence


@dataclass(frozen=True)
class Comparison:
    """The difference arm - baseline in one metric.

    `lower`, `upper`: its 95 % interval, uncorrected (t, but where all differences are the same), and open on a side
    that would flatter an arm that lost trials. `paired`: by seed, as everywhere but where the arms share none.
    `individual`: the differences, seed by seed.
    """

    difference: float
    lower: float
    upper: float
    pairs: int
    paired: bool
    individual: FloatArray

    @property
    def text(self) -> str:
        return number_format.value_text(self.difference, self.lower, self.upper, signed=True)

    @property
    def interval_text(self) -> str:
        return number_format.limits_text(self.difference, self.lower, self.upper, signed=True)

    @property
    def full_text(self) -> str:
        """`−0.143 [−0.165, −0.121]`; a dash where no seed has it."""
        if not self.pairs:
            return number_format.DASH
        return number_format.difference_text(self.difference, (self.lower, self.upper))


@dataclass(frozen=True)
class Summary:
    """One arm in one metric over its finished trials: the mean with its 95 % t interval, and two errors.

    `seed_error` = sd / √n; `evaluation_error`: the root mean square of the trials' own evaluation errors.
    """

    arm: str
    metric: str
    mean: float
    lower: float
    upper: float
    n: int
    seed_error: float
    evaluation_error: float
    comparison: Comparison | None

    @property
    def text(self) -> str:
        return number_format.value_text(self.mean, self.lower, self.upper)

    @property
    def interval_text(self) -> str:
        return number_format.limits_text(self.mean, self.lower, self.upper)

    @property
    def full_text(self) -> str:
        """`1.234 [1.221, 1.247]`; a dash without a finished trial."""
        return f"{self.text} {self.interval_text}" if self.n else number_format.DASH

    @property
    def paired(self) -> Comparison | None:
        """The comparison with the baseline, where any seed is paired."""
        return self.comparison if self.comparison is not None and self.comparison.pairs else None

    @property
    def errors_text(self) -> str:
        """The two standard errors, seeds first."""
        errors = (self.seed_error, self.evaluation_error)
        digits = number_format.decimals(max((error for error in errors if error > 0), default=math.nan))
        return " / ".join(number_format.number(error, digits) for error in errors)


@dataclass(frozen=True)
class ArmRow:
    """One row of the report's table: the arm, its trials by status, its summaries by metric, and its costs."""

    arm: str
    is_baseline: bool
    counts: Mapping[str, int]
    summaries: Mapping[str, Summary]
    parameters: float
    non_position: float
    seconds: float
    steps: float
    tokens: float

    @property
    def trials_text(self) -> str:
        """The number of finished trials, and of those in other statuses: `6 (2 diverged)`."""
        return f"{self.counts.get('finished', 0)}" + (f" ({self.others})" if self.others else "")

    @property
    def others(self) -> str:
        """The number of trials of each status but finished: `2 diverged, 1 missing`."""
        return ", ".join(f"{n} {status}" for status, n in self.counts.items() if n and status != "finished")


def compare(arm: str, than: str, metric: str, evidence: Evidence) -> Comparison:
    """The comparison of two arms in one metric."""
    pairs = evidence.pairs(arm, than, metric)
    estimate = evidence.mean_difference(arm, than, metric)
    count = len(pairs.x) if estimate.paired else estimate.n
    return Comparison(estimate.value, *estimate.limits, count, estimate.paired, pairs.x - pairs.y)


def summarise(records: Records, evidence: Evidence, metrics: Sequence[str]) -> list[ArmRow]:
    """The rows of the report's table: one for each arm that could be built, in the study's order."""
    manifest = records.manifest
    errors = records.metrics.groupby(["arm", "metric"])["standard_error"].apply(lambda e: math.sqrt((e**2).mean()))
    by_arm = records.cells.groupby("arm")
    total_seconds, sizes = by_arm["seconds"].sum(min_count=1), by_arm[["total", "non_position"]].mean()
    lengths = records.cells[records.cells["status"] == "finished"].groupby("arm")[["steps", "tokens"]].mean()
    rows = []
    for arm in evidence.arms:
        summaries = {
            metric: _summary(arm, metric, manifest.baseline, evidence, float(errors.get((arm, metric), math.nan)))
            for metric in metrics
        }
        for metric in summaries.keys() & set(manifest.exact):
            summaries[metric] = _exact(summaries[metric])
        counts = records.cells.loc[records.cells["arm"] == arm, "status"].value_counts()
        rows.append(
            ArmRow(
                arm, arm == manifest.baseline, {str(s): int(n) for s, n in counts.items()}, summaries,
                float(sizes["total"].get(arm, math.nan)), float(sizes["non_position"].get(arm, math.nan)),
                float(total_seconds.get(arm, math.nan)),
                float(lengths["steps"].get(arm, math.nan)), float(lengths["tokens"].get(arm, math.nan)),
            )
        )  # fmt: skip
    return rows


def _summary(arm: str, metric: str, baseline: str, evidence: Evidence, evaluation_error: float) -> Summary:
    compared = arm != baseline and baseline in evidence.arms
    comparison = compare(arm, baseline, metric, evidence) if compared else None
    return replace(plain_summary(evidence, arm, metric), evaluation_error=evaluation_error, comparison=comparison)


def _exact(summary: Summary) -> Summary:
    """The summary of a metric that no seed changes: its numbers have no intervals."""
    compared = summary.comparison
    if compared is not None:
        compared = replace(compared, lower=-math.inf, upper=math.inf)
    return replace(summary, lower=-math.inf, upper=math.inf, comparison=compared)


def plain_summary(evidence: Evidence, arm: str, metric: str) -> Summary:
    """The summary of one arm in one metric, without a comparison."""
    values = evidence.finite_values(arm, metric)
    n = len(values)
    bounds = evidence.range_of(metric, values) if n else UNBOUNDED
    mean = float(values.mean()) if n else math.nan
    seed_error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Summary(arm, metric, mean, *mean_estimate(values, bounds).limits, n, seed_error, math.nan, None)
