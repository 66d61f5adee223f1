"""Arms of two studies with the same overrides that were tuned, matched or came out otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from report.store import Store
from swapformer.cli import main
from swapformer.report.versus import ArmPair, Versus, compare, judge_study
from swapformer.tools.compare_studies import versus_dict

ARMS: dict[str, list[str]] = {"b": [], "a": ["model/ffn=glu"]}
Changes = Sequence[tuple[str, str, str]]


def entry(arm: str, condition: str = "", width: int | None = None, changes: Changes = ()) -> dict[str, Any]:
    match = {"measure": "params", "key": "model.ffn.width", "value": width, "cost": 100, "target": 100}
    return {"arm": arm, "condition": condition, "changes": changes, "beyond": [], "shapes": [], "flops": 1.0,
            "match": None if width is None else match}  # fmt: skip


def tuning(rates: Mapping[str, str], key: str = "optim.lr") -> dict[str, Any]:
    chosen = [{"arm": arm, "values": {key: rate}, "edges": []} for arm, rate in rates.items()]
    return {"metric": "val/loss", "keys": [key], "seeds": [1_000_000], "tried": [], "refused": [], "chosen": chosen}


def study(root: Path, name: str, **manifest: Any) -> Store:
    store = Store(root / name, ARMS, "b", ["val/loss"], range(4), name=name, manifest=manifest)
    store.write(lambda arm, seed: {"val/loss": 1 + 0.1 * seed + 0.01 * (arm == "a") * len(name)})
    return store


def versus(root: Path, one: Mapping[str, Any], two: Mapping[str, Any]) -> Versus:
    stores = [study(root, name, **manifest) for name, manifest in (("one", one), ("other", two))]
    return compare(*(judge_study(store.name, store.study, store.runs) for store in stores), {})


def of(found: Versus, arm: str) -> ArmPair:
    return next(pair for pair in found.pairs if pair.arm == arm)


def test_what_was_tuned_and_matched_otherwise_is_named_with_both_values(tmp_path: Path) -> None:
    found = versus(
        tmp_path,
        {"tuning": tuning({"b": "1e-3", "a": "1e-3"}), "fairness": [entry("b"), entry("a", width=42)]},
        {"tuning": tuning({"b": "0.001", "a": "3e-3"}), "fairness": [entry("b"), entry("a", width=171)]},
    )
    assert found.warnings == (
        "a was set otherwise: optim.lr 1e-3 against 3e-3 (tuned); model.ffn.width 42 against 171 (matched).",
    )
    assert (of(found, "b").alike, of(found, "a").alike) == (True, False)
    assert of(found, "a").metrics["val/loss"][2].n == 4, "what was tuned is part of the arm: it is paired and named"
    told = json.loads(json.dumps(versus_dict(found)))["arms"][1]
    assert told["alike"] is False
    assert told["otherwise"][0] == {"key": "optim.lr", "a": "1e-3", "b": "3e-3", "how": "tuned"}


def test_a_study_that_leaves_a_setting_alone_has_its_baselines_value(tmp_path: Path) -> None:
    """Of the first study, the arm changes the rate; the second one's baseline has the same, or another."""
    changed = [entry("b"), entry("a", changes=[("optim.lr", "0.001", "0.003")])]
    for rate, expected in ((0.003, []), (0.004, [("optim.lr", "0.003", "0.004", "")])):
        found = versus(
            tmp_path / str(rate),
            {"fairness": changed},
            {"fairness": [entry("b"), entry("a")], "shared_config": {"optim": {"lr": rate}}},
        )
        assert [(each.key, each.a, each.b, each.how) for each in of(found, "a").differences] == expected


def test_a_baseline_is_known_by_what_another_arm_changes_in_the_same_condition(tmp_path: Path) -> None:
    """The shared config is that of the first condition."""
    changed = [entry("b"), entry("a", changes=[("optim.lr", "0.001", "0.003")])]
    other = [entry("b"), entry("a"), entry("c", changes=[("optim.lr", "0.003", "0.1")])]
    two = {"fairness": other, "shared_config": {"optim": {"lr": 0.5}}}
    assert of(versus(tmp_path, {"fairness": changed}, two), "a").alike


def test_a_study_that_is_not_tuned_is_compared_by_its_settings(tmp_path: Path) -> None:
    one = {"tuning": tuning({"b": "1e-3", "a": "3e-3"})}
    found = versus(tmp_path, one, {"shared_config": {"optim": {"lr": 0.001}}})
    assert found.warnings == ("a was set otherwise: optim.lr 3e-3 against 0.001 (tuned).",)


def test_an_arm_without_a_choice_yet_is_said_to_be_so(tmp_path: Path) -> None:
    found = versus(tmp_path, {"tuning": tuning({"b": "1", "a": "2"})}, {"tuning": tuning({"b": "1"})})
    assert [each.text for each in of(found, "a").differences] == ["optim.lr 2 against not chosen yet (tuned)"]


def test_changes_are_compared_only_where_both_studies_tell_them(tmp_path: Path) -> None:
    changed = [entry("a", changes=[("model.ffn._target_", "MLP", "GLU")])]
    assert of(versus(tmp_path, {"fairness": changed}, {}), "a").alike


def test_each_condition_is_compared_by_itself_and_lost_trials_are_named_in_theirs(tmp_path: Path) -> None:
    sides = []
    for name, width in (("one", 42), ("other", 171)):
        store = study(tmp_path, name)
        store.write_trial("a", 3, {}, "diverged", place=103)
        for seed in range(3):
            store.write_trial("a", seed, {"val/loss": 1.0 + seed}, place=100 + seed)
        store.manifest = {
            "conditions": {"k=1": {"k": "1"}, "k=2": {"k": "2"}},
            "cells": [{"arm": arm, "condition": f"k={k}", "seed": seed,
                       "trial": store.trial(arm, seed + 100 * (k == 2 and arm == "a"))}
                      for k in (1, 2) for arm in ARMS for seed in range(4)],
            "fairness": [entry(arm, f"k={k}", (width if k == 2 else 7) if arm == "a" else None)
                         for k in (1, 2) for arm in ARMS],
        }  # fmt: skip
        store.write_manifest()
        sides.append(judge_study(name, store.study, store.runs))
    found = compare(sides[0], sides[1], {})
    assert [pair.alike for pair in found.pairs] == [True, True, True, False]
    assert found.warnings[-1] == "a with k=2 was set otherwise: model.ffn.width 42 against 171 (matched)."
    assert "In one, trials of a with k=2 diverged: what is over the others flatters." in found.warnings


def test_trials_whose_tuned_settings_measure_otherwise_are_not_paired(tmp_path: Path) -> None:
    sizes = [tuning({"b": "8", "a": size}, key="task.batch_size") for size in ("8", "16")]
    found = versus(tmp_path, {"tuning": sizes[0]}, {"tuning": sizes[1]})
    assert of(found, "a").metrics["val/loss"][2].n == 0
    assert "They measure on different things (task.batch_size), so no trials are paired." in found.warnings


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    sides = [{"fairness": [entry("b"), entry("a", changes=[(f"x.{n}", "0", to) for n in range(9)])]} for to in "12"]
    (warning,) = versus(tmp_path, sides[0], sides[1]).warnings
    assert warning.endswith("; x.5 1 against 2; and 3 more.")


@pytest.mark.parametrize(
    ("one", "other", "last", "expected"),
    [
        (0, 7, None, ["the seed", 7]),
        (0, 0, None, None),
        (0, 0, 0, ["the seed", 0]),
        (0, 0, 3, None),
        (4, 7, None, [4, 7]),
    ],
)
def test_batches_that_are_drawn_otherwise_are_a_difference(
    tmp_path: Path, one: int, other: int, last: int | None, expected: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The baselines' first seed is 0; `last` is what the second study's last trial, of seed 3, draws them by."""
    stores = [
        study(tmp_path, name, shared_config={"seed": 0, "data_seed": drawn})
        for name, drawn in (("one", one), ("other", other))
    ]
    if last is not None:
        (stores[1].directory("b", 3) / "config.yaml").write_text(f"seed: 3\ndata_seed: {last}\n")
    assert main(["report", *(str(store.study) for store in stores), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"].get("data_seed") == expected
