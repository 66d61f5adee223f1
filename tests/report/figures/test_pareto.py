"""What quality costs: who is on the front, who is beaten beyond doubt, who is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from report.store import Store
from swapformer.report.build import Report, build
from swapformer.report.figures import pareto, svg
from swapformer.report.figures.pareto import ParetoRank, known_costs, pareto_plots, pareto_ranks

#: Parameters, loss of the seeds: cheap and bad; dearer and better; dearer and worse for sure; dearer, worse on average.
ARMS = {
    "cheap": (100, [2.0, 2.1, 2.2, 2.3]),
    "good": (200, [1.0, 1.1, 1.21, 1.3]),
    "beaten": (300, [1.5, 1.6, 1.7, 1.82]),
    "unclear": (300, [1.4, 0.8, 1.6, 1.0]),
}


def built(root: Path, lost: str = "", directions: Mapping[str, str] | None = None) -> Report:
    store = Store(root, {arm: [] for arm in ARMS}, "cheap", ["val/loss"], range(4))
    store.directions = dict(directions if directions is not None else {"val/loss": "lower"})
    for arm, (size, losses) in ARMS.items():
        for seed, loss in enumerate(losses):
            status = "diverged" if arm == lost and seed == 0 else "finished"
            parameters = {"total": size, "non_position": size}
            store.write_trial(arm, seed, {"val/loss": loss}, status, parameters=parameters)
    store.write_manifest()
    return build(store.study, store.runs)


def found(report: Report) -> dict[str, ParetoRank]:
    data = report.views[0].data
    (price,) = known_costs(data, {}, {})
    return pareto_ranks(data, "val/loss", price)


def test_the_front_holds_what_nothing_beats_and_doubt_is_not_called_defeat(tmp_path: Path) -> None:
    assert found(built(tmp_path)) == {"cheap": "front", "good": "front", "beaten": "beaten", "unclear": "open"}


def test_where_higher_is_better_the_front_turns(tmp_path: Path) -> None:
    standing = found(built(tmp_path, directions={"val/loss": "higher"}))
    assert standing == {"cheap": "front", "good": "beaten", "beaten": "beaten", "unclear": "beaten"}


def test_an_arm_that_diverged_is_not_weighed_and_the_caption_says_so(tmp_path: Path) -> None:
    report = built(tmp_path, lost="good")
    assert found(report) == {"cheap": "front", "beaten": "open", "unclear": "front"}
    (figure,) = [each for each in report.views[0].figures if each.name.startswith("pareto")]
    assert "Left out, since trials diverged or have no finite value: good." in figure.caption
    assert figure.tooltips is not None and "good" not in {marks["arm"] for marks in figure.tooltips["marks"]}


def test_a_cost_that_all_share_is_not_drawn(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"])
    store.fill({"a": 1.0, "b": 1.1}, steps=2)
    report = build(store.study, store.runs)
    assert not [each for each in report.views[0].figures if each.name.startswith("pareto")]


@pytest.mark.parametrize(("value", "text"), [(100.0, "100"), (300.0, "300")])
def test_what_is_told_is_the_cost_and_the_tables_number(tmp_path: Path, value: float, text: str) -> None:
    report = built(tmp_path)
    (figure,) = [each for each in report.views[0].figures if each.name.startswith("pareto")]
    assert figure.tooltips is not None
    told = {marks["arm"]: (marks["x"], marks["y"], marks["text"][0]) for marks in figure.tooltips["marks"]}
    for row in report.rows:
        summary = row.summaries["val/loss"]
        x, y, words = told[row.arm]
        assert (x, y) == ([row.parameters], pytest.approx([summary.mean]))
        assert words == f"{summary.text} {summary.interval_text}, {row.parameters:.0f} parameters"
    assert any(t[0] == [value] and text in t[2] for t in told.values())


def test_an_arm_whose_cost_is_not_known_is_named(tmp_path: Path) -> None:
    data = built(tmp_path).views[0].data
    with svg.settings():
        _, figure = pareto_plots(data, {}, {"cheap": 100.0, "good": 50.0, "beaten": 100.0, "unclear": math.nan})
    assert figure is not None and "Not drawn, since the cost or the value is not known: unclear." in figure.caption


def test_attended_pairs_are_a_price_where_arms_differ_in_them(tmp_path: Path) -> None:
    data = built(tmp_path).views[0].data
    pairs = dict.fromkeys(ARMS, 100.0) | {"good": 50.0}
    assert [each.slug for each in known_costs(data, {}, pairs)] == ["parameters", "pairs"]
    assert [each.slug for each in known_costs(data, {}, dict.fromkeys(ARMS, 100.0))] == ["parameters"]
    with svg.settings():
        names = [each.name for each in pareto_plots(data, {}, pairs) if each is not None]
    assert names == ["pareto_parameters_val_loss", "pareto_pairs_val_loss"]


def test_arms_that_cost_the_same_stand_side_by_side() -> None:
    """Around their cost, in order, and never further than the figure has room for."""
    costs = {"a": 5.0, "b": 7.0, "c": 5.0, "d": 5.0}
    assert [pareto._points_apart(arm, costs) for arm in costs] == [-9.0, 0.0, 0.0, 9.0]
    many = {str(number): 1.0 for number in range(10)}
    assert pareto._points_apart("9", many) - pareto._points_apart("0", many) == pytest.approx(36.0)


def test_what_is_set_apart_keeps_its_values() -> None:
    axes = Figure(dpi=72).subplots()
    axes.plot([1.0], [2.0], "o")
    with pareto._set_apart(axes, 9.0):
        axes.plot([1.0], [2.0], "o")
    first, second = axes.lines
    assert first.get_xydata().tolist() == second.get_xydata().tolist() == [[1.0, 2.0]]
    one, other = (line.get_transform().transform([1.0, 2.0]) for line in (first, second))
    assert (other - one).tolist() == pytest.approx([9.0, 0.0])
