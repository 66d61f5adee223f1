"""Derived numbers: each against its definition, and the one clear line that each mistake gets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from report.store import Store
from swapformer.errors import UsageError
from swapformer.report.build import build
from swapformer.report.derive import derive, parse_derive
from swapformer.report.records import read, read_results

METRICS = ("val/loss", "val/loss@64", "val/loss@128", "val/accuracy")
EMPTY = pd.DataFrame({"metric": [], "step": [], "value": []})
SQUARE = {f"val/loss@{n}": 3.0 * n**2 for n in (8, 16, 64)}


def of(way: dict[str, Any], metrics: dict[str, float], history: pd.DataFrame = EMPTY) -> float:
    return derive({"derived/x": way}, metrics, history, {"val/accuracy": "higher"}, 100, [])["derived/x"]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ({"slope": "val/loss"}, 2.0),
        ({"rank_correlation": "val/loss"}, 1.0),
        ({"first_above": "val/loss", "value": 500}, 16.0),
        ({"first_above": "val/loss", "value": 1e9}, 64.0),
        ({"first_below": "val/loss", "value": 500}, 8.0),
        ({"ratio": ["val/loss@16", "val/loss@8"]}, 4.0),
        ({"log": "val/loss@8"}, math.log(192)),
    ],
)
def test_a_derived_number_is_what_its_name_says(way: dict[str, Any], expected: float) -> None:
    assert of(way, SQUARE) == pytest.approx(expected)


def test_the_time_to_a_target_is_censored_at_the_budget_and_never_dropped() -> None:
    curve = pd.DataFrame({"metric": "val/accuracy", "step": [10, 20, 30], "value": [0.2, 0.8, 0.9]})
    assert of({"time_to": "val/accuracy", "value": 0.75}, {}, curve) == 20
    assert of({"time_to": "val/accuracy", "value": 0.95}, {}, curve) == 100
    loss = pd.DataFrame({"metric": "val/loss", "step": [10, 20], "value": [2.0, 1.0]})
    assert of({"time_to": "val/loss", "value": 1.5}, {}, loss) == 20


def test_a_slope_over_one_point_is_one_line_and_no_number() -> None:
    problems: list[str] = []
    for _ in range(3):
        assert derive({"slope(val/loss)": {"slope": "val/loss"}}, {"val/loss@8": 1.0}, EMPTY, {}, 1, problems) == {}
    assert problems == ["slope(val/loss) needs val/loss@n at two lengths or more, but trials have it at 1"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"slope": {}}, "must begin with derived/"),
        ({"derived/x": {"slop": "val/loss"}}, "exactly one of slope"),
        ({"derived/x": {"slope": "val/los"}}, "does not measure 'val/los'; did you mean 'val/loss'"),
        ({"derived/x": {"ratio": ["val/loss"]}}, "must be two metrics"),
        ({"derived/x": {"log": "val/loss", "valu": 1}}, "has no key 'valu'; did you mean 'value'"),
        ({"derived/x": {"time_to": "val/loss"}}, "needs a finite `value`, but has None"),
        ({"derived/x": {"log": "val/loss", "direction": "up"}}, "must be lower or higher, not 'up'"),
        ([], "must map names"),
    ],
)
def test_a_wrong_derivation_is_told_in_one_line(raw: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_derive(raw, METRICS)
    assert "\n" not in str(error.value) and len(str(error.value)) <= 300


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
