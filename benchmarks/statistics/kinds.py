"""Errors and coverage of the claims that are not about the difference of two means.

Each case is a claim whose edge is exactly the true value, judged alone by the report's own estimators, trial by trial:
nothing is worked out a second time here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from benchmarks.statistics.laws import FloatArray, correlated
from benchmarks.statistics.shares import ALPHA
from swapformer.report.derive import TrialNumbers, derive
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import is_within, parts_of_level, region_p_values
from swapformer.report.statistics.evidence import Evidence

LOSS, SCORE, SLOPE, STEPS = "val/loss", "val/score", "slope(val/loss)", "derived/steps"
DIRECTIONS = {LOSS: "lower", SCORE: "higher", STEPS: "lower"}
CONDITIONS = {"x": {"k": "x"}, "y": {"k": "y"}}
DEPTHS = (3, 6, 12, 24)
DEEP = {f"k={depth}": {"k": str(depth)} for depth in DEPTHS}
Values = Mapping[tuple[str, str], FloatArray]
"""Of (arm, metric), one for each seed."""


@dataclass(frozen=True)
class Case:
    """A claim, the true value that is its edge, and what its seeds follow: `draw(generator, n)`."""

    name: str
    claim: Claim
    truth: float
    draw: Callable[[np.random.Generator, int], Values]


def cases() -> Iterator[Case]:
    """Every kind of claim beside the difference of two means."""

    def case(
        name: str,
        truth: float,
        draw: Callable[[np.random.Generator, int], Values],
        conditions: Mapping[str, Mapping[str, str]] = CONDITIONS,
        **body: Any,
    ) -> Case:
        raw = [{"text": name, **body}]
        return Case(name, parse(raw, "abcdef", [LOSS, SCORE, STEPS], conditions)[0], truth, draw)

    for points in (4, 6, 8):
        body = {"arm": "a", "metric": LOSS, "above": 0.5}
        yield case(f"`slope` over {points} points", 0.5, partial(_power_laws, points), slope=body)
    even, uneven = np.ones(6), np.geomspace(1, 4, 6)
    for name, correlation, spreads in (
        ("correlation .65", 0.65, even),
        ("uncorrelated", 0.0, even),
        ("uncorrelated, standard deviations 4 : 1", 0.0, uneven),
    ):
        draw = partial(_normal, correlation, spreads)
        for what, weights in (("2a − b − c", (2, -1, -1)), ("interaction", (1, -1, -1, 1))):
            body = {"weights": dict(zip("abcd", weights, strict=False)), "metric": LOSS, "above": 0.0}
            yield case(f"`contrast` {what}, {name}", 0.0, draw, contrast=body)
    crossed = {
        f"{arm} with {at}": sign for sign, arm, at in ((1, "a", "x"), (-1, "b", "x"), (-1, "a", "y"), (1, "b", "y"))
    }
    body = {"weights": crossed, "metric": LOSS, "above": 0.0}
    yield case("`contrast` of conditions, uncorrelated", 0.0, _crossed, contrast=body)
    body = {"weights": {"a": {LOSS: 1, SCORE: -1}}, "above": 0.0}
    yield case("`contrast` of two metrics", 0.0, _two_metrics, contrast=body)
    for name, step in (("zero", 0.0), ("half a standard deviation", 0.5), ("a standard deviation", 1.0)):
        truth = float(np.mean([2 * special.ndtr(step * gap / math.sqrt(2)) - 1 for gap in (1, 1, 1, 2, 2, 3)]))
        body = {"arms": list("abcd"), "metric": LOSS, "above": truth}
        yield case(f"`trend`, steps of {name}", truth, partial(_steps_up, step), trend=body)
    one = {"arm": "a", "metric": SCORE, "value": 1.0}
    for share in (0.6, 0.9):
        yield case(f"`reaches` a share of {share}", share, partial(_rates, share, 0.0), reaches={**one, "share": share})
    for here, there in ((0.5, 0.5), (0.7, 0.5)):
        margin = here - there
        body = {**one, "than": "b", "margin": margin}
        yield case(f"`reaches` in {here} against {there}", margin, partial(_rates, here, there), reaches=body)
    body = {"over": dict(zip("abcd", DEPTHS, strict=True)), "metric": LOSS, "above": -0.5}
    yield case("`slope` over four arms", -0.5, partial(_falling, "abcd"), slope=body)
    body = {"arm": "a", "over": "k", "metric": LOSS, "above": -0.5}
    yield case(
        "`slope` over four conditions", -0.5, partial(_falling, [f"a with {at}" for at in DEEP]), DEEP, slope=body
    )
    body = {"over": {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}, "metric": LOSS, "above": 1.2}
    yield case("`optimum` of four rates", 1.2, _bowls, optimum=body)
    for share in (0.2, 0.5):
        draw = partial(_rates, share, 0.0)
        yield case(f"`diverges` in a share of {share}", share, draw, diverges={"arm": "a", "above": share})
    censored = (("a fiftieth", 4.0, 6.0), ("a sixth", 6.0, 8.0), ("half", 8.0, 10.0), ("five sixths", 9.0, 12.0))
    for name, here, there in censored:
        margin = _mean_time(there) - _mean_time(here)
        body = {"arm": "a", "than": "b", "metric": STEPS, "margin": margin}
        draw = partial(_times, here, there)
        yield case(f"`time_to`, {name} of an arm censored", -margin, draw, lower=body)


def case_shares(case: Case, n: int, studies: int, seed: int) -> dict[str, float]:
    """The shares of studies with a false verdict, and of 95 % intervals that cover the truth."""
    generator = np.random.default_rng([seed, n])
    found = [outcome(case.claim, gathered(case.draw(generator, n), n), case.truth) for _ in range(studies)]
    sides, covered = zip(*found, strict=True)
    return {
        "false supported": sides.count(1) / studies,
        "false refuted": sides.count(-1) / studies,
        "95 % covers": float(np.mean(covered)),
    }


def outcome(claim: Claim, evidence: Evidence, truth: float) -> tuple[int, bool]:
    """The verdict on a claim that stands alone (1 supported, -1 refuted, 0 undecided); whether 95 % limits cover."""
    (found,) = claim.estimates(evidence)
    estimate, region = found.estimate, found.region
    inside, outside = region_p_values(estimate, region)
    supports, refutes = parts_of_level(region)
    covers = estimate.lower(0.025) <= truth <= estimate.upper(0.025)
    if region[0] < estimate.value < region[1]:
        return int(is_within(supports * inside, ALPHA)), covers
    return -int(is_within(refutes * outside, ALPHA)), covers


def gathered(values: Values, n: int) -> Evidence:
    """The evidence of n seeds that all ended: with a score of 1 they diverged, where the claim is about that."""
    arms = tuple(dict.fromkeys(arm for arm, _ in values))
    yes = np.ones(n, dtype=bool)
    diverged = {arm: values.get((arm, SCORE), np.zeros(n)) == 1 for arm in arms}
    cut_off = {key: row == BUDGET for key, row in values.items() if key[1] == STEPS}
    return Evidence(
        arms, tuple(range(n)), values, dict.fromkeys(arms, yes), diverged, DIRECTIONS,
        censored=frozenset({STEPS}), unreached=cut_off,
    )  # fmt: skip


def _power_laws(points: int, g: np.random.Generator, n: int) -> Values:
    """Slopes, as the report derives them, of losses n^.5 with noise on points, on whole trials and on exponents."""
    log_n = np.log(2.0) * np.arange(3, 3 + points)
    logs = (0.5 + g.normal(0, 0.1, (n, 1))) * log_n + g.normal(0, 0.5, (n, 1)) + g.normal(0, 0.1, (n, points))
    empty, way = pd.DataFrame({"metric": [], "step": [], "value": []}), {SLOPE: {"slope": LOSS}}
    trials = [{f"{LOSS}@{2 ** (3 + at)}": float(v) for at, v in enumerate(np.exp(row))} for row in logs]
    slopes = [derive(way, TrialNumbers(trial, empty, {}, 0), [])[SLOPE] for trial in trials]
    return {("a", SLOPE): np.array(slopes)}


def _normal(correlation: float, spreads: FloatArray, g: np.random.Generator, n: int) -> Values:
    rows = spreads[:, None] * correlated(correlation, g, (1, len(spreads), n))[0]
    return {(arm, LOSS): row for arm, row in zip("abcdef", rows, strict=True)}


def _crossed(g: np.random.Generator, n: int) -> Values:
    names = [f"{arm} with {at}" for at in CONDITIONS for arm in "ab"]
    return {(name, LOSS): g.normal(0, spread, n) for name, spread in zip(names, (1, 1, 2, 4), strict=True)}


def _two_metrics(g: np.random.Generator, n: int) -> Values:
    shared = g.normal(size=n)
    return {("a", LOSS): shared + g.normal(size=n), ("a", SCORE): shared + g.normal(0, 0.3, n)}


def _falling(names: Sequence[str], g: np.random.Generator, n: int) -> Values:
    """Logarithms of losses that fall with depth^-.5, with noise that arms share and noise of their own."""
    shared = g.normal(0, 0.1, n)
    logs = {
        name: -0.5 * math.log(depth) + shared + g.normal(0, 0.05, n) for name, depth in zip(names, DEPTHS, strict=True)
    }
    return {(name, f"log({LOSS})"): values for name, values in logs.items()}


def _bowls(g: np.random.Generator, n: int) -> Values:
    """Losses at 1, 2, 4 and 8, parabolas in the logarithm whose lowest place has the mean 1.2 over seeds."""
    lowest = g.normal(1.2, 0.2, n)
    return {
        (arm, f"capped({LOSS})"): 2 + (np.log(x) - lowest) ** 2 for arm, x in zip("abcd", (1, 2, 4, 8), strict=True)
    }


def _steps_up(step: float, g: np.random.Generator, n: int) -> Values:
    return {(arm, LOSS): g.normal(step * rank, 1, n) for rank, arm in enumerate("abcd")}


def _rates(here: float, there: float, g: np.random.Generator, n: int) -> Values:
    return {(arm, SCORE): (g.random(n) < rate).astype(float) for arm, rate in (("a", here), ("b", there))}


BUDGET = 10


def _times(here: float, there: float, g: np.random.Generator, n: int) -> Values:
    """Trials learn at a normal time of standard deviation 2, seen at the next of ten evaluations, or never."""
    times = {arm: np.clip(np.ceil(g.normal(mean, 2, n)), 1, BUDGET) for arm, mean in (("a", here), ("b", there))}
    return {(arm, STEPS): row for arm, row in times.items()}


def _mean_time(mean: float) -> float:
    """The mean of such times: the sum over evaluations of the probability that the trial still learns there."""
    return 1 + float(sum(special.ndtr((mean - at) / 2) for at in range(1, BUDGET)))
