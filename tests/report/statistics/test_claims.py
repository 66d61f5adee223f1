"""The grammar: what each claim asserts, and the one clear line that each mistake gets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.report.statistics.claims import Claim, parse

ARMS = ("h1", "h8", "h16")
METRICS = ("val/loss", "val/accuracy", "probe/head_similarity")


def claim(**body: Any) -> Claim:
    return parse([{"text": "said", **body}], ARMS, METRICS)[0]


def settings(**changes: Any) -> dict[str, Any]:
    return {"arm": "h1", "than": "h8", "metric": "val/loss", "margin": 0.01} | changes


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


def test_diverges_needs_no_metric_and_than_may_be_a_list() -> None:
    assert claim(diverges={"arm": "h1", "than": ["h8", "h16"], "margin": 0}).than == ("h8", "h16")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"worse": settings(arm="h61")}, "unknown arm 'h61'; did you mean 'h1'"),
        ({"worse": settings(than="h9")}, "unknown arm 'h9'"),
        ({"worse": settings(than=[])}, "`than` must name at least one arm"),
        ({"worse": settings(than="h1")}, "compares the arm 'h1' with itself"),
        ({"worse": settings(metric="val/los")}, "does not measure 'val/los'; did you mean 'val/loss'"),
        ({"worse": settings(metric=None)}, "does not measure None"),
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
