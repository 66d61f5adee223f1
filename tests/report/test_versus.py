"""Two studies side by side: what is paired, what is refused and named, and what changed."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from report.store import ENVIRONMENT, Store
from swapformer.cli import main
from swapformer.report.versus import Versus, compare, judge_study
from swapformer.results.config import write_config
from swapformer.tools.compare_studies import print_versus, versus_dict

CLAIM = {"text": "b is worse", "worse": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0.01}}


def study(root: Path, name: str, shift: float, extra: Mapping[str, float], seeds: int = 6, **record: Any) -> Store:
    """Arms a and b at 2 + `shift` + `extra[arm]`, with noise that a seed has in common in both studies."""
    store = Store(root, {"a": [], "b": ["model.bias=false"]}, "a", ["val/loss"], range(seeds), [dict(CLAIM)], name=name)
    noise = np.random.default_rng(5).normal(0, 0.3, 6)
    own = np.random.default_rng(1 if name == "two" else 2).normal(0, 0.01, (2, 6))
    for row, arm in enumerate(store.arms):
        for seed in store.seeds:
            loss = 2 + noise[seed] + own[row, seed] + shift + extra.get(arm, 0.0)
            place = seed + 1000 * (name == "two")
            store.write_trial(arm, seed, {"val/loss": loss}, place=place, **record)
    store.manifest["cells"] = [
        {"arm": arm, "seed": seed, "trial": store.trial(arm, seed + 1000 * (name == "two"))}
        for arm in store.arms for seed in store.seeds
    ]  # fmt: skip
    store.write_manifest()
    return store


def set_up(store: Store, configs: Mapping[str, Mapping[str, Any]], condition: str = "") -> None:
    """Give the trials of each arm that configuration, with their own seed; the manifest has that of the baseline."""
    for cell in store.manifest["cells"]:
        if cell["arm"] in configs and cell.get("condition", "") == condition:
            config = {"seed": cell["seed"], "runs_dir": str(store.runs), **configs[cell["arm"]]}
            if cell["arm"] == store.baseline:
                store.manifest.setdefault("shared_config", config)
                store.write_manifest()
            write_config(store.runs / "trials" / cell["trial"], config)


def judged(*stores: Store) -> Versus:
    one, two = (judge_study(store.name, store.study, store.runs) for store in stores)
    return compare(one, two)


def versus(root: Path, configs: Sequence[Mapping[str, Mapping[str, Any]]] = ({}, {}), **record: Any) -> Versus:
    """Two studies whose arms have these configurations, none where none is given."""
    stores = study(root, "one", 0.0, {"b": 0.1}), study(root, "two", 0.05, {"b": -0.1}, **record)
    for store, own in zip(stores, configs, strict=True):
        set_up(store, own)
    return judged(*stores)


def test_trials_of_one_seed_are_paired_and_the_interval_is_scipys(tmp_path: Path) -> None:
    found = versus(tmp_path)
    difference = {pair.arm: pair.metrics["val/loss"][2] for pair in found.pairs}["a"]
    values = [
        side.records.metrics.query("arm == 'a'").sort_values("seed")["value"].to_numpy() for side in (found.a, found.b)
    ]
    expected = stats.ttest_rel(values[1], values[0]).confidence_interval()
    assert difference.n == 6 and (difference.lower, difference.upper) == pytest.approx(tuple(expected))
    assert difference.upper - difference.lower < 0.1, "the seeds' common noise of 0.3 is gone"
    assert found.warnings == ()


def test_a_verdict_that_changed_is_named(tmp_path: Path) -> None:
    (claim,) = versus(tmp_path).claims
    assert (claim.a, claim.b, claim.changed) == ("supported", "refuted", True)


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"environment": ENVIRONMENT | {"torch": "9.9"}}, "environment"),
        ({"data": {"fingerprint": "cd" * 32}}, "data"),
        ({"steps": 1}, "budget"),
        ({"tokens": 1}, "budget"),
        ({"results_epoch": 7}, "results epoch"),
    ],
    ids=["environment", "data", "steps", "tokens", "epoch"],
)
def test_what_differs_is_named_and_nothing_is_paired(tmp_path: Path, record: dict[str, Any], named: str) -> None:
    found = versus(tmp_path, **record)
    for pair in found.pairs:
        difference = pair.metrics["val/loss"][2]
        assert difference.n == 0 and dict(difference.apart) == {named: 6}
        assert difference.text == f"not paired: other {named}"
    assert any(warning.startswith(f"Other {named}:") for warning in found.warnings)


def both(**leaves: Any) -> dict[str, dict[str, Any]]:
    return {arm: {"model": {"width": 8}, **leaves} for arm in "ab"}


def test_trials_that_were_measured_on_other_batches_are_not_paired(tmp_path: Path) -> None:
    configs = [both(eval={"final_batches": n}, optim={"lr": n / 8}) for n in (8, 16)]
    found = versus(tmp_path, configs)
    assert all(pair.metrics["val/loss"][2].n == 0 for pair in found.pairs)
    assert found.warnings == ("They measure on different things (eval.final_batches), so no trials are paired.",)
    assert found.config == {"eval.final_batches": (8, 16), "optim.lr": (1.0, 2.0)}
    assert [dict(pair.otherwise) for pair in found.pairs] == [{}, {}], "what all arms share is told once"


@pytest.mark.parametrize(("other", "pairs"), [("00", 6), ("11", 0)])
def test_trials_are_paired_where_they_were_evaluated_on_the_same_items(tmp_path: Path, other: str, pairs: int) -> None:
    """What only one of them was evaluated on does not matter."""
    items = {"val": {"items": 6, "fingerprint": "00"}}
    one = study(tmp_path, "one", 0.0, {}, evaluation={**items, "val@9": {"items": 1, "fingerprint": "99"}})
    two = study(tmp_path, "two", 0.1, {}, evaluation={"val": {"items": 6, "fingerprint": other}})
    found = judged(one, two)
    differences = [pair.metrics["val/loss"][2] for pair in found.pairs]
    assert [(each.n, dict(each.apart)) for each in differences] == [(pairs, {} if pairs else {"data": 6})] * 2


def test_an_arm_that_was_set_to_be_measured_otherwise_is_not_paired_either(tmp_path: Path) -> None:
    found = versus(tmp_path, [both(), {**both(), "b": {**both()["b"], "eval": {"final_batches": 16}}}])
    assert all(pair.metrics["val/loss"][2].n == 0 for pair in found.pairs)
    assert "They measure on different things (eval.final_batches), so no trials are paired." in found.warnings


def test_what_was_chosen_otherwise_for_an_arm_is_named_with_both_values(tmp_path: Path) -> None:
    """By tuning or matching: such trials are of the arm as the study has it, and are paired."""
    configs = [{**both(), "b": {"model": {"width": width}, "optim": {"lr": lr}}} for width, lr in ((42, 1), (171, 3))]
    found = versus(tmp_path, configs)
    assert found.warnings == ("b was set otherwise: model.width 42 against 171; optim.lr 1 against 3.",)
    assert [dict(pair.otherwise) for pair in found.pairs] == [{}, {"model.width": (42, 171), "optim.lr": (1, 3)}]
    assert found.pairs[1].metrics["val/loss"][2].n == 6
    told = json.loads(json.dumps(versus_dict(found)))["arms"][1]
    assert told["otherwise"] == {"model.width": [42, 171], "optim.lr": [1, 3]}


def test_a_long_list_of_differences_is_cut(tmp_path: Path) -> None:
    configs = [{**both(), "b": {f"x{n}": at for n in range(9)}} for at in (1, 2)]
    (warning,) = versus(tmp_path, configs).warnings
    assert warning.endswith("; x5 1 against 2; and 3 more.")


def test_each_condition_is_compared_by_itself(tmp_path: Path) -> None:
    stores = []
    for name, width in (("one", 42), ("two", 171)):
        store = study(tmp_path, name, 0.0, {})
        first = store.manifest["cells"]
        second = [{**cell, "trial": f"{index:016x}", "condition": "k=2"} for index, cell in enumerate(first)]
        for cell in second:
            record = store.runs / "trials" / cell["trial"]
            record.mkdir(parents=True, exist_ok=True)
        store.manifest["cells"] = [*({**cell, "condition": "k=1"} for cell in first), *second]
        store.manifest["conditions"] = {"k=1": {"k": "1"}, "k=2": {"k": "2"}}
        store.write_manifest()
        set_up(store, both(), "k=1")
        stores.append((store, width))
    found = []
    for store, width in stores:  # both have the second condition's trials
        set_up(store, {**both(), "b": {"model": {"width": width}}}, "k=2")
        found.append(judge_study(store.name, store.study, store.runs).configs("b", "k=2")[0])
    assert [each["model"]["width"] for each in found] == [42, 171]


@pytest.mark.parametrize(
    ("one", "other", "last", "expected"),
    [(0, 7, 5, ("the seed", 7)), (0, 0, 5, None), (0, 0, 0, ("the seed", 0)), (4, 7, 5, (4, 7))],
)
def test_batches_that_are_drawn_otherwise_are_a_difference(
    tmp_path: Path, one: int, other: int, last: int, expected: Any
) -> None:
    """The baselines' first seed is 0, their last 5; `last` is what the second study's last trial draws them by."""
    stores = study(tmp_path, "one", 0.0, {}), study(tmp_path, "two", 0.1, {})
    for store, drawn, end in zip(stores, (one, other), (5 if one == 0 else one, last), strict=True):
        for seed, by in ((0, drawn), (5, end)):
            cell = next(each for each in store.manifest["cells"] if (each["arm"], each["seed"]) == ("a", seed))
            write_config(store.runs / "trials" / cell["trial"], {"seed": seed, "data_seed": by})
        store.manifest["shared_config"] = {"seed": 0, "data_seed": drawn}
        store.write_manifest()
    assert judged(*stores).config.get("data_seed") == expected


@pytest.mark.parametrize(("size", "same"), [(16, True), (32, False)])
def test_an_older_study_was_evaluated_in_batches_as_large_as_those_of_training(
    size: int, same: bool, tmp_path: Path
) -> None:
    configs = [both(task={"batch_size": 16}), both(task={"batch_size": 16, "eval_batch_size": size})]
    assert (dict(versus(tmp_path, configs).config) == {}) == same


def test_a_few_trials_from_elsewhere_are_left_out_and_counted(tmp_path: Path) -> None:
    one, two = study(tmp_path, "one", 0.0, {}), study(tmp_path, "two", 0.1, {})
    two.write_trial("a", 3, {"val/loss": 9.0}, place=1003, environment=ENVIRONMENT | {"device": "cuda"})
    found = judged(one, two)
    difference = found.pairs[0].metrics["val/loss"][2]
    assert difference.n == 5 and dict(difference.apart) == {"environment": 1}
    assert abs(difference.value - 0.1) < 0.05, "the value of 9 is not in it"


def test_claims_of_one_text_are_paired_one_by_one(tmp_path: Path) -> None:
    stores = study(tmp_path, "one", 0.0, {"b": 0.1}), study(tmp_path, "two", 0.0, {"b": -0.1})
    for store in stores:
        store.manifest["claims"] = [
            dict(CLAIM),
            {**CLAIM, "worse": {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.01}},
        ]
        store.write_manifest()
    found = judged(*stores).claims
    assert [(each.a, each.b) for each in found] == [("supported", "refuted"), ("refuted", "supported")]


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ({"time_to": "val/loss", "value": 2.5}, {"time_to": "val/loss", "value": 2.5}, True),
        ({"time_to": "val/loss", "value": 2.5}, {"time_to": "val/loss", "value": 2.2}, False),
        ({"time_to": "val/loss", "value": 2.5, "unit": "seconds"},) * 2 + (False,),
    ],
)
def test_a_number_that_is_derived_or_cut_off_otherwise_has_no_difference(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any], same: bool
) -> None:
    stores = study(tmp_path, "one", 0.0, {"b": 0.1}), study(tmp_path, "two", 0.05, {"b": -0.1})
    for store, way in zip(stores, (one, two), strict=True):
        store.manifest["metrics"] = ["val/loss", "derived/steps", "derived/log"]
        store.manifest["derive"] = {"derived/steps": way, "derived/log": {"log": "derived/steps"}}
        store.write_manifest()
    found = judged(*stores)
    assert found.metrics == (("val/loss", "derived/steps", "derived/log") if same else ("val/loss",))
    said = [line for line in found.warnings if "Not the same number in both: derived/steps, derived/log" in line]
    assert len(said) == (not same)


def test_the_same_trials_in_both_are_called_so(tmp_path: Path) -> None:
    one = study(tmp_path, "one", 0.0, {})
    other = Store(tmp_path, one.arms, "a", ["val/loss"], range(6), name="copy", manifest=one.manifest)
    other.write_manifest()
    found = judged(one, other)
    difference = found.pairs[0].metrics["val/loss"][2]
    assert (difference.value, difference.same) == (0.0, 6) and "6 of 6 are the same trial" in difference.text


def test_divergence_is_named_since_survivors_flatter(tmp_path: Path) -> None:
    one, two = study(tmp_path, "one", 0.0, {}), study(tmp_path, "two", 0.1, {})
    two.write_trial("b", 3, {}, "diverged", place=1003)
    found = judged(one, two)
    assert found.warnings == ("In two, trials of b diverged: what is over the others flatters.",)
    difference = found.pairs[1].metrics["val/loss"][2]
    assert difference.n == 5 and difference.upper == math.inf > difference.lower > -math.inf, "b may be worse"
    backwards = judged(two, one).pairs[1].metrics["val/loss"][2]
    assert backwards.lower == -math.inf < backwards.upper < math.inf


def test_arms_of_one_name_with_other_settings_are_flagged_and_lonely_arms_listed(tmp_path: Path) -> None:
    one = study(tmp_path, "one", 0.0, {})
    other = Store(tmp_path, {"a": [], "b": ["model.bias=true"], "c<i>": []}, "a", ["val/loss"], range(6), name="other")
    other.write(lambda arm, seed: {"val/loss": 1.0 + seed})
    found = judged(one, other)
    assert [bool(pair.otherwise) for pair in found.pairs] == [False, True] and found.only_b == ("c<i>",)
    assert "b was set otherwise: model.bias false against true." in found.warnings


def test_studies_without_an_arm_in_common_have_baselines_that_are_compared_all_the_same(tmp_path: Path) -> None:
    stores = []
    for name, arm in (("one", "a"), ("other", "c")):
        stores.append(Store(tmp_path, {arm: []}, arm, ["val/loss"], range(3), name=name))
        stores[-1].manifest["shared_config"] = {"optim": {"lr": len(name)}}
        stores[-1].write(lambda arm, seed: {"val/loss": 1.0 + seed})
    assert judged(*stores).config == {"optim.lr": (3, 5)}


def test_arms_whose_trials_left_no_configuration_are_not_paired_where_overrides_measure_otherwise(
    tmp_path: Path,
) -> None:
    stores = []
    for name, task in (("one", "copy"), ("other", "sort")):
        stores.append(Store(tmp_path, {"a": [], "b": [f"task={task}"]}, "a", ["val/loss"], range(3), name=name))
        stores[-1].write(lambda arm, seed: {"val/loss": 1.0 + seed})
    found = judged(*stores)
    assert all(pair.metrics["val/loss"][2].n == 0 for pair in found.pairs)


def test_a_lost_configuration_of_one_trial_hides_no_difference(tmp_path: Path) -> None:
    one, two = study(tmp_path, "one", 0.0, {}), study(tmp_path, "two", 0.1, {})
    for store, batches in ((one, 8), (two, 16)):
        set_up(store, both(eval={"final_batches": batches}))
    first = two.runs / "trials" / two.manifest["cells"][0]["trial"]
    (first / "config.yaml").unlink()
    assert all(pair.metrics["val/loss"][2].n == 0 for pair in judged(one, two).pairs)


def test_the_command_speaks_to_scripts_and_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = study(tmp_path, "one", 0.0, {"b": 0.1}), study(tmp_path, "two", 0.05, {"b": 0.0})
    set_up(two, both(optim={"lr": 0.5}))
    set_up(one, both())
    assert main(["report", "one", "two", f"runs_dir={tmp_path / 'runs'}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"] == {"optim.lr": ["(absent)", 0.5]}
    assert found["arms"][0]["metrics"]["val/loss"]["pairs"] == 6
    assert main(["report", str(two.study), "one", f"runs_dir={tmp_path / 'runs'}"]) == 0  # a path, and people
    assert "B − A, paired" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "message"), [(["one", "one"], "two different studies"), (["one", "two", "one"], "two compared")]
)
def test_wrong_names_are_refused(
    tmp_path: Path, names: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, "one", 0.0, {})
    study(tmp_path, "two", 0.0, {})
    assert main(["report", *names, f"runs_dir={tmp_path / 'runs'}"]) == 2
    assert message in capsys.readouterr().err


def test_the_terminal_says_why_there_is_no_difference(tmp_path: Path) -> None:
    out = io.StringIO()
    print_versus(versus(tmp_path, steps=1), Console(file=out, width=160))
    assert "not paired: other budget" in out.getvalue() and "2\N{NARROW NO-BREAK SPACE}000 steps" in out.getvalue()
    json.dumps(versus_dict(versus(tmp_path, steps=1)), allow_nan=False)
