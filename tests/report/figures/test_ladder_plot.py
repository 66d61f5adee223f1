"""The figure of a ladder: all marks within their frames, the operations of a rung, and what it says that it draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from swapformer.report.figures import ladder_plot as drawn
from swapformer.report.figures import svg
from swapformer.report.figures.style import arm_styles
from swapformer.report.statistics.ladder_effects import ArmEffect, EffectLine
from swapformer.report.statistics.ladder_summary import ArmCourse, LadderSummary
from swapformer.report.statistics.scaling_law import fit

RUNGS = ("s0", "s1", "s2", "s3")
OPERATIONS = dict(zip(RUNGS, (1e12, 4e12, 1.6e13, 6.4e13), strict=True))
LOSSES = {"base": (3.5, 3.2, 3.0, 2.87), "dear": (3.4, 3.1, 2.9, 2.8), "fast": (3.1, 2.9, 2.8, 2.7)}
COST = {"base": 1.0, "dear": 8.0, "fast": 0.5}


def summary(*, whole: bool) -> LadderSummary:
    """Arms that cost more and less than the baseline, with large speed-ups; or no law and no arms."""
    costs = {(arm, rung): COST[arm] * OPERATIONS[rung] for arm in LOSSES for rung in RUNGS}
    means = {arm: dict(zip(RUNGS, losses, strict=True)) for arm, losses in LOSSES.items()}
    law = fit(np.array(LOSSES["base"]), np.array(list(OPERATIONS.values())))
    none = (0.0, 0.0, 0.0)
    arms = (
        ArmCourse("dear", {"s0": (1.2, 0.9, 1.6), "s2": (1.4, 1.1, math.inf)}, (1.5, 1.1, 2.0), none),
        ArmCourse("fast", {"s0": (8, 6, 11), "s2": (28, 24, 33)}, (60, 40, 90), none),
    )
    after = 2.56e14 if whole else math.nan
    given: Any = (law, OPERATIONS, costs, means, arms) if whole else (None, OPERATIONS, costs, means, ())
    effects = tuple(
        ArmEffect(
            arm, {at: (LOSSES[arm][i] - LOSSES["base"][i], -0.5, math.inf) for i, at in enumerate(RUNGS)}, line, ""
        )
        for arm, line in (("dear", EffectLine(42.0, -0.1, (0.01, 0.0, 0.02))), ("fast", None))
    )
    return LadderSummary("val/loss", "base", RUNGS, *given, after, (), effects if whole else ())


def test_every_mark_lies_within_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    render = svg.to_svg
    monkeypatch.setattr(svg, "to_svg", lambda figure, *rest: figures.append(figure) or render(figure, *rest))
    with svg.settings():
        found = drawn.ladder_plot(summary(whole=True), arm_styles(list(LOSSES), "base", False))
    assert found is not None
    marks = [(axes, line) for axes in figures[0].axes for line in axes.lines if line.get_marker() not in ("None", "")]
    assert len(marks) >= 5
    for axes, line in marks:
        assert all(axes.get_xlim()[0] <= x <= axes.get_xlim()[1] for x in line.get_xdata())
        assert all(axes.get_ylim()[0] <= y <= axes.get_ylim()[1] for y in line.get_ydata())
    rows = [line.split(",") for line in found.csv.splitlines() if line.startswith(("dear,s0", "fast,s0"))]
    assert {float(row[2]) for row in rows} == {1e12, 8e12, 5e11}, "not where marks stand beside one another"
    (differences,) = (axes for axes in figures[0].axes if axes.get_ylabel() == "Δ to base")
    assert "three rungs or more lie on one" in found.caption
    lines = [line for line in differences.lines if len(line.get_xdata()) > len(RUNGS)]
    assert len(lines) == 1, "only where there is one"
    assert "the next size" in found.csv and "Dashed" in found.caption and "hollow" in found.caption


def test_nothing_is_told_of_what_is_not_drawn() -> None:
    with svg.settings():
        found = drawn.ladder_plot(summary(whole=False), arm_styles(list(LOSSES), "base", False))
    assert found is not None and found.caption == "Means over seeds."
