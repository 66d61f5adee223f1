"""Coverage of speed-ups, of their growth and of the next size, and false growth, on ladders of known answer.

A baseline's losses lie on E + A / C^α, an arm's where the baseline would be
with S times its computation. Seeds are normal, the two arms correlate over them by .65, and log S is a line over log C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.statistics.laws import FloatArray
from swapformer.report.statistics.ladder import ArmLadder
from swapformer.report.statistics.scaling_law import Unfit

STEP = 4.0
"""How many times the computation of the rung before each has."""


@dataclass(frozen=True)
class LadderCase:
    """Ladders of so many rungs: log S is `level` + `slope` · log(C / C₁), the noise of a seed `noise` at each rung.

    `spread`: noise at the largest rung over that of the smallest.
    """

    rungs: int
    noise: float
    level: float
    slope: float
    spread: float = 1.0

    @property
    def computation(self) -> FloatArray:
        """Operations of a training at each rung."""
        return np.asarray(1.2e14 * STEP ** np.arange(self.rungs))

    def losses(self, factor: FloatArray) -> FloatArray:
        """The true losses of trainings with `factor` times the operations."""
        return np.asarray(1.5 + 2 * (self.computation * factor / 1.2e14) ** -0.12)


def ladder_cases() -> Mapping[str, LadderCase]:
    """The ladders that are simulated, by name."""
    found = {}
    for rungs in (4, 6):
        for noise in (0.005, 0.02):
            found[f"{rungs} rungs, noise {noise:g}"] = LadderCase(rungs, noise, math.log(1.2), 0.0)
    found["4 rungs, no speed-up"] = LadderCase(4, 0.01, 0.0, 0.0)
    found["4 rungs, growing"] = LadderCase(4, 0.01, 0.0, 0.1)
    found["4 rungs, noise a third at the largest"] = LadderCase(4, 0.02, math.log(1.2), 0.0, spread=1 / 3)
    return found


def draw(case: LadderCase, seeds: int, generator: np.random.Generator) -> tuple[ArmLadder, FloatArray]:
    """A ladder, and the true log S at its points."""
    computation = case.computation
    true = case.level + case.slope * np.log(computation / computation[0])
    shape = (len(true), seeds)
    noise = case.noise * np.geomspace(1, case.spread, len(true))[:, None]
    common = math.sqrt(0.65) * generator.normal(size=shape)
    here, base = (
        losses[:, None] + noise * (common + math.sqrt(0.35) * generator.normal(size=shape))
        for losses in (case.losses(np.exp(true)), case.losses(np.ones(len(true))))
    )
    return ArmLadder(tuple(map(str, range(len(true)))), here, base, computation, computation), true


def ladder_shares(case: LadderCase, seeds: int, studies: int, seed: int) -> dict[str, float]:
    """How often intervals cover, and how often growth or shrinking is seen where there is none."""
    generator = np.random.default_rng([seed, seeds])
    counts = dict.fromkeys(("smallest", "largest", "slope", "next", "grows", "shrinks", "refused"), 0)
    for _ in range(studies):
        found, true = draw(case, seeds, generator)
        beyond = case.level + case.slope * math.log(found.next_computation / case.computation[0])
        try:
            parts = {
                "smallest": (found.at_rung(0), true[0]),
                "largest": (found.at_rung(len(true) - 1), true[-1]),
                "slope": (found.trend(), case.slope),
                "next": (found.next_size(), beyond),
            }
        except Unfit:
            counts["refused"] += 1
            continue
        for name, (estimate, truth) in parts.items():
            lower, upper = estimate.limits
            counts[name] += lower <= truth <= upper
        lower, upper = parts["slope"][0].limits
        counts["grows"] += lower > 0
        counts["shrinks"] += upper < 0
    fitted = studies - counts["refused"]
    shares = {name: count / (studies if name == "refused" else max(fitted, 1)) for name, count in counts.items()}
    covers = {f"covers: {name}": shares[name] for name in ("smallest", "largest", "slope", "next")}
    return {**covers, **{name: shares[name] for name in ("grows", "shrinks", "refused")}}
