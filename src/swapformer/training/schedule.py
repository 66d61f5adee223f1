"""Learning-rate schedules: the factor on the peak rate as a function of the step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Literal

from swapformer.ranges import Fraction, Natural, Share
from swapformer.results.moments import steps_of
from swapformer.targets import make


class Schedule(ABC):
    """Base of schedules: linear warm-up to 1 over `warmup_steps`, then `after(progress)`.

    Progress would be 1 one step after the last.

    Args:
        warmup_steps: optimiser steps of the warm-up; the first has factor 1/(warmup_steps + 1).
    """

    def __init__(self, *, warmup_steps: Natural) -> None:
        self.warmup_steps = warmup_steps

    def factor(self, step: int, steps: int) -> float:
        """The factor at optimiser step `step`, counted from 0, of `steps`."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        return self.after(min(1.0, (step - self.warmup_steps) / max(1, steps - self.warmup_steps)))

    def longest_warmup(self, steps: int) -> int:
        """The most warm-up steps of `steps` that leave a step at the peak and, where the rate decays, one below it."""
        if self.after(1.0) != self.after(0.0):
            for rest in range(2, steps):
                if self.after((rest - 1) / rest) != self.after(0.0):
                    return steps - rest
            return 0
        return max(0, steps - 1)

    def stable_steps(self, steps: int) -> int:
        """The most first steps of a training of `steps` that are, with the rate of the next, those of any longer one.

        Their factors are those of the warm-up, then 1, and so is that of the step that follows. 0 if none are known.
        """
        return 0

    @abstractmethod
    def after(self, progress: float) -> float:
        """The factor after the warm-up."""


class ConstantSchedule(Schedule):
    """A constant factor of 1 after the warm-up."""

    def after(self, progress: float) -> float:
        return 1.0


class DecaySchedule(Schedule):
    """Base of schedules that decay after the warm-up.

    Args:
        final: the factor at the end, from 0 to 1.
    """

    def __init__(self, *, warmup_steps: Natural, final: Share) -> None:
        super().__init__(warmup_steps=warmup_steps)
        self.final = final


class LinearSchedule(DecaySchedule):
    """Linear decay after the warm-up: 1 − (1 − final) · progress."""

    def after(self, progress: float) -> float:
        return 1 - (1 - self.final) * progress


class CosineSchedule(DecaySchedule):
    """Cosine decay after the warm-up (Loshchilov & Hutter 2016, arXiv:1608.03983).

    factor = final + (1 − final) · ½(1 + cos(π · progress)).
    """

    def after(self, progress: float) -> float:
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


class StableDecaySchedule(DecaySchedule):
    """Warm-up, stable, decay (WSD): a factor of 1 after the warm-up, which falls to `final` in the last part.

    With p the progress within the decay: 1 − (1 − final) · p (linear), or 1 − (1 − final) · √p (sqrt), which Hägele et
    al. (2024, arXiv:2405.18392) find a little better. Until the decay begins, the factor does not depend on the length
    of the training.

    Args:
        decay: the share of the steps after the warm-up that decay.
        shape: linear or sqrt.
    """

    def __init__(
        self, *, warmup_steps: Natural, final: Share, decay: Fraction, shape: Literal["linear", "sqrt"]
    ) -> None:
        super().__init__(warmup_steps=warmup_steps, final=final)
        self.decay, self.shape = decay, shape

    def after(self, progress: float) -> float:
        within = max(0.0, (progress - (1 - self.decay)) / self.decay)
        return 1 - (1 - self.final) * (math.sqrt(within) if self.shape == "sqrt" else within)

    def stable_steps(self, steps: int) -> int:
        rest = range(self.warmup_steps, steps)
        return self.warmup_steps + bisect_left(rest, True, key=lambda step: self.factor(step, steps) != 1) - 1


def branch_step(config: Mapping[str, Any]) -> int:
    """The step after which a trial keeps its state, for longer trainings to begin there; 0 for one that does not.

    That is the last one at which its weights cannot depend on how long it is: see `Schedule.stable_steps`. A trial on
    several devices, one that is folded, and one with callbacks or with probes within its training keeps none: the state
    of others is not in the file, and a callback may ask how long the training is.
    """
    if not config.get("budget", {}).get("branch") or config["callbacks"] or config["measure"]:
        return 0
    watched = any(steps_of(settings) for settings in config["probes"].values())
    if watched or config["trainer"]["devices"] > 1 or config["trainer"]["fold"] is not None:
        return 0
    schedule, steps = make(config["schedule"], Schedule), config["budget"]["steps"]
    found = schedule.stable_steps(steps)
    return found if schedule.warmup_steps < found < steps else 0
