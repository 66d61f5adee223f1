"""Verdicts in plain words: what a refutation means, and what a headline says first."""

from __future__ import annotations

from pathlib import Path

import pytest

from report.store import Store
from swapformer.report.build import build
from swapformer.report.page.wording import MOST_SAID, headline, refuted_text


def said(place: Path, difference: float, spread: float = 0.001, **claim: object) -> str:
    """What is said of a claim about b against a, where b's losses lie so much above a's."""
    store = Store(place, {"a": [], "b": []}, "a", ["val/loss"], claims=[{"text": "it", **claim}])
    store.write_manifest()
    for seed in store.seeds:
        store.write_trial("a", seed, {"val/loss": 1.0})
        store.write_trial("b", seed, {"val/loss": 1.0 + difference + spread * (-1) ** seed})
    (verdict,) = build(store.study, store.runs).verdicts
    text = refuted_text(verdict)
    assert bool(text) == (verdict.outcome == "refuted")
    return text


def about(kind: str, margin: float) -> dict[str, object]:
    return {kind: {"arm": "b", "than": "a", "metric": "val/loss", "margin": margin}}


@pytest.mark.parametrize(
    ("difference", "kind", "margin", "text"),
    [
        (0.1, "better", 0.01, "The opposite: b is worse than a."),
        (-0.1, "worse", 0.01, "The opposite: b is better than a."),
        (0.1, "lower", 0.01, "The opposite: b is higher than a."),
        (-0.005, "better", 0.01, "b is not better than a by 0.01."),
        (0.005, "worse", 0.01, "b is not worse than a by 0.01."),
        (0.005, "better", 0.01, "The opposite: b is worse than a."),
        (-0.1, "better", 0.01, ""),
    ],
)
def test_a_refutation_says_whether_the_opposite_holds(
    difference: float, kind: str, margin: float, text: str, tmp_path: Path
) -> None:
    """A difference below the margin is no difference worth naming, unless its whole interval lies on the other side."""
    assert said(tmp_path, difference, **about(kind, margin)) == text


def test_where_zero_lies_in_the_interval_nothing_opposite_is_said(tmp_path: Path) -> None:
    assert said(tmp_path, 0.0, 0.004, **about("better", 0.05)) == "b is not better than a by 0.05."


def test_a_headline_names_each_outcome_once_and_not_more_than_a_few_claims() -> None:
    claims = [(f"claim {number}", "supported") for number in range(MOST_SAID + 2)]
    found = headline([("not this", "refuted"), *claims, ("who knows", "undecided")])
    assert [called for called, _ in found] == ["Yes", "No", "Not decided"]
    assert found[0][1].endswith(f"claim {MOST_SAID - 1}; and 2 more") and found[1][1] == "not this"
    assert headline([]) == []
