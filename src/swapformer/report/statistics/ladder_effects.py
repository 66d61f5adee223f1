"""The difference that an arm makes at each rung of a ladder, and the line that it follows over the computation.

A line needs three rungs: any two lie on one. It is drawn only where the differences from it are no larger than those
between seeds explain, contrast by contrast at 1 % together, as a scaling law is (`scaling_law`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from swapformer.report import number_format
from swapformer.report.statistics.estimates import FloatArray, mean_estimate
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.scaling_law import REFUSED
from swapformer.results.arms import arm_name

Interval = tuple[float, float, float]
"""A number with its 95 % limits; not corrected for several comparisons."""
FEWEST_RUNGS = 3


@dataclass(frozen=True)
class EffectLine:
    """A difference over the base-2 logarithm of the computation: `slope` is what each doubling adds."""

    middle: float
    height: float
    slope: Interval

    def at(self, computation: float | FloatArray) -> FloatArray:
        """The difference at so much computation."""
        return self.height + self.slope[0] * (np.log2(np.asarray(computation, dtype=float)) - self.middle)


@dataclass(frozen=True)
class ArmEffect:
    """The difference of an arm to the baseline at each rung, smallest first, and its line, or `why` there is none."""

    arm: str
    rungs: Mapping[str, Interval]
    line: EffectLine | None
    why: str

    def text(self, baseline: str, metric: str) -> str:
        """The effect in a sentence."""
        (smallest, first), (largest, last) = [list(self.rungs.items())[index] for index in (0, -1)]
        course = f"{number_format.interval_text(*first, signed=True)} with {smallest}"
        course += f", {number_format.interval_text(*last, signed=True)} with {largest}"
        each = number_format.interval_text(*self.line.slope, signed=True) if self.line else ""
        trend = f"each doubling of the operations adds {each}" if self.line else f"no line, since {self.why}"
        return f"{self.arm} − {baseline} in {metric}: {course}; {trend}."


def arm_effect(
    arm: str, baseline: str, metric: str, computation: Mapping[str, float], evidence: Evidence
) -> ArmEffect | None:
    """The effect of an arm over rungs, each with the baseline's computation; None where no rung has both."""
    rungs: dict[str, Interval] = {}
    for at in computation:
        estimate = evidence.mean_difference(arm_name(arm, at), arm_name(baseline, at), metric)
        if math.isfinite(estimate.value):
            rungs[at] = (estimate.value, *estimate.limits)
    if not rungs:
        return None
    line, why = None, ""
    try:
        line = _line(arm, baseline, metric, {at: computation[at] for at in rungs}, evidence)
    except _NoLine as error:
        why = str(error)
    return ArmEffect(arm, rungs, line, why)


class _NoLine(Exception):
    """The reason why there is no line, in words."""


def _line(arm: str, baseline: str, metric: str, rungs: Mapping[str, float], evidence: Evidence) -> EffectLine:
    if len(set(rungs.values())) < FEWEST_RUNGS or not all(0 < each < math.inf for each in rungs.values()):
        raise _NoLine(f"a line needs {FEWEST_RUNGS} rungs of different computation")
    names = [arm_name(who, at) for at in rungs for who in (arm, baseline)]
    if any(evidence.lost(name, metric).any() for name in names):
        raise _NoLine("some trials gave no number")
    apart = np.array(
        [evidence.seed_values(arm_name(arm, at), metric) - evidence.seed_values(arm_name(baseline, at), metric)
         for at in rungs]
    ).T  # fmt: skip
    apart = apart[np.isfinite(apart).all(axis=1) & evidence.same_class(*names)]
    if len(apart) < 2:
        raise _NoLine("fewer than two seeds have all rungs")
    x = np.log2(list(rungs.values()))
    if (p := _misfit(apart, x)) < REFUSED:
        raise _NoLine(f"the rungs do not lie on one (p = {p:.2g})")
    slopes = mean_estimate(apart @ (x - x.mean()) / ((x - x.mean()) ** 2).sum())
    return EffectLine(float(x.mean()), float(apart.mean()), (slopes.value, *slopes.limits))


def _misfit(apart: FloatArray, x: FloatArray) -> float:
    """The p-value of the differences [seeds, rungs] from a line: the smallest of its contrasts', times their number.

    Each contrast is orthogonal to all lines, so that its mean over seeds is 0 where the rungs lie on one.
    """
    basis, _ = np.linalg.qr(np.vander(x - x.mean(), len(x), increasing=True))
    found = apart @ basis[:, 2:]
    n = len(found)
    spread = found.std(axis=0, ddof=1) / math.sqrt(n)
    means = np.abs(found.mean(axis=0))
    equal = spread <= 1e-12 * np.abs(apart).max(initial=1e-300)  # seeds without any spread
    t = np.where(
        equal,
        np.where(means <= 1e-9 * np.abs(apart).max(initial=1e-300), 0.0, np.inf),
        means / np.where(equal, 1, spread),
    )
    return float(min(1.0, 2 * len(t) * special.stdtr(n - 1, -t).min(initial=1.0)))
