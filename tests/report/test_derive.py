"""Derived numbers: each against its definition, and the one clear line that each mistake gets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.store import Store
from swapformer.errors import UsageError
from swapformer.report.build import build
from swapformer.report.derive import (
    TrialNumbers,
    derive,
    exact_of,
    optimum,
    parse_derive,
    ways_of,
)
from swapformer.report.records import read
from swapformer.report.results_csv import read_results
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.sequential import judge_all

METRICS = ("val/loss", "val/loss@64", "val/loss@128", "val/accuracy")
EMPTY = pd.DataFrame({"metric": [], "step": [], "value": []})
SQUARE = {f"val/loss@{n}": 3.0 * n**2 for n in (8, 16, 64)}


def numbers(metrics: dict[str, float], history: pd.DataFrame = EMPTY, **more: Any) -> TrialNumbers:
    return TrialNumbers(metrics, history, {"val/accuracy": "higher"}, 100, **more)


def of(way: dict[str, Any], metrics: dict[str, float], history: pd.DataFrame = EMPTY) -> float:
    return derive({"derived/x": way}, numbers(metrics, history), [])["derived/x"]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ({"slope": "val/loss"}, 2.0),
        ({"rank_correlation": "val/loss"}, 1.0),
        ({"ratio": ["val/loss@16", "val/loss@8"]}, 4.0),
        ({"log": "val/loss@8"}, math.log(192)),
        ({"stuck": "val/loss@8", "value": 192}, 1.0),
        ({"stuck": "val/loss@8", "value": 193}, 0.0),
    ],
)
def test_a_derived_number_is_what_its_name_says(way: dict[str, Any], expected: float) -> None:
    assert of(way, SQUARE) == pytest.approx(expected)


def test_families_cross_where_a_walk_from_length_to_length_finds_it() -> None:
    """Oracle: steps of a thousandth of log n along straight lines between the lengths, until the order turns."""
    generator = np.random.default_rng(7)
    lengths = np.array([8, 32, 64, 512])
    crossed = 0
    for _ in range(20):
        here, there = (generator.uniform(1, 9, 4) for _ in range(2))
        numbers = {
            f"{base}@{n}": float(v)
            for base, row in (("a", here), ("b", there))
            for n, v in zip(lengths, row, strict=True)
        }
        walk = np.arange(math.log(8), math.log(512), 1e-3)
        gaps = [
            np.interp(x, np.log(lengths), np.log(here)) - np.interp(x, np.log(lengths), np.log(there)) for x in walk
        ]
        turned = next((x for x, gap in zip(walk, gaps, strict=True) if gap * gaps[0] < 0), math.nan)
        crossed += math.isfinite(turned)
        assert math.log(of({"crossing": ["a", "b"]}, numbers)) == pytest.approx(turned, abs=2e-3, nan_ok=True)
    assert 0 < crossed < 20, "some cross and some do not"


def test_families_that_meet_at_a_length_cross_there_and_a_single_length_is_told() -> None:
    """n² and 64·n meet at 64; what is not positive has no logarithm."""
    powers = {f"{base}@{n}": value for n in (16, 64, 256) for base, value in (("a", n**2.0), ("b", 64.0 * n))}
    assert of({"crossing": ["a", "b"]}, powers) == 64
    assert of({"crossing": ["a", "b"]}, {k: v for k, v in powers.items() if "@64" not in k}) == pytest.approx(64)
    assert math.isnan(of({"crossing": ["a", "b"]}, powers | {"b@16": 0.0}))
    problems: list[str] = []
    assert (
        derive({"derived/x": {"crossing": ["a", "b"]}}, numbers({"a@8": 1.0, "a@16": 1.0, "b@8": 2.0}), problems) == {}
    )
    assert problems == ["derived/x needs both of a and b at two lengths, but has 1"]


def test_a_trial_is_stuck_where_it_is_no_better_than_counting() -> None:
    for accuracy, expected in ((0.3, 1.0), (0.5, 1.0), (0.7, 0.0)):
        assert of({"stuck": "val/accuracy", "value": 0.5}, {"val/accuracy": accuracy}) == expected


def test_the_time_to_a_target_is_censored_at_the_budget_and_never_dropped() -> None:
    curve = pd.DataFrame({"metric": "val/accuracy", "step": [10, 20, 30], "value": [0.2, 0.8, 0.9]})
    assert of({"time_to": "val/accuracy", "value": 0.75}, {}, curve) == 20
    assert of({"time_to": "val/accuracy", "value": 0.95}, {}, curve) == 100
    loss = pd.DataFrame({"metric": "val/loss", "step": [10, 20], "value": [2.0, 1.0]})
    assert of({"time_to": "val/loss", "value": 1.5}, {}, loss) == 20


@pytest.mark.parametrize("kind", ["stuck", "time_to"])
def test_what_nobody_says_the_better_way_of_is_not_taken_for_a_loss(kind: str) -> None:
    """A task says it of its own metrics; the share of right generations is a probe's, and more is better."""
    curve = pd.DataFrame({"metric": "probe/generated_exact_match", "step": [10, 20], "value": [0.1, 0.95]})
    way, problems = {"derived/x": {kind: "probe/generated_exact_match", "value": 0.9}}, list[str]()
    assert derive(way, numbers({"probe/generated_exact_match": 0.95}, curve), problems) == {}
    assert len(problems) == 1 and "whether more of probe/generated_exact_match is better" in problems[0]


def test_a_target_may_be_counted_in_tokens_operations_or_seconds() -> None:
    """Reached at step 20 of 100, so after a fifth of everything; never reached, after all of it."""
    curve = pd.DataFrame({"metric": "val/accuracy", "step": [10, 20], "value": [0.2, 0.8]})
    trial = numbers({}, curve, tokens=1000.0, operations=5e6, seconds=30.0)
    for value, share in ((0.75, 0.2), (0.95, 1.0)):
        for unit, whole in (("steps", 100), ("tokens", 1000), ("operations", 5e6), ("seconds", 30)):
            way = {"derived/x": {"time_to": "val/accuracy", "value": value, "unit": unit}}
            assert derive(way, trial, [])["derived/x"] == pytest.approx(share * whole)


def test_lengths_have_moments_of_their_own() -> None:
    later = {f"probe/x@{n}": 1.0 * n for n in (8, 16)} | {f"probe/x@{n}:init": 1.0 / n for n in (8, 16)}
    assert of({"slope": "probe/x:init"}, later) == pytest.approx(-1)
    assert of({"slope": "probe/x"}, later) == pytest.approx(1)


def test_a_trial_is_stuck_at_the_loss_of_counting_that_its_record_holds() -> None:
    way, problems = {"derived/x": {"stuck": "val/loss"}}, list[str]()
    known = {"baselines": {"val/loss": {"guessing": 4.0, "counting": 3.0}}}
    for loss, expected in ((2.9, 0.0), (3.0, 1.0), (3.5, 1.0)):
        assert derive(way, numbers({"val/loss": loss}, **known), problems) == {"derived/x": expected}
    assert derive(way, numbers({"val/loss": 3.0}), problems) == {}
    assert len(problems) == 1 and "needs the loss of counting, which records of trials lack" in problems[0]


def test_what_is_derived_from_exact_numbers_alone_is_exact() -> None:
    study = SimpleNamespace(
        derive={
            "derived/r": {"ratio": ["a", "b"]},
            "derived/l": {"log": "derived/r"},
            "derived/m": {"ratio": ["a", "c"]},
        },
        claims=[{"slope": {"metric": "bytes"}}, {"slope": {"metric": "val/loss"}}],
    )
    exact = ["a", "b", "bytes@8", "bytes@16"]
    found = exact_of(ways_of(study.derive, study.claims), exact, [*exact, "val/loss"])
    assert found == {*exact, "derived/r", "derived/l", "slope(bytes)"}
    assert "slope(bytes)" not in exact_of(ways_of(study.derive, study.claims), exact, [*exact, "bytes@32"]), (
        "one length is not exact"
    )


def test_a_slope_over_one_point_is_one_line_and_no_number() -> None:
    problems: list[str] = []
    for _ in range(3):
        assert derive({"slope(val/loss)": {"slope": "val/loss"}}, numbers({"val/loss@8": 1.0}), problems) == {}
    assert problems == ["slope(val/loss) needs val/loss@n at two lengths or more, but trials have it at 1"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"slope": {}}, "must begin with derived/"),
        ({"derived/x": {"slop": "val/loss"}}, "exactly one of slope"),
        ({"derived/x": {"slope": "val/los"}}, "does not measure 'val/los'; did you mean 'val/loss'"),
        ({"derived/x": {"ratio": ["val/loss"]}}, "must be two metrics"),
        ({"derived/x": {"crossing": "val/loss"}}, "`crossing` of derived/x must be two families, such as"),
        ({"derived/x": {"crossing": ["val/loss", "val/los"]}}, "does not measure 'val/los'"),
        (
            {"derived/x": {"stuck": "val/loss", "value": "x"}},
            "`stuck` of derived/x needs a finite `value`, but has 'x'",
        ),
        (
            {"derived/x": {"time_to": "val/loss", "value": 1, "unit": "step"}},
            "`unit` of derived/x must be steps or tok",
        ),
        (
            {"derived/x": {"slope": "val/loss", "over": "steps"}},
            "`over` is gone; a probe gives the numbers of its shapes",
        ),
        ({"derived/x": {"first_above": "val/loss", "value": 1}}, "`first_above` is gone; claim a contrast"),
        ({"derived/x": {"log": "derived/y"}, "derived/y": {"log": "val/loss"}}, "does not measure 'derived/y'"),
        ({"derived/x": {"stuck": "val/loss", "valu": 1}}, "has no key 'valu'; did you mean 'value'"),
        ({"derived/x": {"time_to": "val/loss"}}, "needs a finite `value`, but has None"),
        ({"derived/x": {"log": "val/loss", "direction": "up"}}, "must be lower or higher, not 'up'"),
        ([], "must map names"),
    ],
)
def test_a_wrong_derivation_is_told_in_one_line(raw: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_derive(raw, METRICS)
    assert "\n" not in str(error.value) and len(str(error.value)) <= 300


def test_a_metric_that_trials_declare_exact_is_decided_by_arithmetic_in_the_store_and_in_its_results(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "bytes@8", "bytes@16"], seeds=range(2))
    store.claims = [
        {"text": "fewer", "lower": {"arm": "a", "than": "b", "metric": "bytes@8", "margin": 7}},
        {"text": "linear", "slope": {"arm": "b", "metric": "bytes", "between": [0.999, 1.001]}},
        {"text": "open", "lower": {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0}},
    ]
    for arm in store.arms:
        for seed in store.seeds:
            size = 8 if arm == "a" else 16
            values = {"val/loss": 1.0 + 0.1 * seed, "bytes@8": size, "bytes@16": 2 * size}
            store.write_trial(arm, seed, values, exact=["bytes@8", "bytes@16"])
    store.write_manifest()
    report = build(store.study, store.runs)
    assert [verdict.outcome for verdict in report.verdicts] == ["supported", "supported", "undecided"]
    assert [verdict.level for verdict in report.verdicts] == [0, 0, 0.04]
    asked = replace(report.records.manifest, exact=(), cells=())
    again = read_results(store.study / "report" / "results.csv", asked)
    assert set(again.manifest.exact) >= {"bytes@8", "bytes@16"}
    assert [v.outcome for v in judge_all(claims_of(again.manifest), again)[""]][:2] == ["supported"] * 2
    store.write_trial("b", 1, {"val/loss": 1.0, "bytes@8": 17, "bytes@16": 32}, exact=["bytes@8", "bytes@16"])
    with pytest.raises(UsageError, match="bytes@8 is said to be `exact`, but b has 16 with one seed and 17"):
        build(store.study, store.runs)


def test_an_optimum_is_the_vertex_of_the_parabola_through_the_lowest_three() -> None:
    places, losses = (1e-3, 2e-3, 6e-3, 8e-3), (2.5, 2.0, 2.1, 2.2)
    square, linear, _ = np.polyfit(np.log(places[:3]), losses[:3], 2)
    assert optimum(places, losses) == pytest.approx(-linear / 2 / square)
    for unknown in ((1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (2.0, math.nan, 3.0), (2.0, 2.0, 2.0)):
        assert math.isnan(optimum((1, 2, 3), unknown))


def test_claims_about_derived_numbers_are_judged_and_stand_in_the_results(tmp_path: Path) -> None:
    """Costs that grow as n¹ and n² but for noise: slopes in [.9, 1.1] and their difference, and a ratio."""
    store = Store(tmp_path, {"linear": [], "square": []}, "linear", ["val/loss", "derived/ratio"], seeds=range(5))
    store.manifest = {"derive": {"derived/ratio": {"ratio": ["val/loss@64", "val/loss@8"]}}}
    store.claims = [
        {"text": "linear", "slope": {"arm": "linear", "metric": "val/loss", "between": [0.9, 1.1]}},
        {"text": "steeper", "slope": {"arm": "square", "than": "linear", "metric": "val/loss", "above": 0.5}},
        {"text": "ratio", "higher": {"arm": "square", "than": "linear", "metric": "derived/ratio", "margin": 5}},
    ]

    def values(arm: str, seed: int) -> dict[str, float]:
        power = 2 if arm == "square" else 1
        noise = {n: 1 + 0.01 * ((seed * n // 8 + power) % 5) for n in (8, 16, 64)}
        return {"val/loss": 1.0} | {f"val/loss@{n}": n**power * noise[n] for n in noise}

    study, runs = store.write(values)
    report = build(study, runs)
    assert [verdict.outcome for verdict in report.verdicts] == ["supported"] * 3
    text = (study / "report" / "results.csv").read_text()
    assert ",slope(val/loss),1.0" in text and ",derived/ratio," in text
    again = read_results(study / "report" / "results.csv", report.records.manifest)
    found = read(study, runs).metrics
    wanted = found[found["metric"] == "derived/ratio"]["value"].tolist()
    assert again.metrics[again.metrics["metric"] == "derived/ratio"]["value"].tolist() == wanted
