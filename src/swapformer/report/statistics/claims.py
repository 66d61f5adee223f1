"""Claims of a study: what each one says, and for which true values it holds.

    worse, better   {arm, than, metric, margin}            for metrics with a good direction
    lower, higher   {arm, than, metric, margin}            for any metric; the only ones for probes
    within          {arm, of, metric, margin | relative}   “as good as”; `of` is an arm or `best`
    diverges        {arm, than, margin | RANGE}            more often, as a difference of rates
                    {arm, RANGE}                           the share of the seeds that diverge
    reaches         {arm, metric, value, share | RANGE}    more than this share of the seeds reach the value
                    {arm, than, metric, value, margin | RANGE}  more of them than of another arm's, as above
    contrast        {weights, metric, RANGE}               Σ weight · mean(arm) lies in the range
    slope           {arm, than, metric, RANGE}             of log metric@n over log n, per trial; `than` may be left out
                    {arm, than, metric, over: KEY, RANGE}  of log metric over log KEY, a key of the grid, per seed
                    {arms, metric, over: KEY, RANGE}       or one that the arms set; `over` may be {arm: number, …} too
    optimum         {arm, than, metric, RANGE}             the logarithm of the setting with the lowest loss, per seed:
                                                           of the learning rates of the grid, or an axis of arms
    trend           {arms, metric, RANGE}                  Kendall's τ between the arms' order and the metric, per seed
    speed_up        {arm, than, metric, where, RANGE}      of a ladder: times the computation that `than` would need for
                                                           the arm's loss, at a rung (the largest) or the `next` size
    grows           {arm, than, metric, RANGE}             the slope of its logarithm over that of the computation

RANGE is one of above: x, below: x, between: [x, y]. `weights` have a number for each arm, or a mapping of metrics to
numbers; in a grid an arm may be `ARM with CONDITION`. `at: {key: value}` beside a claim limits it to those conditions,
and `withdrawn: WHY` takes it back: it is shown as such, and stays in the family whose error the claims share.

Every claim is a *region* of a true value, most often the difference arm - than; a verdict asks whether the interval
lies in it. Each kind is a subclass of `Claim` (`comparisons`, `contrasts`, `ladder_claims`), which reads its fields,
makes its estimates and says it in words; nothing else knows which kinds there are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from swapformer.report import number_format
from swapformer.report.statistics.claim_fields import Fields, Term
from swapformer.report.statistics.estimates import Estimate, Region

if TYPE_CHECKING:
    from swapformer.report.statistics.evidence import Evidence


_OPPOSITES = {"better": "worse", "worse": "better", "higher": "lower", "lower": "higher"}


@dataclass(frozen=True)
class ClaimEstimate:
    """One estimate of a claim, with the region of true values in which the claim holds against it.

    `than`: the arm that it is compared with, empty if missing. `usual`: the 95 % limits shown beside it.
    """

    than: str
    estimate: Estimate
    region: Region
    usual: Region


@dataclass(frozen=True)
class Claim(ABC):
    """A hypothesis of a study about one arm, which must hold against every arm in `than`, or about a sum of `terms`.

    `margin` is in the metric's units (`relative`: a fraction of the other arm's mean; of rates where rates are
    compared); `of_best` marks `within: {of: best}`; `value` is what `reaches` asks for; `terms` are those of a
    contrast, a slope, a trend (whose weights are ranks) or an optimum (1 and -1), `bounds` its range, or
    that of a share of seeds; `over`: the axis that they lie on, in words; `where`: the rung of a ladder that it is
    about, or `next`. `at`: the conditions of the grid that it is limited to; None for all. `exact`: its metrics are, so
    that arithmetic decides it. `withdrawn`: why it is judged no more; it keeps its share of the error.

    The fields are the same for every kind, since looks remember a digest of them.
    """

    KINDS: ClassVar[tuple[str, ...]]
    """What a study file calls it."""
    KEYS: ClassVar[tuple[str, ...]]
    """The fields that it may have there."""
    NEEDED: ClassVar[tuple[str, ...]] = ("arm", "than", "metric")
    LOST: ClassVar[str] = "not favoured"
    """What becomes of an arm's trials that came to no number."""
    of_values: ClassVar[bool] = True
    """Whether it is about values of metrics, and not about shares of seeds or how several trials compare."""
    counts_diverged: ClassVar[bool] = False
    """Whether a trial that diverged counts: as one that does not reach, or with the loss of guessing."""

    text: str
    kind: str
    arm: str
    than: tuple[str, ...]
    metric: str | None
    margin: float
    relative: bool = False
    of_best: bool = False
    value: float = math.nan
    terms: tuple[Term, ...] = ()
    bounds: Region | None = None
    at: tuple[str, ...] | None = None
    exact: bool = False
    over: str = ""
    where: str = ""
    withdrawn: str = ""

    @classmethod
    @abstractmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        """The claim that a study file writes as `kind: raw`. Raises `UsageError` with what would be right."""

    @abstractmethod
    def estimates(self, evidence: Evidence) -> Sequence[ClaimEstimate]:
        """The estimates, one for each arm that the claim must hold against; empty where nothing can be estimated."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The estimated quantity, in words: `2·h16 − h8`."""

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms that the claim is about."""
        return tuple(dict.fromkeys(term.arm for term in self.terms)) if self.terms else (self.arm, *self.than)

    @property
    def names(self) -> tuple[str, ...]:
        """Its arms as evidence names them: with their condition where the claim compares conditions."""
        return tuple(dict.fromkeys(term.name for term in self.terms)) if self.terms else self.arms

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that the claim is about; none for `diverges`."""
        own = () if self.metric is None else (self.metric,)
        return tuple(dict.fromkeys(term.metric for term in self.terms)) or own

    @property
    def spans(self) -> bool:
        """Whether it compares conditions of the grid, so that it is judged once and not in each."""
        return any(term.condition for term in self.terms)

    @property
    def of_means(self) -> bool:
        """Whether it is about the difference of two means."""
        return False

    @property
    def needs_direction(self) -> bool:
        """Whether the claim is about better and worse, which needs a metric with a good direction."""
        return False

    @property
    def is_about_zero(self) -> bool:
        """Whether its only edge is 0, so that both verdicts share its level."""
        if self.bounds is not None:
            return [edge for edge in self.bounds if math.isfinite(edge)] == [0.0]
        return self.margin == 0

    def cells(self, condition: str, compared: Sequence[str]) -> set[tuple[str, str]]:
        """The arms that it waits for, each with its condition; `compared`: those that it was held against."""
        if self.terms:
            return {(term.arm, term.condition or condition) for term in self.terms}
        return {(arm, condition) for arm in (self.arm, *(compared or self.than))}

    def region(self, direction: str | None, reference: float) -> Region:
        """The open interval of true values, or of differences arm - than, in which the claim holds.

        `reference`: the mean of the arm that it is compared with.
        """
        assert self.bounds is not None, "a claim without a margin has a range"
        return self.bounds

    def judged_names(self, evidence: Evidence) -> Sequence[str]:
        """Those of its names that limit the verdict."""
        return self.names

    def is_missing(self, evidence: Evidence) -> bool:
        """Whether an arm that it cannot do without could not be built."""
        return any(name not in evidence.arms for name in self.names)

    def diverged(self, name: str, evidence: Evidence) -> int:
        """With how many seeds an arm diverged without a value that the claim is about."""
        return int(max((evidence.diverged[name] & evidence.lost(name, each)).sum() for each in self.metrics))

    def notes(self, evidence: Evidence) -> list[str]:
        """Notes that only claims of this kind have."""
        return []

    def lost(self, name: str, evidence: Evidence) -> str:
        """The treatment of an arm's trials that gave no number."""
        return self.LOST

    def flattering_limits(self, than: str, evidence: Evidence) -> tuple[bool, bool]:
        """Whether the limits below and above would flatter an arm that lost trials, or has few times."""
        return False, False

    def summands(self, than: str) -> Sequence[Term] | None:
        """The means that it is the sum of; None where it is no sum of means."""
        return None

    @property
    def assertion(self) -> str:
        """The exact claim: `h1 is worse than h8 in val/loss, by more than 0.01`."""
        assert self.bounds is not None, "a claim without a margin has a range"
        return f"{self.subject} {range_text(self.bounds)}"

    @property
    def subject(self) -> str:
        """The subject of a claim with a range: `slope of a over n in val/loss is`."""
        what = "" if len(self.metrics) > 1 else f" in {self.metric}"
        return f"{self.label}{what} is"

    @property
    def size(self) -> str:
        """The margin, in words."""
        margin = self.margin
        return f"{number_format.stated(100 * margin)} %" if self.relative else number_format.stated(margin)

    @property
    def threshold(self) -> str:
        """The threshold that a limit is held against: `more than 0.01`."""
        if self.bounds is not None:
            return range_text(self.bounds)
        return f"more than {self.size if self.margin else 0}"

    @property
    def comparative(self) -> str:
        """The word that says in which direction arms differ, such as `worse`; empty where a range is claimed."""
        return "" if self.bounds is not None else self.kind

    @property
    def opposite(self) -> str:
        """The opposite of `comparative`; empty if missing."""
        return _OPPOSITES.get(self.kind, "")


def range_text(bounds: Region) -> str:
    """A range in words: `between 0.1 and 0.2`."""
    low, high = bounds
    if math.isinf(low):
        return f"below {number_format.stated(high)}"
    above = number_format.stated(low)
    return f"above {above}" if math.isinf(high) else f"between {above} and {number_format.stated(high)}"
