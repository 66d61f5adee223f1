"""Measurements: a ratio of two sides that take turns, a slope against a size, or a number held against a target."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median

from swapformer.errors import UsageError

Act = Callable[[], object]
"""Some work, done once."""


@dataclass(frozen=True)
class Ratio:
    """The comparison of two sides that took turns.

    `name`: what was measured. `ours`, `theirs`: medians over the `rounds`, in `unit`. `ratio`: median over the rounds
    of ours / theirs; `lowest`, `highest`: of the rounds' ratios. `target`: the project's aim in words, None where the
    number alone is of interest; `met`: whether it was reached, None without a target.
    """

    name: str
    unit: str
    ours: float
    theirs: float
    ratio: float
    lowest: float
    highest: float
    rounds: int
    target: str | None
    met: bool | None

    def line(self) -> str:
        """One line for people."""
        return (
            f"{self.name}: {self.ours:.3g} against {self.theirs:.3g} {self.unit}, ratio {self.ratio:.3f} "
            f"[{self.lowest:.3f}, {self.highest:.3f}] over {self.rounds} rounds{_target_text(self.target, self.met)}"
        )


def _target_text(target: str | None, met: bool | None) -> str:
    """The end of a line: the target, and whether it was met."""
    return "" if target is None else f"; asked: {target}: {'met' if met else 'missed'}"


def timed(act: Act, settle: Act | None = None, *, seconds: float = 0.05) -> float:
    """Milliseconds of one act, repeated for at least `seconds`; `settle` waits for a device to finish."""
    since, acts = time.perf_counter(), 0
    while True:
        act()
        acts += 1
        if settle is not None:
            settle()
        if (spent := time.perf_counter() - since) >= seconds:
            return 1000 * spent / acts


def alternating(
    ours: Act, theirs: Act, rounds: int, settle: Act | None = None, *, seconds: float = 0.05
) -> list[tuple[float, float]]:
    """Milliseconds of an act of either side, by turns, after two of each that do not count."""
    for act in (ours, theirs) * 2:
        act()
    return in_turn(lambda: timed(ours, settle, seconds=seconds), lambda: timed(theirs, settle, seconds=seconds), rounds)


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> list[tuple[float, float]]:
    """Measure both sides once per round, ours first in even rounds and second in odd ones."""
    pairs = []
    for index in range(rounds):
        if index % 2:
            second = theirs()
            pairs.append((ours(), second))
        else:
            first = ours()
            pairs.append((first, theirs()))
    return pairs


def compare(
    name: str,
    unit: str,
    pairs: list[tuple[float, float]],
    target: str | None = None,
    met: Callable[[float], bool] | None = None,
) -> Ratio:
    """Medians of both sides and of their ratio round by round."""
    ratios = [ours / theirs for ours, theirs in pairs]
    ours, theirs = map(median, zip(*pairs, strict=True))
    middle = median(ratios)
    reached = None if met is None else met(middle)
    return Ratio(name, unit, ours, theirs, middle, min(ratios), max(ratios), len(pairs), target, reached)


@dataclass(frozen=True)
class Slope:
    """The growth of a quantity with a size: the slope of a line through both logarithms.

    `name`: what was measured; `unit`: of the values. `sizes`, `values`: the values at each size. `slope`: 1 where it
    grows as the size does, 2 where as its square. `target`, `met`: as for a ratio.
    """

    name: str
    unit: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    slope: float
    target: str | None
    met: bool | None

    def line(self) -> str:
        """One line for people."""
        points = ", ".join(f"{value:.3g} at {size}" for size, value in zip(self.sizes, self.values, strict=True))
        return f"{self.name}: {points} {self.unit}, slope {self.slope:.2f}{_target_text(self.target, self.met)}"


def growth(name: str, unit: str, measured: Mapping[int, float], most: float) -> Slope:
    """The slope of the values that were measured at each size; the target is at most `most`."""
    x, y = ([math.log(value) for value in values] for values in (measured.keys(), measured.values()))
    slope = linear_regression(x, y).slope
    return Slope(name, unit, tuple(measured), tuple(measured.values()), slope, f"slope ≤ {most}", slope <= most)


@dataclass(frozen=True)
class Figure:
    """A number, `value` in `unit`.

    `name`: what was measured. `target`: the project's aim in words, None where the number alone is of interest; `met`:
    whether it was reached, None without a target.
    """

    name: str
    value: float
    unit: str
    target: str | None = None
    met: bool | None = None

    def line(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.value:.3g} {self.unit}{_target_text(self.target, self.met)}"


def peak_memory() -> float:
    """The largest resident memory of this process so far, in megabytes; it never falls."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's getrusage starts from the parent's peak
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes


def require_quiet_machine(force: bool) -> None:
    """Refuse to measure while other work runs: at a load of more than half a core for each core."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2 and not force:
        raise UsageError(
            f"a benchmark needs a quiet machine, but the load of the last minute is {load:.1f} on {cores} cores; wait, "
            "or measure all the same with --force."
        )
