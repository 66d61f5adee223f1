"""Solving a size: against an exhaustive search, against closed forms of real models, and what cannot be matched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from swapformer.errors import UsageError
from swapformer.study.comparison import Matching
from swapformer.study.config.compose import compose, cost
from swapformer.study.match import LARGEST, solve

SMALL = ("task=copy", "task.lengths=[2,4]", "task.eval_lengths=[]", "model.num_layers=1", "model.d_model=32")
WIDTH = Matching("params", "model.size", 10.0)


def matched(costs: Mapping[int, int], target: int, now: float | None = None, calls: list[int] | None = None) -> Any:
    """Solve a size whose costs are given; sizes that are not there are impossible."""

    def cost_of(config: Mapping[str, Any], what: str) -> int:
        size = config["model"]["size"]
        if calls is not None:
            calls.append(size)
        if size is None:
            return -1
        if size not in costs:
            raise ValueError(f"{size} is impossible")
        return costs[size]

    return solve(WIDTH, {"model": {"size": now}}, target, cost_of)


def test_the_nearest_of_all_possible_sizes_is_found() -> None:
    """Costs that grow by random steps, with stretches where they stay and sizes that are impossible."""
    generator = np.random.default_rng(3)
    for _ in range(200):
        steps = generator.integers(0, 40, 300).cumsum() + 1
        possible = [size for size in range(1, 301) if generator.random() < 0.6]
        costs = {size: int(steps[size - 1]) for size in possible}
        target = int(generator.integers(max(costs[possible[0]] // 2, 1), costs[possible[-1]]))
        best = min(possible, key=lambda size: (abs(costs[size] - target), size))
        found = matched(costs, target, now=int(generator.choice(possible)))
        assert abs(found.cost - target) == abs(costs[best] - target), (target, found)
        assert found.cost == costs[found.value]


def test_few_sizes_are_counted() -> None:
    """Counting a model takes longer than all the rest, and costs are nearly linear in a width."""
    calls: list[int] = []
    costs = {size: 7 * size * size + 1000 * size + 50_000 for size in range(1, 5000)}
    assert matched(costs, costs[2718], calls=calls).value == 2718
    assert len(set(calls)) < 20


def test_what_costs_the_same_already_is_left_alone() -> None:
    assert solve(WIDTH, {"model": {"size": 5}}, 60, lambda config, what: 60).override == ()


def test_a_size_that_is_not_whole_is_solved_for_thousandths() -> None:
    found = solve(WIDTH, {"model": {"size": 4.0}}, 2667, lambda config, what: round(1000 * config["model"]["size"]))
    assert (found.value, found.mismatch, found.override) == (2.667, 0.0, ("model.size=2.667",))


@pytest.mark.parametrize(
    ("matching", "config", "complaint"),
    [
        (Matching("params", "model.width", 0.05), {}, "adjusts model.width, which this arm does not have"),
        (Matching("params", "model.bias", 0.05), {}, "adjusts a number, but model.bias is True"),
        (Matching("params", "model.dead", 0.05), {}, "cannot use model.dead: with it, parameters"),
        (Matching("params", "model.size", 0.001), {}, r"within 0.1 % .* by model.size: the nearest are 9 \(-8.7.* 10 "),
        (Matching("params", "model.size", 0.05), {"fixed": 3000}, r"the nearest are 1 \(\+208 %\)"),
    ],
)
def test_what_cannot_be_matched_is_said(matching: Matching, config: Any, complaint: str) -> None:
    node = {"model": {"size": 4, "bias": True, "dead": 3, "fixed": 0} | config}
    with pytest.raises(UsageError, match=complaint):
        solve(matching, node, 1007, lambda each, what: each["model"]["fixed"] + 102 * each["model"]["size"] + 1)


def test_a_search_ends_where_costs_stay_short_of_the_target() -> None:
    counted: list[int] = []

    def saturates(config: Mapping[str, Any], what: str) -> int:
        counted.append(config["model"]["size"])
        return min(config["model"]["size"], 8)

    with pytest.raises(UsageError, match="do not grow as far as the baseline's"):
        solve(WIDTH, {"model": {"size": 4}}, 1000, saturates)
    assert max(counted) <= 2 * LARGEST


@pytest.fixture(scope="module")
def baseline() -> dict[str, Any]:
    return compose([*SMALL])


def real(what: Any, key: str, baseline: dict[str, Any], *overrides: str) -> Any:
    config = compose([*SMALL, *overrides])
    return solve(Matching(what, key, 0.05), config, cost(baseline, what), cost)


def test_a_gated_layer_gets_two_thirds_of_the_width(baseline: dict[str, Any]) -> None:
    """Three matrices and 2F + D biases against two matrices and F + D (Shazeer 2020: “reduce by a factor of 2/3”)."""
    d, width = 32, 128
    found = real("params", "model.ffn.width", baseline, "model/ffn=glu")

    def difference(f: int) -> int:
        return (3 * d * f + 2 * f + d) - (2 * d * width + width + d)

    assert found.value == min(range(1, 200), key=lambda f: abs(difference(f)))
    assert found.cost - found.target == difference(found.value)
    flops = real("flops", "model.ffn.width", baseline, "model/ffn=glu")
    assert flops.value == round(2 / 3 * width) and abs(flops.mismatch) < 0.01


def test_layers_are_added_until_the_cache_is_as_large(baseline: dict[str, Any]) -> None:
    """A layer with four heads of keys keeps what four layers with one do."""
    found = real("kv_bytes", "model.num_layers", baseline, "model/attention=mqa")
    assert (found.value, found.mismatch) == (4, 0.0)
    with pytest.raises(UsageError, match="no kv_bytes to match"):
        real("kv_bytes", "model.num_layers", baseline, "model/attention=nystrom", "model/pattern=full")


def test_a_window_is_as_wide_as_attends_equally_many_pairs(baseline: dict[str, Any]) -> None:
    """Half of the pairs of a causal model, against every width that a window can have here."""
    target = cost(baseline, "pairs") // 2
    config = compose([*SMALL, "model/pattern=window"])
    found = solve(Matching("pairs", "model.pattern.before", 0.1), config, target, cost)
    node = config["model"]["pattern"]
    costs = {
        width: cost({**config, "model": {**config["model"], "pattern": {**node, "before": width}}}, "pairs")
        for width in range(9)
    }
    assert found.value == min(costs, key=lambda width: abs(costs[width] - target))
    assert found.cost == costs[int(found.value)] < costs[8] == cost(baseline, "pairs")


def test_widths_that_heads_do_not_divide_are_passed_over(baseline: dict[str, Any]) -> None:
    found = real("params", "model.d_model", baseline, "model/norm=rmsnorm", "model.bias=false")
    assert found.value % 8 == 0, "four heads of an even width, for rope"
