"""A ladder: how what an arm brings goes with size, and what it would bring at the next size.

At each rung the *effective speed-up* of an arm is how many times its computation the baseline would need for its loss,

    S = C⁻¹(loss of the arm) / C⁻¹(loss of the baseline) · cost of the baseline / cost of the arm,

with C⁻¹ the inverse of the law that is fitted to the baseline over all rungs (`scaling_law`), so that the baseline
itself has exactly 1, and the costs as counted operations of a training. Over the ladder log S is a line over log C of
the rungs; its slope says whether the speed-up grows, and one step further it predicts that of the next size.

Everything is a smooth function of the losses of all rungs with each seed. Intervals are those of Student's t over the
seeds' pseudo-values (the jackknife: each seed is taken out of every rung and the law is fitted again), since with few
seeds percentiles of a bootstrap are too narrow. The benchmark `statistics ladders` holds them to known answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from swapformer.report.statistics.estimates import Estimate, FloatArray, MeanEstimate, UnknownEstimate
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.scaling_law import REFUSED, ScalingLaw, Unfit, fit, misfit
from swapformer.results.arms import arm_name


@dataclass(frozen=True)
class ArmLadder:
    """An arm against the baseline over the rungs that both have, from the cheapest on.

    `rungs`: their names. `here`, `base`: losses [rungs, seeds], of seeds that both have on all of them. `own` and
    `computation`: counted operations of the arm's and the baseline's trainings there.
    """

    rungs: tuple[str, ...]
    here: FloatArray
    base: FloatArray
    own: FloatArray
    computation: FloatArray

    @property
    def seeds(self) -> int:
        """The number of seeds that both have on every rung."""
        return int(self.base.shape[1])

    @cached_property
    def law(self) -> ScalingLaw:
        """The baseline's law. Raises `Unfit` where it is refused."""
        law = fit(self.base.mean(axis=1), self.computation)
        wrong = misfit(law, self.base, self.computation)
        if wrong < REFUSED:
            raise Unfit(
                f"the baseline's losses do not follow E + A / C^α: the residuals have p = {wrong:.2g}; look at its "
                "trainings (a learning rate that does not fit every size), or leave rungs out"
            )
        return law

    def log_speed_ups(self, kept: Sequence[int]) -> FloatArray:
        """log S at each rung from the means over some seeds; inf where the baseline's law does not reach the loss.

        Raises `Unfit` where the baseline itself lies below the floor of its law: then the law tells no computation.
        """
        base, here = (losses[:, list(kept)].mean(axis=1) for losses in (self.base, self.here))
        inverse = fit(base, self.computation).log_computation
        reached = np.array([(inverse(float(h)), inverse(float(b))) for h, b in zip(here, base, strict=True)])
        if below := [rung for rung, known in zip(self.rungs, np.isfinite(reached[:, 1]), strict=True) if not known]:
            raise Unfit(
                f"the baseline's own loss at {', '.join(below)} lies below E, the floor of its law, which tells "
                "no computation for it; the rungs have come to a plateau: add smaller ones, or leave these out"
            )
        found: FloatArray = reached[:, 0] - reached[:, 1] + np.log(self.computation / self.own)
        return found

    @cached_property
    def _replicates(self) -> tuple[FloatArray, list[FloatArray]]:
        """log S at each rung from all seeds, and with each seed left out. Raises `Unfit`."""
        _ = self.law  # a law that is refused gives no number
        n = self.seeds
        every = self.log_speed_ups(range(n))
        return every, [self.log_speed_ups([seed for seed in range(n) if seed != out]) for out in range(n)]

    def estimate(self, of: Callable[[FloatArray], float]) -> Estimate:
        """The estimate of a number that is made of the rungs' log S, by the jackknife over seeds. Raises `Unfit`."""
        n = self.seeds
        if n < 2:
            return UnknownEstimate(n=n)
        every, left_out = self._replicates
        with np.errstate(invalid="ignore"):  # what the law never reaches is infinite
            whole, without = of(every), np.array([of(each) for each in left_out])
            values = n * whole - (n - 1) * without
        error = float(values.std(ddof=1)) / math.sqrt(n) if np.isfinite(values).all() else 0.0
        if not math.isfinite(whole) or error <= 0:
            return UnknownEstimate(whole, n)
        return MeanEstimate(whole, n, error)

    def at_rung(self, rung: int) -> Estimate:
        """log S at a rung."""
        return self.estimate(lambda found: float(found[rung]))

    def trend(self) -> Estimate:
        """The slope of log S over log C: above 0 the speed-up grows with size."""
        return self.estimate(lambda found: _line(np.log(self.computation), found)[1])

    def next_size(self) -> Estimate:
        """log S at the next size, as far beyond the largest as sizes lie apart on average."""
        logs = np.log(self.computation)
        return self.estimate(lambda found: _at(_line(logs, found), self.next_computation))

    @property
    def next_computation(self) -> float:
        """The operations of the baseline's training at the next size."""
        c = self.computation
        return float(c[-1] * (c[-1] / c[0]) ** (1 / (len(c) - 1))) if len(c) > 1 else math.nan


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Intercept and slope of least squares; not finite where y is not."""
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred**2).sum())
    return float(y.mean()) - slope * float(x.mean()), slope


def _at(line: tuple[float, float], computation: float) -> float:
    return line[0] + line[1] * math.log(computation)


def arm_ladder(evidence: Evidence, arm: str, than: str, metric: str, conditions: Sequence[str]) -> ArmLadder:
    """An arm against another over some conditions of evidence that was joined, from the cheapest rung on.

    Raises `Unfit` where nothing can be compared: both arms must have values at every size, listed smallest first.
    """
    if evidence.directions.get(metric) != "lower":
        raise Unfit(f"a law over size is that of a loss, where lower is better, but {metric} is not one")
    for at in conditions:
        for who in (arm, than):
            if not len(evidence.finite_values(arm_name(who, at), metric)):
                why = evidence.absent.get(arm_name(who, at), "has no value with any seed")
                raise Unfit(f"both arms must have values at every size, but with {at} {who} {why}; leave the size out")
    names = list(conditions)
    costs = [np.array([evidence.operations.get(arm_name(who, at), math.nan) for at in names]) for who in (arm, than)]
    if not np.isfinite(costs).all():
        raise Unfit("the operations of some rung cannot be counted")
    for smaller, larger in pairwise(range(len(names))):
        if costs[1][smaller] > costs[1][larger]:
            raise Unfit(
                f"a ladder lists its sizes smallest first, but {than} takes more operations with {names[smaller]} than "
                f"with {names[larger]}; list them in their order"
            )
    rows = [np.array([evidence.seed_values(arm_name(who, at), metric) for at in names]) for who in (arm, than)]
    kept = np.isfinite(rows[0]).all(axis=0) & np.isfinite(rows[1]).all(axis=0)
    kept &= evidence.same_class(*(arm_name(who, at) for who in (arm, than) for at in names))
    return ArmLadder(tuple(names), rows[0][:, kept], rows[1][:, kept], costs[0], costs[1])
