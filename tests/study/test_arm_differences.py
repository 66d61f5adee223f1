"""“Only this changed”: which leaves differ from the baseline, and which of them an arm's axis does not say."""

from __future__ import annotations

from typing import Any

import pytest

from swapformer.results.arms import ArmDifference
from swapformer.study import arm_differences
from swapformer.study.arm_differences import find_differences
from swapformer.study.config.compose import compose
from swapformer.study.expand import expand
from swapformer.study.messages import composition_lines
from swapformer.study.plan import Plan
from swapformer.study.run_study import plain_sweep
from swapformer.study.spec import parse

SMALL = ["task=copy", "task.lengths=[2,4]", "task.eval_lengths=[]", "model.num_layers=2", "model.d_model=16"]


def study(**changes: Any) -> Any:
    arms = {"base": [], "alibi": ["model/position=alibi"], "more": ["model/position=t5", "model.dropout=0.1"]}
    return parse({"baseline": "base", "arms": arms, "seeds": 1, "overrides": SMALL, **changes}, "changes")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return expand(study(overrides=[*SMALL, "budget.tokens=3e3", "schedule.warmup_steps=5"]))


@pytest.fixture(scope="module")
def entries(plan: Plan) -> dict[str, ArmDifference]:
    return {each.arm: each for each in find_differences(plan)}


def test_the_baseline_differs_in_nothing(entries: dict[str, ArmDifference]) -> None:
    assert (entries["base"].changes, entries["base"].shapes, entries["base"].beyond) == ((), (), ())


def test_a_swapped_part_changes_its_own_leaves_alone(entries: dict[str, ArmDifference]) -> None:
    changes = {key: (before, after) for key, before, after in entries["alibi"].changes}
    assert changes["model.position._target_"] == ("Rotary", "ALiBi")
    assert all(key.startswith("model.position.") for key in changes)
    assert entries["alibi"].beyond == ()


def test_what_the_axis_does_not_say_is_flagged(plan: Plan, entries: dict[str, ArmDifference]) -> None:
    """All arms that set anything have model/position in common, so that is the axis; dropout is more."""
    assert entries["more"].beyond == ("model.dropout",)
    (said,) = [line for line in composition_lines(plan, list(entries.values())) if line.startswith("more")]
    assert said.startswith("more differs in more than model/position: model.dropout; name what is compared on purpose")


def test_shapes_of_several_layers_are_counted_together(entries: dict[str, ArmDifference]) -> None:
    """T5 has one table of 32 buckets for 4 heads, shared by the layers; ALiBi has no parameter at all."""
    assert entries["alibi"].shapes == ()
    (found,) = entries["more"].shapes
    assert "position" in found.name.lower() and (found.before, found.after, found.count) == (None, (32, 4), 1)


def test_steps_that_follow_from_a_budget_are_announced_and_no_difference(plan: Plan) -> None:
    assert any(line.startswith("budget.tokens=3000 is ") for line in composition_lines(plan, []))
    before = {"budget": {"steps": 5, "flops": 1e9}, "model": {"d_model": 1}}
    after = {"budget": {"steps": 9, "flops": 1e9}, "model": {"d_model": 2}}
    assert list(arm_differences.changed(before, after)) == ["model.d_model"]
    assert list(arm_differences.changed({"budget": {"steps": 5}}, {"budget": {"steps": 9}})) == ["budget.steps"]


def test_what_a_probe_changes_afterwards_follows_from_the_model() -> None:
    """`without=each` names the heads that there are; changes that differ by themselves are differences."""
    one, other = ({"replay": {"changes": {"x": {f"l0h{head}": {"offset": 1}}}}} for head in (0, 1))
    before, after = {"probes": one, "model": {"num_heads": 1}}, {"probes": other, "model": {"num_heads": 2}}
    assert list(arm_differences.changed(before, after)) == ["model.num_heads"]
    assert len(arm_differences.changed({"probes": one}, {"probes": other})) == 2


@pytest.mark.parametrize(
    ("changes", "arm", "expected"),
    [
        ({}, "more", ("model/position",)),
        ({"axis": "model.dropout"}, "more", ("model.dropout",)),
        ({"axis": ["model/position", "model.dropout"]}, "more", ("model/position", "model.dropout")),
        ({"arms": {"base": [], "a": ["x.a=1"], "b": ["x.b=1", "x.c=1"]}}, "b", ("x.b",)),
        ({"arms": {"base": [], "a": ["x.a=1", "x.b=1"]}}, "a", ("x.a",)),
        ({"arms": {"base": [], "a": ["x.a=1", "x.b=1"], "b": ["x.b=2", "x.a=2"]}}, "b", ("x.a",)),
        ({"arms": {"base": ["x.p=0"], "a": ["x.b=1", "x.p=1"]}}, "a", ("x.p",)),
        ({"arms": {"base": ["x.p=0"], "a": ["x.b=1"]}}, "base", ("x.p",)),
        ({"tune": {"optim.lr": [1, 2]}, "match": {"params": "model.ffn.width"}}, "alibi",
         ("model/position", "optim.lr", "model.ffn.width")),
    ],
)  # fmt: skip
def test_the_axis_is_the_studys_or_one_key_in_common_or_the_arms_first(
    changes: dict[str, Any], arm: str, expected: tuple[str, ...]
) -> None:
    assert arm_differences.axes(study(**changes), arm) == expected


RATE = "optim.lr=9e-3"


@pytest.mark.parametrize(
    ("arms", "flagged"),
    [
        ({"base": ["model/position=none"], "a": ["model/position=rope", RATE]}, {"a"}),
        ({"base": ["model/position=none"], "a": [RATE, "model/position=rope"]}, {"a"}),
        ({"base": [], "a": ["model/position=t5", RATE], "b": ["model/position=alibi", RATE]}, {"a", "b"}),
        ({"base": ["model/position=none"], "a": ["model/position=rope", RATE],
          "b": ["model/position=alibi", RATE]}, {"a", "b"}),
        ({"base": ["model/position=none"], "a": ["model/position=rope", RATE], "b": ["model/position=alibi"]}, {"a"}),
        ({"base": ["model/position=none", RATE], "a": ["model/position=rope", RATE]}, set()),
    ],
)  # fmt: skip
def test_a_rate_that_changes_with_the_position_is_flagged_unless_it_is_named(
    arms: dict[str, list[str]], flagged: set[str]
) -> None:
    configs = {arm: compose([*SMALL, *own]) for arm, own in arms.items()}

    def beyond(spec: Any) -> dict[str, tuple[str, ...]]:
        leaves = {arm: list(arm_differences.changed(configs["base"], config)) for arm, config in configs.items()}
        return {arm: arm_differences.beyond(spec, arm, found) for arm, found in leaves.items()}

    assert beyond(study(arms=arms)) == {arm: ("optim.lr",) if arm in flagged else () for arm in arms}
    assert not any(beyond(study(arms=arms, axis=["model/position", "optim.lr"])).values())


def test_all_that_a_plain_sweep_varies_is_its_axis() -> None:
    jobs = [[f"model/position={part}", f"optim.lr={rate}"] for part in ("none", "rope") for rate in ("1e-3", "3e-3")]
    assert plain_sweep(jobs).axis == ("model/position", "optim.lr")
    assert plain_sweep(jobs[::2]).axis == (), "one key, which need not be a number"


def test_an_option_covers_what_its_own_file_sets_and_not_what_it_chooses_for_others() -> None:
    """model/size sets sizes of the model; a preset chooses parts of other slots, which are more than one thing."""
    spec = study(arms={"base": [], "size": ["model/size=micro"]}, overrides=SMALL[:3])
    base, size = (compose([*SMALL[:3], *spec.arms[arm]]) for arm in ("base", "size"))
    changed = arm_differences.changed(base, size)
    assert {"model.num_layers", "model.d_model"} <= changed.keys()
    assert arm_differences.beyond(spec, "size", list(changed)) == ()
    spec = study(arms={"base": [], "deep": ["+preset=deepnorm"]})
    deep = compose([*SMALL, "+preset=deepnorm"])
    found = arm_differences.beyond(spec, "deep", list(arm_differences.changed(compose(SMALL), deep)))
    assert {key.split(".")[1] for key in found} == {"placement", "residual", "init"}


def test_lists_of_layers_are_compared_layer_by_layer() -> None:
    one = {"layers": [{"num_heads": 2}, {}], "betas": [0.9, 0.95]}
    two = {"layers": [{"num_heads": 4}, {}], "betas": [0.9, 0.99]}
    assert arm_differences.changed(one, two) == {"layers.0.num_heads": (2, 4), "betas": ([0.9, 0.95], [0.9, 0.99])}
