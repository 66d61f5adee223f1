"""The grammar: what each claim asserts, and the one clear line that each mistake gets."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swapformer.errors import UsageError
from swapformer.report.statistics.claim_grammar import KINDS, parse
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.verdicts import judge
from swapformer.study.spec import claims_of
from swapformer.study.spec import parse as parse_spec
from swapformer.yaml_reader import parse_yaml

ARMS = ("h1", "h8", "h16")
METRICS = ("val/loss", "val/accuracy", "probe/head_similarity")


GRID = {f"size={size}, lr={lr}": {"size": size, "lr": lr} for size in ("s", "m") for lr in ("1", "2")}


def claim(**body: Any) -> Claim:
    return parse([{"text": "said", **body}], ARMS, METRICS, GRID)[0]


def settings(**changes: Any) -> dict[str, Any]:
    return {"arm": "h1", "than": "h8", "metric": "val/loss", "margin": 0.01} | changes


def contrast(**changes: Any) -> dict[str, Any]:
    return {"contrast": {"weights": {"h1": 1, "h8": -1}, "metric": "val/loss", "above": 0} | changes}


def reaches(**changes: Any) -> dict[str, Any]:
    return {"reaches": {"arm": "h1", "metric": "val/accuracy", "value": 0.9, "share": 0.5} | changes}


def test_a_claim_may_be_limited_to_conditions() -> None:
    assert claim(worse=settings()).at is None
    assert claim(worse=settings(), at={"size": "m"}).at == ("size=m, lr=1", "size=m, lr=2")
    assert claim(worse=settings(), at={"size": ["s", "m"], "lr": 2}).at == ("size=s, lr=2", "size=m, lr=2")


def test_a_contrast_names_arms_conditions_and_metrics() -> None:
    assert [term.weight for term in claim(**contrast(weights={"h16": 2, "h8": -1, "h1": -1})).terms] == [2, -1, -1]
    spanning = claim(**contrast(weights={"h1 with size=s, lr=1": 1, "h1 with size=m, lr=1": -1}))
    assert spanning.spans and [term.condition for term in spanning.terms] == ["size=s, lr=1", "size=m, lr=1"]
    two = claim(contrast={"weights": {"h1": {"val/loss": 1, "val/accuracy": -2}}, "between": [0, 1]})
    assert two.metrics == ("val/loss", "val/accuracy") and two.bounds == (0, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (contrast(weights={"h1": 1, "h9": -1}), "unknown arm 'h9'; known: h1, h16, h8"),
        (contrast(weights={"h1": 0}), "must not all be 0"),
        (contrast(weights={}), "`weights` must map arms to numbers"),
        (contrast(weights={"h1": "x"}), "`weight of h1` must be a finite number, but is 'x'"),
        (contrast(weights={"h1 with size=x": 1}), "the grid has no condition 'size=x'"),
        (contrast(weights={"h1 with size=s, lr=1": 1, "h8": -1}), "a condition for every arm, or for none"),
        (contrast(metric="val/los"), "does not measure 'val/los'; did you mean 'val/loss'"),
        (contrast(below=1), "exactly one of above, below, between, got above and below"),
        ({"contrast": {"weights": {"h1": 1}, "metric": "val/loss", "between": [1, 0]}}, "two growing numbers"),
        (reaches(value=1.5), "`value` must be one that val/accuracy can take, from 0 to 1, but is 1.5"),
        (
            reaches(metric="val/loss", value=-0.1),
            "`value` must be one that val/loss can take, from 0 to inf, but is -0.1",
        ),
        (reaches(value=math.inf), "`value` must be a finite number, but is inf"),
        (reaches(share=1), "from 0 to below 1, but is 1.0"),
        (reaches(than="h8"), "needs a `margin` (0 or more), got share"),
        (
            {"reaches": {"arm": "h1", "metric": "val/accuracy", "value": 0.9}},
            "needs `share`, or `than` with a `margin`",
        ),
        (reaches(metric="probe/head_similarity", value=1), "has no good direction"),
        ({"trend": {"arms": ["h1", "h8"], "metric": "val/loss", "above": 0}}, "at least three different arms"),
        ({"trend": {"arms": list(ARMS), "metric": "val/loss", "above": 1}}, "lies from -1 to 1"),
        ({"slope": {"arm": "h1", "metric": "val/los", "above": 0}}, "over the lengths n of metric@n"),
        ({"first": {"arm": "h1", "than": "h8", "metric": "val/loss", "margin": 1}}, "`first` is gone: say `reaches`"),
        ({"lr_sensitivity": {"arm": "h1", "metric": "val/loss"}}, "`lr_sensitivity` is gone: say `optimum`"),
        ({"worse": settings(), "at": {"sise": "s"}}, "the grid has no key 'sise'; did you mean 'size'"),
        ({"worse": settings(), "at": {"size": "l"}}, "the grid has no size=l"),
        ({**contrast(weights={"h1 with size=s, lr=1": 1}), "at": {"size": "s"}}, "exclude each other"),
    ],
)
def test_a_mistake_in_the_newer_kinds_is_told_in_one_line(body: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        claim(**body)
    assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) <= 300


@pytest.mark.parametrize(
    ("kind", "direction", "region"),
    [
        ("worse", "lower", (0.01, math.inf)),
        ("worse", "higher", (-math.inf, -0.01)),
        ("better", "lower", (-math.inf, -0.01)),
        ("better", "higher", (0.01, math.inf)),
        ("lower", "higher", (-math.inf, -0.01)),
        ("higher", None, (0.01, math.inf)),
    ],
)
def test_a_claim_is_a_region_of_differences(kind: str, direction: str | None, region: tuple[float, float]) -> None:
    assert claim(**{kind: settings()}).region(direction, 2.0) == region


def test_within_an_arm_has_two_edges_and_within_the_best_has_one() -> None:
    arm = claim(within={"arm": "h16", "of": "h8", "metric": "val/loss", "margin": 0.02})
    assert arm.region("lower", 2.0) == (-0.02, 0.02)
    best = claim(within={"arm": "h16", "of": "best", "metric": "val/loss", "relative": 0.01})
    assert best.than == ("h1", "h8")
    assert best.region("lower", -2.0) == (-math.inf, 0.02)
    assert best.region("higher", 2.0) == (-0.02, math.inf)


def test_losses_of_other_tokens_are_not_subtracted() -> None:
    """Their difference is about the text: the targets beyond a length are others than those within it."""
    within, beyond = "probe/loss_within@64", "probe/loss_beyond@64"
    body = {"text": "t", "contrast": {"weights": {"h1": {beyond: 1, within: -1}}, "below": 0}}
    with pytest.raises(UsageError, match="are losses of other tokens"):
        parse([body], ARMS, [within, beyond])
    assert parse([{**body, "withdrawn": "other tokens"}], ARMS, [within, beyond])
    assert parse([{"text": "t", "lower": {"arm": "h1", "than": "h8", "metric": beyond, "margin": 0}}], ARMS, [beyond])


def test_diverges_needs_no_metric_and_than_may_be_a_list() -> None:
    assert claim(diverges={"arm": "h1", "than": ["h8", "h16"], "margin": 0}).than == ("h8", "h16")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"worse": settings(arm="h61")}, "unknown arm 'h61'; did you mean 'h1'"),
        ({"worse": settings(than="h9")}, "unknown arm 'h9'"),
        ({"worse": settings(than=[])}, "`than` must name at least one arm"),
        ({"worse": settings(than="h1")}, "compares the arm 'h1' with itself"),
        ({"worse": settings(than=["h8", "h8"])}, "`than` must name each arm once, but 'h8' is there twice"),
        ({"contrast": {"weights": {"h1": 1}, "above": 0}}, "`contrast` needs `metric`, one of val/loss"),
        ({"worse": settings(metric="val/los")}, "does not measure 'val/los'; did you mean 'val/loss'"),
        ({"worse": settings(metric=None)}, "`worse` needs `metric`, one of val/loss"),
        ({"worser": settings()}, "unknown kind 'worser'; did you mean 'worse'"),
        ({}, "needs exactly one of worse"),
        ({"worse": settings(), "better": settings()}, "needs exactly one of worse"),
        (
            {"worse": {"arm": "h1", "than": "h8", "metric": "val/loss"}},
            "`worse` needs a `margin` (0 or more), got none",
        ),
        ({"worse": {"arm": "h1", "metric": "val/loss", "margin": 0}}, "`worse` needs `than`"),
        ({"worse": settings(margn=1)}, "`worse` has no key 'margn'; did you mean 'margin'"),
        ({"worse": settings(margin=-1)}, "must be a number of at least 0, but it is -1"),
        (
            {"worse": settings(margin="1e-3")},
            "number of at least 0, but it is '1e-3'; write 1e-3 without quotes",
        ),
        ({"worse": settings(margin=True)}, "must be a number of at least 0, but it is True"),
        ({"worse": settings(margin=math.nan)}, "must be a number of at least 0, and finite, but it is nan"),
        ({"worse": "h1"}, "`worse` must be a mapping"),
        ({"worse": settings(metric="probe/head_similarity")}, "no good direction; use `lower`, `higher` or `within`"),
        ({"within": {"arm": "h1", "of": "bst", "metric": "val/loss", "margin": 1}}, "unknown arm 'bst'"),
        (
            {"within": {"arm": "h1", "of": "h8", "metric": "val/loss"}},
            "exactly one of `margin` and `relative`, got none",
        ),
        (
            {"within": {"arm": "h1", "of": "h8", "metric": "val/loss", "margin": 1, "relative": 1}},
            "exactly one of `margin` and `relative`, got margin and relative",
        ),
        ({"within": {"arm": "h1", "of": "h8", "metric": "val/loss", "margin": 0}}, "must be above 0"),
        ({"diverges": {"arm": "h1", "than": "h8", "margin": 1}}, "must be below 1"),
        (
            {"diverges": {"arm": "h1", "than": "h8", "margin": 0, "above": 0}},
            "needs a `margin` (0 or more), got margin and above",
        ),
    ],
)
def test_a_wrong_claim_is_named_with_its_number_and_text(body: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse([{"text": "first", "worse": settings()}, {"text": "said", **body}], ARMS, METRICS)
    assert message in str(error.value)
    assert "claim 2 ('said')" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("raw", ["text", {"worse": settings()}, {"text": " ", "worse": settings()}])
def test_a_claim_without_text_is_refused(raw: Any) -> None:
    with pytest.raises(UsageError, match="claim 1: "):
        parse([raw], ARMS, METRICS)


def test_claims_that_are_no_list_are_refused() -> None:
    with pytest.raises(UsageError, match="must be a list"):
        parse({"text": "said"}, ARMS, METRICS)  # type: ignore[arg-type]


def test_the_guide_has_an_example_of_every_kind_and_each_is_judged() -> None:
    """docs/guides/claims.md: every claim there parses and gets an estimate from made-up numbers."""
    text = (Path(__file__).parents[3] / "docs" / "guides" / "claims.md").read_text(encoding="utf-8")
    kinds = set()
    for block in re.findall(r"```yaml\n(.*?)```", text, re.S):
        spec = parse_spec(parse_yaml(block), "guide")
        claims, seeds = claims_of(spec), range(5)
        kinds |= {claim.kind for claim in claims}
        names = [arm if not at else f"{arm} with {at}" for at in spec.conditions for arm in spec.arms]
        metrics = {metric for claim in claims for metric in claim.metrics}
        generator = np.random.default_rng(2)
        values = {  # of three learning rates the middle one is best
            (arm, metric): 1 - 0.95 * ("optim.lr=3e-3" in arm) + generator.random(5)
            for arm in names
            for metric in sorted(metrics)
        }
        rung = {arm: at for at, where in enumerate(spec.conditions) for arm in names if where and arm.endswith(where)}
        if spec.ladder:  # a law of loss over size, but for little noise
            values = {key: 1.5 + 2 * 10 ** (-0.2 * rung[key[0]]) + 0.001 * row for key, row in values.items()}
        yes, no = np.ones(5, dtype=bool), np.zeros(5, dtype=bool)
        seen = Evidence(
            tuple(names), tuple(seeds), values, dict.fromkeys(names, yes), dict.fromkeys(names, no),
            {"val/loss": "lower", "val/accuracy": "higher"},
            operations={arm: 1e12 * 10**at for arm, at in rung.items()},
        )  # fmt: skip
        for claim in claims:
            if claim.spans or not spec.grid:
                (verdict,) = judge([claim], seen)
                assert verdict.contrasts and math.isfinite(verdict.contrasts[0].estimate.value), claim.text
                assert claim.assertion
    assert kinds == set(KINDS)
