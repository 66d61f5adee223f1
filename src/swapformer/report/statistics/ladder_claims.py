"""Claims about a ladder: the effective speed-up of an arm at a size, or how it grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from swapformer.errors import quote, suggest
from swapformer.report.statistics.claim_fields import RANGES, Fields, Term
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.contrasts import SumClaim
from swapformer.report.statistics.estimates import Estimate, UnknownEstimate, factor
from swapformer.results.arms import RUNG

if TYPE_CHECKING:
    from swapformer.report.statistics.evidence import Evidence
    from swapformer.report.statistics.ladder import ArmLadder

NEXT = "next"
"""In place of a rung of a ladder: the size behind the largest."""


@dataclass(frozen=True)
class SpeedUpClaim(SumClaim):
    """The factor of its computation that another arm would need for the arm's loss, at a rung or at the next size.

    Where no law is fitted nothing is known, and `notes` say why.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("speed_up",)
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "than", "metric", "where", *RANGES)

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        if RUNG not in fields.factors:
            raise fields.fail(f"`{kind}` is about sizes, so the study needs a `ladder`")
        arm, metric, bounds = fields.arm(raw["arm"]), fields.metric(raw["metric"], kind), fields.range(raw, kind)
        (than, *more) = fields.others(raw["than"], "than", arm)
        if more:
            raise fields.fail(f"`{kind}` is against one arm; make a claim for each")
        rungs = fields.along(RUNG)
        terms = [Term(sign, who, metric, at) for at in rungs for sign, who in ((-1.0, arm), (1.0, than))]
        where = cls.place(fields, raw, rungs, bounds[1])
        return cls(text, kind, arm, (), metric, 0.0, terms=tuple(terms), bounds=bounds, over="size", where=where)

    @classmethod
    def place(cls, fields: Fields, raw: Mapping[str, Any], rungs: Sequence[str], most: float) -> str:
        """The condition that it is about, or `next`; `most`: the upper end of its range."""
        known = [fields.conditions[at][RUNG] for at in rungs]
        wanted = str(raw.get("where", known[-1]))
        if wanted != NEXT and known.count(wanted) != 1:
            hint = suggest(wanted, known)
            raise fields.fail(f"`where` must be {NEXT} or one rung, {', '.join(known)}, not {quote(wanted)}{hint}")
        if most <= 0:
            raise fields.fail("a speed-up is a factor above 0: none could be in that range")
        return wanted if wanted == NEXT else rungs[known.index(wanted)]

    @property
    def rungs(self) -> list[str]:
        """The conditions that it goes over."""
        return list(dict.fromkeys(term.condition for term in self.terms))

    def ladder(self, evidence: Evidence) -> ArmLadder:
        """Its two arms over the rungs. Raises `Unfit`."""
        from swapformer.report.statistics.ladder import arm_ladder  # late: claims are read without scipy

        arm, than = self.arms
        return arm_ladder(evidence, arm, than, self.metrics[0], self.rungs)

    def estimate(self, evidence: Evidence) -> Estimate:
        from swapformer.report.statistics.scaling_law import Unfit  # late: claims are read without scipy

        try:
            return self.number(self.ladder(evidence))
        except Unfit:
            return UnknownEstimate(n=len(evidence.seeds))

    def _exact(self, evidence: Evidence) -> Estimate:
        return self.estimate(evidence)  # a law is fitted to exact losses too

    def number(self, ladder: ArmLadder) -> Estimate:
        """The speed-up. Raises `Unfit`."""
        return factor(ladder.next_size() if self.where == NEXT else ladder.at_rung(ladder.rungs.index(self.where)))

    def flattering_limits(self, than: str, evidence: Evidence) -> tuple[bool, bool]:
        below, above = super().flattering_limits(than, evidence)
        either = self.where == NEXT and (below or above)  # small sizes weigh against the line's end
        return below or either, above or either

    def notes(self, evidence: Evidence) -> list[str]:
        from swapformer.report.statistics.scaling_law import Unfit  # late: claims are read without scipy

        try:
            ladder = self.ladder(evidence)
            _ = ladder.law
            every = ladder.log_speed_ups(range(ladder.seeds)) if ladder.seeds else np.zeros(0)
            return [
                f"with {at} {self.arms[0]} has a loss that {self.arms[1]} reaches at no size, by its law"
                for at, value in zip(ladder.rungs, every, strict=False)
                if math.isinf(value)
            ]
        except Unfit as error:
            return [str(error)]

    @property
    def label(self) -> str:
        arm, than = self.arms
        return f"speed-up of {arm} over {than} at {self.where}"


@dataclass(frozen=True)
class GrowsClaim(SpeedUpClaim):
    """The slope of the logarithm of the speed-up over that of the computation: above 0 it grows with size."""

    KINDS: ClassVar[tuple[str, ...]] = ("grows",)
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "than", "metric", *RANGES)
    ORDERED = True

    @classmethod
    def place(cls, fields: Fields, raw: Mapping[str, Any], rungs: Sequence[str], most: float) -> str:
        return ""

    def number(self, ladder: ArmLadder) -> Estimate:
        return ladder.trend()

    @property
    def label(self) -> str:
        arm, than = self.arms
        return f"slope of the log speed-up of {arm} over {than}"
