"""Ladders of a study file: rungs as conditions, budgets by parameters, and what is wrong with one in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.report.build import rebuild
from swapformer.study.expand import expand
from swapformer.study.ladder import Ladder, conditions, parse_ladder
from swapformer.study.manifest import asked
from swapformer.study.published_results import published_results
from swapformer.study.spec import parse

SMALL = ["task=copy", "model.num_layers=1", "model.num_heads=2", "schedule.warmup_steps=1", "task.batch_size=4"]
SIZES = {"d8": ["model.d_model=8"], "d16": ["model.d_model=16"]}


def study(**more: Any) -> dict[str, Any]:
    arms = {"gelu": ["model/activation=gelu"], "relu": ["model/activation=relu"]}
    return {"baseline": "gelu", "arms": arms, "seeds": 2, "overrides": SMALL, "ladder": {"sizes": SIZES}, **more}


def test_every_size_is_a_condition_beside_those_of_a_grid() -> None:
    spec = parse(study(grid={"optim.lr": ["1e-3", "1e-2"]}), "x")
    assert list(spec.conditions) == [f"rung={size}, optim.lr={lr}" for size in SIZES for lr in ("1e-3", "1e-2")]
    assert asked(spec).conditions["rung=d8, optim.lr=1e-2"] == {"rung": "d8", "optim.lr": "1e-2"}
    assert conditions(None, [()])[""].values == {}


def test_tokens_follow_from_the_baselines_parameters_and_are_the_same_for_all_arms() -> None:
    """Oracle: the parameters that the composer counts of the composed baseline."""
    plan = expand(parse(study(ladder={"sizes": SIZES, "tokens_per_parameter": 5}), "x"))
    assert next(iter(plan.spec.conditions)) == "rung=d8"
    budgets: dict[str, set[float]] = {}
    for each in plan.templates:
        budgets.setdefault(each.condition, set()).add(each.config["budget"]["tokens"])
        if each.arm == "gelu":
            assert each.config["budget"]["tokens"] == 5 * plan.composer.cost(each.config, "params")
            assert each.config["model"]["d_model"] == (8 if "d8" in each.condition else 16)
    assert len(budgets) == 2 and all(len(found) == 1 for found in budgets.values())


def test_a_budget_by_parameters_sets_every_other_budget() -> None:
    ladder = Ladder({"a": ("x=1",), "b": ("x=2",)}, 20.0)
    assert {"x", "budget.steps", "budget.tokens", "budget.flops"} == set(ladder.keys)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "`ladder` must be"),
        ({"size": SIZES}, "`ladder` must be"),
        ({"sizes": SIZES, "token_per_parameter": 2}, "unknown key 'token_per_parameter' in `ladder`; did you mean"),
        ({"sizes": {"a": ["x=1"]}}, "needs at least two different sizes"),
        ({"sizes": {"a": ["x=1"], "b": ["x=1"]}}, "sizes 'a' and 'b' of `ladder` are the same"),
        ({"sizes": {"a": ["x=1"], "b": []}}, "size 'b' must set something"),
        ({"sizes": {"a/b": ["x=1"], "b": ["x=2"]}}, "a size's name must be a text without"),
        ({"sizes": {"a": ["seed=1"], "b": ["x=2"]}}, "and no seed"),
        ({"sizes": SIZES, "tokens_per_parameter": 0}, "must be a number above 0"),
    ],
)
def test_a_wrong_ladder_is_told_in_one_line(raw: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_ladder(raw)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"arms": {"gelu": [], "w": ["model.d_model=4"]}}, "arm 'w' must not set model.d_model, which `ladder` sets"),
        ({"grid": {"model.d_model": [4, 8]}}, "model.d_model must have one role"),
        (
            {"ladder": {"sizes": SIZES, "tokens_per_parameter": 5}, "overrides": [*SMALL, "budget.steps=4"]},
            "`overrides` must not set budget.steps, which `ladder` sets",
        ),
    ],
)
def test_what_a_ladder_sets_is_set_by_nothing_else(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(study(**more), "x")


def test_a_size_whose_heads_do_not_divide_is_refused_before_anything_trains() -> None:
    raw = study(ladder={"sizes": {**SIZES, "d9": ["model.d_model=9"]}})
    with pytest.raises(UsageError, match=r"cannot be built with rung=d9: .*num_heads.*divide"):
        expand(parse(raw, "x"))


@pytest.mark.evidence
@pytest.mark.timeout(600)
def test_a_ladder_is_run_reported_and_judged_again_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four tiny sizes, of which a law may well be refused: the report from the store and from results.csv agree."""
    about = {"arm": "relu", "than": "gelu", "metric": "val/loss"}
    raw = study(
        seeds=3,
        ladder={"sizes": {f"d{d}": [f"model.d_model={d}"] for d in (4, 8, 16, 32)}, "tokens_per_parameter": 2},
        overrides=[*SMALL, "eval.every=2", "eval.batches=1", "eval.final_batches=2", "log_every=1"],
        metrics=["val/loss"],
        figures={"ladder_val_loss": {}},
        claims=[
            {"text": "faster", "speed_up": {**about, "above": 1}},
            {"text": "grows", "grows": {**about, "above": 0}},
        ],
    )
    folder = tmp_path / "sizes"
    folder.mkdir()
    (folder / "study.yaml").write_text(yaml.safe_dump(raw))
    assert main(["study", str(folder), f"runs_dir={tmp_path / 'runs'}", "--publish", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any(line.startswith(("Law of gelu", "Ladder in val/loss: no law of gelu")) for line in found["design"])
    assert "ladder_val_loss.svg" in {path.name for path in (folder / "results").iterdir()}
    records, place = published_results(folder)
    again = rebuild(records, tmp_path / "again", publish=True)
    assert (tmp_path / "again" / "table.md").read_text() == (place / "table.md").read_text()
    assert [each.outcome for each in again.verdicts] == [each["outcome"] for each in found["verdicts"]]
    assert records.cells["tokens"].notna().all()
