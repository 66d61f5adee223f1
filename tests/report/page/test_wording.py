"""Verdicts in plain words: what a refutation means, and what a headline says first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from report.statistics import test_paths as paths
from report.store import Store
from swapformer.report.build import build
from swapformer.report.page.wording import MOST_SAID, error_text, found_text, headline, refuted_text
from swapformer.report.statistics.comparisons import MeanClaim
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.grid import grid_verdicts
from swapformer.report.statistics.verdicts import judge


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


@pytest.mark.parametrize(("kind", "opposite"), [("better", "worse"), ("worse", "better"), ("higher", "lower")])
def test_an_open_verdict_says_both_sides_where_it_may_be_the_opposite(kind: str, opposite: str, tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"], claims=[{"text": "it", **about(kind, 0.002)}])
    store.write_manifest()
    for seed in store.seeds:
        store.write_trial("a", seed, {"val/loss": 1.0})
        store.write_trial("b", seed, {"val/loss": 1.0 + (-1) ** seed * 0.004})
    (verdict,) = build(store.study, store.runs).verdicts
    (contrast,) = verdict.contrasts
    assert verdict.outcome == "undecided"
    said = re.match(
        rf"between ([.\d]+) {opposite} and ([.\d]+) {kind} \(claimed: more than 0\.002\): ", found_text(verdict)
    )
    assert said is not None
    low, high = (-contrast.upper, -contrast.lower) if kind == "better" else (contrast.lower, contrast.upper)
    assert (float(said[1]), float(said[2])) == pytest.approx((-low, high), abs=0.0005)


def test_a_headline_names_each_outcome_once_and_not_more_than_a_few_claims(tmp_path: Path) -> None:
    """Of a refuted claim about two arms it says what holds: nobody reads “no: b is as good”."""
    store = Store(tmp_path, {"a": [], "b": [], "c": []}, "a", ["val/loss"])
    settings = {"arm": "b", "metric": "val/loss"}
    store.claims = [
        {"text": "b is as good", "within": {**settings, "of": "a", "margin": 0.01}},
        {"text": "b is better", "better": {**settings, "than": "a", "margin": 0.01}},
        {"text": "b is far worse", "worse": {**settings, "than": "a", "margin": 0.3}},
        {"text": "b is best", "better": {**settings, "than": ["a", "c"], "margin": 0}},
        {"text": "who knows", "better": {**settings, "than": "a", "margin": 0.0}, "withdrawn": "why"},
        *({"text": f"claim {n}", "worse": {**settings, "than": "a", "margin": 0.01}} for n in range(3)),
    ]
    store.write_manifest()
    for seed in store.seeds:
        for arm, loss in (("a", 1.0), ("b", 1.18), ("c", 1.5)):
            store.write_trial(arm, seed, {"val/loss": loss + 0.001 * (-1) ** seed * (arm == "b")})
    found = dict(headline(build(store.study, store.runs, draw=False).claims))
    assert list(found) == ["Found", "Refuted", "Not decided"]
    first, second, third, *_ = found["Found"].split("; ")
    assert first.startswith("b and a differ in val/loss: b − a = +0.18")
    assert (second, third) == ("b is worse than a in val/loss, by 0.18", "b is not worse than a by 0.3")
    assert found["Found"].endswith(f"claim 0; and {6 - MOST_SAID} more")
    assert (found["Refuted"], found["Not decided"]) == ("b is best", "who knows")
    assert headline([]) == []


@pytest.mark.parametrize(
    ("margin", "outcome", "limit"),
    [
        (0.05, "undecided", "0.0497"),
        (0.056, "undecided", "0.055"),
        (0.01, "supported", "0.0103"),
        (0.0, "supported", "0.003"),
    ],
)
def test_a_limit_is_never_printed_on_the_other_side_of_what_is_claimed(
    margin: float, outcome: str, limit: str, tmp_path: Path
) -> None:
    """Rounded to the digits of its interval each of these would say the opposite of its verdict."""
    wanted, spread = float(limit), 0.1
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"], claims=[{"text": "it", **about("worse", margin)}])
    store.write_manifest()
    signs = [spread * (-1) ** seed for seed in store.seeds]
    half = stats.t.isf(0.04 if margin else 0.02, len(signs) - 1) * np.std(signs, ddof=1) / len(signs) ** 0.5
    for seed, sign in zip(store.seeds, signs, strict=True):
        store.write_trial("a", seed, {"val/loss": 1.0})
        store.write_trial("b", seed, {"val/loss": 1.0 + wanted + half + sign})
    (verdict,) = build(store.study, store.runs, draw=False).verdicts
    assert verdict.outcome == outcome
    said = float(re.search(r"at least ([\d.]+)", found_text(verdict)).group(1))  # type: ignore[union-attr]
    assert (said > margin) == (wanted > margin) and said == pytest.approx(wanted, rel=0.05)


def test_a_claim_is_printed_as_it_was_written(tmp_path: Path) -> None:
    claim = {"contrast": {"weights": {"b": 1}, "metric": "val/loss", "between": [1.0012, 1.0042]}}
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"], claims=[{"text": "it", **claim}])
    store.write_manifest()
    for seed in store.seeds:
        store.write_trial("a", seed, {"val/loss": 1.0})
        store.write_trial("b", seed, {"val/loss": 1.003 + 1e-5 * (-1) ** seed})
    (verdict,) = build(store.study, store.runs, draw=False).verdicts
    assert verdict.outcome == "supported" and "claimed: between 1.0012 and 1.0042" in found_text(verdict)


def test_a_headline_says_in_which_condition_the_opposite_holds(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"], claims=[{"text": "it", **about("better", 0.0)}])
    store.write_manifest()
    for seed in store.seeds:
        store.write_trial("a", seed, {"val/loss": 1.0})
        store.write_trial("b", seed, {"val/loss": 1.2 + 0.001 * (-1) ** seed})
    (claim,) = build(store.study, store.runs, draw=False).claims
    limited = replace(claim, verdicts={"task.n=8": claim.verdicts[""]})
    assert headline([claim]) == [("Found", "b is worse than a in val/loss, by 0.2")]
    assert headline([limited]) == [("Found", "b is worse than a in val/loss with task.n=8, by 0.2")]


@pytest.mark.parametrize("margin", [0.0, 0.01, 0.2])
def test_without_any_difference_a_headline_seldom_finds_one_on_either_side(margin: float) -> None:
    """“Better” and “worse” together err with the level of 4 %: 1500 studies of five seeds, of standard deviation 1."""
    draw, claim = np.random.default_rng(1), MeanClaim("it", "better", "a", ("b",), "val/loss", margin)
    every, none = np.ones(5, dtype=bool), np.zeros(5, dtype=bool)
    found = 0
    for _ in range(1500):
        values = {("a", "val/loss"): draw.normal(2, 1, 5), ("b", "val/loss"): draw.normal(2, 1, 5)}
        seen = Evidence(
            ("a", "b"), tuple(range(5)), values, {"a": every, "b": every}, {"a": none, "b": none}, {"val/loss": "lower"}
        )
        (verdict,) = judge([claim], seen, 0.04)
        said = dict(headline(grid_verdicts([claim], {"": [verdict]}))).get("Found", "")
        found += verdict.outcome == "supported" or "is worse than" in said
    assert found / 1500 < 0.055


def test_a_claim_that_was_stated_afterwards_has_no_chance_of_error_and_says_so_in_the_headline(tmp_path: Path) -> None:
    store = Store(tmp_path, {arm: [] for arm in paths.ARMS}, "b", ["val/loss"], seeds=range(5))
    paths.TestClaimsThatAreStatedLater().state(store, paths.better("d"))
    paths.train(store, paths.ARMS, range(5))
    report = paths.TestClaimsThatAreStatedLater().note(store, paths.better("d"), paths.better("c"))
    assert ("Found", "c is better (stated after results were seen)") in headline(report.claims)
    said = error_text(report.errors, report.verdicts)
    assert said.startswith("The chance that the other verdict is wrong is at most 4 %, if seeds are roughly normal.")
    assert "the verdict marked “stated after results were seen” is wrong is not known." in said
    alone = error_text(report.errors, report.verdicts[1:])
    assert alone == "The chance that the verdict marked “stated after results were seen” is wrong is not known."
