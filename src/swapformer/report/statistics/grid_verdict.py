"""One claim over all conditions of a grid: does its verdict hold everywhere?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.verdicts import Verdict

Overall = Literal["supported", "refuted", "depends", "undecided"]
OUTCOMES: tuple[Overall, ...] = ("supported", "refuted", "depends", "undecided")


@dataclass(frozen=True)
class Everywhere:
    """A claim with its verdict in each condition, by the condition's name.

    The verdicts share one family-wise error, so what they say together is as sure as each of them.
    """

    claim: Claim
    verdicts: Mapping[str, Verdict]

    @property
    def outcome(self) -> Overall:
        """`depends`: supported in one condition and refuted in another; `undecided`: open in any, unless it depends."""
        outcomes = {verdict.outcome for verdict in self.verdicts.values()}
        if {"supported", "refuted"} <= outcomes:
            return "depends"
        return outcomes.pop() if len(outcomes) == 1 else "undecided"

    @property
    def text(self) -> str:
        """Whether the verdict holds everywhere, in words; empty where there is no grid."""
        if len(self.verdicts) < 2:
            return ""
        by_outcome: dict[str, list[str]] = {}
        for condition, verdict in self.verdicts.items():
            by_outcome.setdefault(verdict.outcome, []).append(condition)
        if len(by_outcome) == 1:
            where = "both" if len(self.verdicts) == 2 else f"all {len(self.verdicts)}"
            return f"{next(iter(by_outcome)).capitalize()} in {where} conditions."
        parts = [f"{outcome} with {'; '.join(by_outcome[outcome])}" for outcome in OUTCOMES if outcome in by_outcome]
        held = "The verdict depends on the condition: " if self.outcome == "depends" else "Not decided everywhere: "
        return f"{held}{', '.join(parts)}."


def everywhere(claims: Sequence[Claim], verdicts: Mapping[str, Sequence[Verdict]]) -> list[Everywhere]:
    """Each claim over all conditions."""
    return [
        Everywhere(claim, {condition: found[index] for condition, found in verdicts.items()})
        for index, claim in enumerate(claims)
    ]
