"""Two ways to do the same work, timed in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

from swapformer.errors import UsageError


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
        target: what the project asks for, in words.
        met: whether it was.
    """

    name: str
    unit: str
    ours: float
    theirs: float
    ratio: float
    lowest: float
    highest: float
    rounds: int
    target: str
    met: bool

    def line(self) -> str:
        """One line for people."""
        verdict = "met" if self.met else "missed"
        return (
            f"{self.name}: {self.ours:.3g} against {self.theirs:.3g} {self.unit}, ratio {self.ratio:.3f} "
            f"[{self.lowest:.3f}, {self.highest:.3f}] over {self.rounds} rounds; asked: {self.target}: {verdict}"
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


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


def compare(name: str, unit: str, pairs: list[tuple[float, float]], target: str, met: Callable[[float], bool]) -> Ratio:
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
        met=met(middle),
    )


def require_quiet_machine(force: bool) -> None:
    """Refuse to measure beside other work.

    Raises:
        UsageError: if the load of the last minute exceeds half a core for each core.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2 and not force:
        raise UsageError(
            f"a benchmark needs a quiet machine, but the load of the last minute is {load:.1f} on {cores} cores; "
            "wait, or measure all the same with --force."
        )
