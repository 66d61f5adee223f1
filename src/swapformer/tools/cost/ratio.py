"""Two ways to do the same work, timed in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

from swapformer.errors import UsageError

Act = Callable[[], object]
"""Some work, done once."""


@dataclass(frozen=True)
class Ratio:
    """How two sides compare.

    Attributes:
        name: what was measured.
        unit: of the two medians.
        ours, theirs: medians over the rounds.
        ratio: median over the rounds of ours / theirs.
        lowest, highest: of the rounds' ratios.
        rounds: how many.
        target: what the project asks for, in words; None where the number alone is of interest.
        met: whether it was; None without a target.
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
            f"[{self.lowest:.3f}, {self.highest:.3f}] over {self.rounds} rounds{asked(self.target, self.met)}"
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def asked(target: str | None, met: bool | None) -> str:
    """The end of a line: what was asked for, and whether it was met."""
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
    middle = median(ratios)
    return Ratio(
        name=name,
        unit=unit,
        ours=median(pair[0] for pair in pairs),
        theirs=median(pair[1] for pair in pairs),
        ratio=middle,
        lowest=min(ratios),
        highest=max(ratios),
        rounds=len(pairs),
        target=target,
        met=None if met is None else met(middle),
    )


def require_quiet_machine(force: bool) -> None:
    """Refuse to measure beside other work.

    Raises:
        UsageError: if the load of the last minute exceeds half a core for each core.
    """
    if loaded() and not force:
        raise UsageError(
            f"a benchmark needs a quiet machine, but the load of the last minute is {os.getloadavg()[0]:.1f} on "
            f"{os.cpu_count()} cores; wait, or measure all the same with --force."
        )


def loaded() -> bool:
    """Whether the load of the last minute exceeds half a core for each core."""
    return os.getloadavg()[0] > (os.cpu_count() or 1) / 2
