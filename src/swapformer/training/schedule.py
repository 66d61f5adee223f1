"""Learning-rate schedules: the factor on the peak rate as a function of the step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod


class Schedule(ABC):
    """Linear warm-up to 1 over `warmup_steps`, then `after(progress)` with progress from 0 to 1 at the last step.

    Args:
        warmup_steps: optimiser steps of the warm-up; the first has factor 1/(warmup_steps + 1).

    Raises:
        ValueError: if it is negative.
    """

    def __init__(self, *, warmup_steps: int) -> None:
        if warmup_steps < 0:
            raise ValueError(f"`schedule.warmup_steps` must be at least 0, but it is {warmup_steps}.")
        self.warmup_steps = warmup_steps

    def factor(self, step: int, steps: int) -> float:
        """The factor at optimiser step `step`, counted from 0, of `steps`."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        return self.after(min(1.0, (step - self.warmup_steps) / max(1, steps - self.warmup_steps)))

    @abstractmethod
    def after(self, progress: float) -> float:
        """The factor after the warm-up."""


class Constant(Schedule):
    """1 after the warm-up."""

    def after(self, progress: float) -> float:
        return 1.0


class Linear(Schedule):
    """1 − (1 − final) · progress.

    Args:
        final: the factor at the end.
    """

    def __init__(self, *, warmup_steps: int, final: float) -> None:
        super().__init__(warmup_steps=warmup_steps)
        self.final = final

    def after(self, progress: float) -> float:
        return 1 - (1 - self.final) * progress


class Cosine(Schedule):
    """final + (1 − final) · ½(1 + cos(π · progress)) (Loshchilov & Hutter 2016, arXiv:1608.03983).

    Args:
        final: the factor at the end.
    """

    def __init__(self, *, warmup_steps: int, final: float) -> None:
        super().__init__(warmup_steps=warmup_steps)
        self.final = final

    def after(self, progress: float) -> float:
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))
