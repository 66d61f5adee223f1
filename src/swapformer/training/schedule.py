"""Learning-rate schedules: the factor on the peak rate as a function of the step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

from swapformer.ranges import Fraction, Natural, Share


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
