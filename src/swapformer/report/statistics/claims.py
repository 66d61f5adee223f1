"""Claims of a study: which kinds there are, and for which true values each one holds.

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
lies in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "worse", "better", "lower", "higher", "within", "diverges", "reaches", "contrast", "slope", "optimum", "trend",
    "speed_up", "grows",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
OVER_TRIALS: tuple[Kind, ...] = ("optimum",)
"""Kinds with one number for each seed, out of all its trials on an axis; one that diverged has the loss of guessing."""
OVER_LADDER: tuple[Kind, ...] = ("speed_up", "grows")
"""Kinds over the sizes of a ladder; one that an arm does not have is left out."""
BEST = "best"
NEXT = "next"
"""In place of a rung of a ladder: the size behind the largest."""
WITH = " with "


@dataclass(frozen=True)
class Term:
    """One summand of a contrast: a weight times the mean of an arm in a metric; `condition` is empty for “in each”.

    `place`: where it lies on the axis of an optimum.
    """

    weight: float
    arm: str
    metric: str
    condition: str = ""
    place: float = math.nan

    @property
    def name(self) -> str:
        """The arm, with its condition where it has one."""
        return f"{self.arm}{WITH}{self.condition}" if self.condition else self.arm


@dataclass(frozen=True)
class Claim:
    """A hypothesis of a study about one arm, which must hold against every arm in `than`, or about a contrast.

    `margin` is in the metric's units (`relative`: a fraction of the other arm's mean; of rates where rates are
    compared); `of_best` marks `within: {of: best}`; `value` is what `reaches` asks for; `terms` are those of a
    contrast, a slope, a trend (whose weights are ranks) or an optimum (1 and -1), `bounds` its range, or
    that of a share of seeds; `over`: the axis that they lie on, in words; `where`: the rung of a ladder that it is
    about, or `next`. `at`: the conditions of the grid that it is limited to; None for all. `exact`: its metrics are, so
    that arithmetic decides it. `withdrawn`: why it is judged no more; it keeps its share of the error.
    """

    text: str
    kind: Kind
    arm: str
    than: tuple[str, ...]
    metric: str | None
    margin: float
    relative: bool = False
    of_best: bool = False
    value: float = math.nan
    terms: tuple[Term, ...] = ()
    bounds: tuple[float, float] | None = None
    at: tuple[str, ...] | None = None
    exact: bool = False
    over: str = ""
    where: str = ""
    withdrawn: str = ""

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms that the claim is about."""
        return tuple(dict.fromkeys(term.arm for term in self.terms)) if self.terms else (self.arm, *self.than)

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
        return self.kind in ("worse", "better", "lower", "higher", "within") and not self.exact

    @property
    def of_values(self) -> bool:
        """Whether it is about values of metrics, and not about shares of seeds or how several trials compare."""
        return bool(self.metrics) and self.kind not in ("diverges", "reaches", *OVER_TRIALS)

    @property
    def counts_diverged(self) -> bool:
        """Whether a trial that diverged counts: as one that does not reach, or with the loss of guessing."""
        return self.kind in ("diverges", "reaches", *OVER_TRIALS)

    @property
    def needs_direction(self) -> bool:
        """Whether the claim is about better and worse, which needs a metric with a good direction."""
        return self.kind in ("worse", "better", "reaches") or self.of_best

    def margin_width(self, reference: float) -> float:
        """The margin in the units of the metric, given the mean of the arm that is compared with."""
        return self.margin * abs(reference) if self.relative else self.margin

    def region(self, direction: str | None, reference: float) -> tuple[float, float]:
        """The open interval of true values, or of differences arm - than, in which the claim holds.

        `best` is at least as good as any arm, so a difference to it has only one sign: that region has one edge.
        """
        if self.bounds is not None:
            return self.bounds
        margin = self.margin_width(reference)
        worse_is_above = direction != "higher"
        if self.kind == "within" and not self.of_best:
            return -margin, margin
        if self.kind == "within":
            return (-math.inf, margin) if worse_is_above else (-margin, math.inf)
        more = ("higher", "diverges", "reaches")
        above = self.kind in more or self.kind == ("worse" if worse_is_above else "better")
        return (margin, math.inf) if above else (-math.inf, -margin)
