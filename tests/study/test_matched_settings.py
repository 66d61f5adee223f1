"""`match` beside `grid` and `tune`: equal in each condition, and with every setting that an arm may choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.study.config import compose
from swapformer.study.expand import expand
from swapformer.study.plan import Plan
from swapformer.study.spec import parse

ARMS = {"h2": ["model.heads=2"], "h14": ["model.heads=14"]}
MATCH = {"params": "model.width", "within": 0.01}


@pytest.fixture
def composer(tmp_path: Path) -> fakes.Composer:
    return fakes.Composer(tmp_path / "journal", tmp_path / "runs")


def plan(composer: fakes.Composer, **changes: Any) -> Plan:
    """A unit of width costs 12, a head 1, a symbol of the task 100."""
    arms = changes.get("arms", ARMS)
    raw = {
        "baseline": next(iter(arms)),
        "arms": arms,
        "seeds": 1,
        "match": MATCH,
        "overrides": ["model.width=6", "best=1"],
        **changes,
    }
    return expand(parse(raw, "matched"), (), composer)


def test_arms_are_matched_in_each_condition_before_they_are_tuned(composer: fakes.Composer) -> None:
    """With 12 heads more, h14 must be a unit narrower than the baseline, whose cost the condition changes."""
    found = plan(composer, arms={**ARMS, "h99": ["model.heads=99"]}, grid={"task.symbols": [0, 3]}, tune={"lr": [1, 2]})
    assert {place: (each.override, each.target) for place, each in found.matched.items()} == {
        ("h14", "task.symbols=0"): (("model.width=5",), 12 * 6 + 2),
        ("h14", "task.symbols=3"): (("model.width=5",), 12 * 6 + 2 + 300),
    }
    assert {each.config["model"]["width"] for each in found.templates if each.arm == "h14"} == {5}
    assert {each.config["model"]["width"] for each in found.templates if each.arm == "h2"} == {6}
    assert [each.setting for each in found.templates[:2]] == [("lr=1",), ("lr=2",)]
    assert "cannot bring parameters to within 1 %" in found.impossible["h99", "task.symbols=0"]


def test_some_arms_alone_are_matched_each_by_its_own_key(composer: fakes.Composer) -> None:
    """h14 costs 12 more; what h3 costs more stays, since nothing of it is solved."""
    arms = {**ARMS, "h3": ["model.heads=3"]}
    found = plan(composer, arms=arms, match={"params": {"h14": "model.width"}, "within": 0.01})
    assert {place: each.override for place, each in found.matched.items()} == {("h14", ""): ("model.width=5",)}
    assert [each.config["model"]["width"] for each in found.templates] == [6, 5, 6]
    for wrong in ({"h2": "model.width"}, {"h41": "model.width"}):
        with pytest.raises(UsageError, match="solves a size of arms other than the baseline, but 'h"):
            plan(composer, arms=arms, match={"params": wrong})
    with pytest.raises(UsageError, match="the key of the size"):
        plan(composer, arms=arms, match={"params": {"h14": 3}})


def test_a_tuned_key_that_changes_what_is_matched_is_refused(composer: fakes.Composer) -> None:
    with pytest.raises(UsageError) as error:
        plan(composer, tune={"lr": [1, 2], "task.symbols": [0, 3]})
    assert str(error.value) == (
        "`tune` must leave the parameters that `match` makes equal as they are, but arm h2 has 374 with lr=1, "
        "task.symbols=3 and 74 with lr=1, task.symbols=0; tune what costs nothing, such as optim.lr, and put "
        "task.symbols into `grid`: it is matched there"
    )


def test_an_arm_is_refused_whose_settings_cost_otherwise_though_the_baselines_do_not(composer: fakes.Composer) -> None:
    """Rows cost nothing where there are few heads."""
    with pytest.raises(UsageError, match=r"arm h14 with k=a has .* with rows=2 and 74 with rows=1; .* put rows into"):
        plan(_Uneven(composer.journal, composer.runs_dir), tune={"rows": [1, 2]}, grid={"k": ["a", "b"]})


class _Uneven(fakes.Composer):
    """With many heads, each row but the first is a symbol."""

    def compose(self, overrides: Any) -> dict[str, Any]:
        resolved = super().compose(overrides)
        resolved["task"]["symbols"] = (resolved["model"]["heads"] > 2) * (resolved["rows"] - 1)
        return resolved


def test_a_size_is_solved_with_the_first_setting_that_the_arm_can_have(composer: fakes.Composer) -> None:
    arms = {"wide": [], "narrow": ["task.symbols=1"]}
    found = plan(_Picky(composer.journal, composer.runs_dir), arms=arms, tune={"lr": [1, 2], "seeds": 1},
                 overrides=["model.width=20"], match={"params": "model.width", "within": 0.05})  # fmt: skip
    matched = found.matched["narrow", ""]
    assert (matched.target, matched.cost) == (12 * 20, 12 * 12 + 100)
    assert set(found.refused) == {(("narrow", ""), ("lr=1",))}


class _Picky(fakes.Composer):
    """A rate of 1 goes together with no symbols alone, and costs nobody knows what."""

    def check(self, config: dict[str, Any], *_: Any) -> None:
        super().check(config)
        if config["lr"] == 1 and config["task"].get("symbols"):
            raise UsageError("a rate of 1 needs a task without symbols")

    def cost(self, config: Any, what: Any) -> int:
        assert config["lr"] == 2 or not config["task"].get("symbols")
        return super().cost(config, what)


def test_an_arm_without_any_possible_setting_is_impossible(composer: fakes.Composer) -> None:
    arms = {"h2": ["model.heads=2"], "h14": ["model.heads=14"], "h7": ["model.heads=7"]}
    found = plan(composer, arms=arms, tune={"lr": [1, 2]})
    assert found.impossible == {("h7", ""): "heads must divide the width"}
    assert set(found.matched) == {("h14", "")}
    with pytest.raises(UsageError, match="the baseline 'h7' cannot be built: heads must divide"):
        plan(composer, arms=arms, baseline="h7", tune={"lr": [1, 2]})


def test_each_model_with_its_task_is_counted_once(composer: fakes.Composer) -> None:
    plan(composer, match=MATCH)
    once = composer.counted
    plan(composer, match=MATCH, tune={"lr": [1, 2, 3], "best": [4, 5]}, overrides=["model.width=6"])
    assert composer.counted == 2 * once


SMALL = ["task=copy", "task.lengths=[2,4]", "task.eval_lengths=[]", "model.num_layers=1", "model.num_heads=2"]
GATED = {"baseline": "mlp", "arms": {"mlp": ["model/ffn=mlp"], "glu": ["model/ffn=glu"]}, "seeds": 1,
         "match": {"params": "model.ffn.width"}}  # fmt: skip


def test_a_real_width_that_is_tuned_cannot_be_matched_and_a_rate_can() -> None:
    with pytest.raises(
        UsageError, match=r"arm mlp has [\d,]+ with model.d_model=64 and [\d,]+ with model.d_model=16; "
    ):
        expand(parse({**GATED, "overrides": SMALL, "tune": {"model.d_model": [16, 64]}}, "real"))
    found = expand(parse({**GATED, "overrides": [*SMALL, "model.d_model=16"], "tune": {"optim.lr": [1, 2]}}, "real"))
    costs = {each.arm: compose.cost(each.config, "params") for each in found.templates}
    assert abs(costs["glu"] / costs["mlp"] - 1) < 0.05 and len(found.templates) == 4
    assert costs["glu"] == found.matched["glu", ""].cost


def test_a_real_width_in_the_grid_is_matched_at_each_value() -> None:
    found = expand(parse({**GATED, "overrides": SMALL, "grid": {"model.d_model": [16, 64]}}, "real"))
    costs = {each.arm_condition: compose.cost(each.config, "params") for each in found.templates}
    for condition in ("model.d_model=16", "model.d_model=64"):
        assert abs(costs["glu", condition] / costs["mlp", condition] - 1) < 0.05


@pytest.mark.parametrize(
    ("arm", "key"),
    [
        (["model/ffn=glu", "model.layers=[{at: 0, num_heads: 1}]"], "model.ffn.width"),
        (["model/norm=rmsnorm", "model.layers=[{at: 0, ffn.drop_hidden: true}]"], "model.ffn.width"),
        (["model/norm=rmsnorm", "model.layers=[{at: -1, norm: none}]"], "model.num_layers"),
        (["model/norm=rmsnorm", "model.ffn.width=${model.d_model}"], "model.d_model"),
    ],
)
def test_what_follows_a_size_is_matched_as_it_is_built(arm: list[str], key: str) -> None:
    """Layers with settings of their own hold a copy of the part's node; other settings may refer to the size."""
    raw = {"baseline": "a", "arms": {"a": ["model.num_layers=2"], "b": ["model.bias=false", *arm]}, "seeds": 1,
           "overrides": [*SMALL[:-2], "model.num_layers=2", "model.num_heads=2", "model.d_model=16"],
           "match": {"params": key, "within": 0.5}}  # fmt: skip
    found = expand(parse(raw, "layered"))
    costs = {each.arm: compose.cost(each.config, "params") for each in found.templates}
    solved = found.matched["b", ""]
    assert solved.value is not None and costs["b"] == solved.cost and costs["a"] == solved.target

    def cost_at(size: int) -> float:
        (b,) = (each for each in found.templates if each.arm == "b")
        changed = [f"{key}={size}" if text.startswith(f"{key}=") else text for text in b.overrides]
        return abs(compose.cost(compose.compose(changed), "params") - costs["a"])

    step = 4 if key == "model.d_model" else 1
    assert cost_at(int(solved.value)) <= min(cost_at(int(solved.value) - step), cost_at(int(solved.value) + step))


def test_a_size_takes_the_place_of_what_it_is_an_alternative_to() -> None:
    """An expansion for all arms is the baseline's; an arm's own would be overruled without a word."""
    expanded = {**GATED, "overrides": [*SMALL, "model.d_model=16", "model.ffn.expansion=2"]}
    found = expand(parse(expanded, "real"))
    (glu,) = (each for each in found.templates if each.arm == "glu")
    assert glu.overrides[-2:] == (f"model.ffn.width={found.matched['glu', ''].value}", "model.ffn.expansion=null")
    assert found.matched["glu", ""].value == round(2 / 3 * 2 * 16)
    arms = {"mlp": ["model/ffn=mlp"], "glu": ["model/ffn=glu", "model.ffn.expansion=2"]}
    with pytest.raises(UsageError, match=r"arm 'glu' must not set model.ffn.expansion, which model.ffn.width takes"):
        expand(parse({**GATED, "arms": arms, "overrides": [*SMALL, "model.d_model=16"]}, "real"))
