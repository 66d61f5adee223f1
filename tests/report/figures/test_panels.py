"""Lines with bands: what is drawn of few seeds, and what a caption says of it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from swapformer.report.figures import svg
from swapformer.report.figures.panels import band_words, draw_bands
from swapformer.report.figures.scales import short
from swapformer.report.figures.style import series_styles
from swapformer.report.figures.tooltips import Tooltips

STEPS = [10, 20, 30]


def drawn(table: pd.DataFrame) -> Axes:
    axes: Axes = Figure().subplots()
    data: Any = SimpleNamespace(styles=series_styles(["a"], ordered=False), baseline="a")
    draw_bands({"a": axes}, {"a": table}, data, Tooltips("step"))
    return axes


def test_two_seeds_are_lines_of_their_own_beside_their_mean() -> None:
    table = pd.DataFrame({0: [3.0, 2.0, 1.0], 1: [3.5, 2.25, 1.5]}, index=STEPS)
    axes = drawn(table)
    assert not axes.collections, "no band"
    lines = [list(np.asarray(line.get_ydata(), dtype=float)) for line in axes.lines]
    assert lines == [[3.0, 2.0, 1.0], [3.5, 2.25, 1.5], [3.25, 2.125, 1.25]]
    assert axes.get_ylim()[1] - axes.get_ylim()[0] < 3, "the frame is that of the seeds"


def test_three_seeds_have_a_band_of_t() -> None:
    """Held to scipy's t interval."""
    table = pd.DataFrame({0: [3.0, 2.0, 1.0], 1: [3.5, 2.25, 1.5], 2: [3.25, 2.5, 1.0]}, index=STEPS)
    axes = drawn(table)
    (band,) = axes.collections
    assert len(axes.lines) == 1
    low, high = stats.t.interval(0.95, 2, table.loc[10].mean(), stats.sem(table.loc[10]))
    at_first = [y for x, y in band.get_paths()[0].vertices if x == 10]
    assert (min(at_first), max(at_first)) == pytest.approx((low, high))


def test_a_caption_says_which_of_them_it_is() -> None:
    two, three = (pd.DataFrame(np.zeros((2, seeds))) for seeds in (2, 3))
    assert band_words([three]) == "Mean over finished seeds with its 95 % t band"
    assert band_words([two], "Mean difference") == "Mean difference; thin lines are the seeds, of which a band needs 3"
    assert band_words([two, three]).endswith("with its 95 % t band; thin lines are the seeds, of which a band needs 3")


@pytest.mark.parametrize("upright", [True, False], ids=["values upward", "values to the right"])
def test_a_level_is_drawn_across_the_axis_of_the_values(upright: bool) -> None:
    """Arms in a strip have their values on the horizontal axis; a level that is far off is told at the edge."""
    with svg.settings():
        figure = svg.new_figure(2.0)
        axes = svg.add_panel(figure, 0.5, 0.5, 0.3, 0.2)
        axes.plot([1.0, 2.0], [0.0, 1.0])
        svg.label(axes, *(("steps", "loss") if upright else ("loss",)))
        rows = axes.get_xlim() if upright else axes.get_ylim()
        svg.relabel(figure, "", "", {"a counter": 2.0, "guessing": 90.0})
        low, high = axes.get_ylim() if upright else axes.get_xlim()
        assert low < 1 and 2.0 < high < 3 and (axes.get_xlim() if upright else axes.get_ylim()) == rows
        assert len(axes.lines) == 2
        x, y = axes.lines[-1].get_data()
        assert list(y if upright else x) == [2.0, 2.0]
        assert [text.get_text() for text in axes.texts] == ["a counter", f"guessing: 90 {'↑' if upright else '→'}"]


def test_levels_of_equal_values_share_a_line_and_those_of_a_logarithmic_axis_are_near_by_their_logarithms() -> None:
    with svg.settings():
        figure = svg.new_figure(2.0)
        axes = svg.add_panel(figure, 0.5, 0.5, 0.3, 0.2)
        axes.plot([1.0, 2.0], [0.01, 10.0])
        axes.set_yscale("log")
        svg.label(axes, "steps", "loss")
        svg.relabel(figure, "", "", {"near": 0.001, "as near": 0.001, "far": 1e-9, "none": 0.0})
        low, high = axes.get_ylim()
        assert 1e-4 < low < 0.001 and 9 < high < 30
        assert [text.get_text() for text in axes.texts] == ["near, as near", "far: 1e-09, none: 0 ↓"]


def test_a_large_figure_keeps_what_is_written_in_it() -> None:
    """Coordinates have a tenth of a point there; names and numbers that are read keep all digits."""
    with svg.settings():
        figure = svg.new_figure(2.0)
        axes = svg.add_panel(figure, 0.5, 0.5, 0.3, 0.2)
        for number in range(12):
            axes.plot(np.arange(2000) / 7, np.random.default_rng(number).random(2000))
        axes.set_title("lr=0.00125")
        text = svg.to_svg(figure, "0.00678 of all")
    assert len(text) < 1_000_000 and not re.search(r' d="[^"]*\d\.\d\d\d', text), "it was rounded"
    assert ">lr=0.00125<" in text and ">0.00678 of all<" in text


def test_names_of_levels_stand_below_the_rows_and_beside_each_other() -> None:
    with svg.settings():
        figure = svg.new_figure(2.0)
        axes = svg.add_panel(figure, 0.5, 0.5, 0.3, 0.2)
        axes.plot([1.4, 2.2], [0.0, 1.0])
        axes.set_ylim(1.5, -0.5)
        svg.label(axes, "loss")
        svg.relabel(figure, "", "", {"a 4-gram counter": 1.3, "a trigram counter": 1.8})
        assert axes.get_ylim() == pytest.approx((1.9, -0.5)), "below the last row is room for a line"
        first, second = (text.get_window_extent() for text in axes.texts)
        assert first.x1 < second.x0


def test_other_labels_of_several_panels_stand_where_the_old_ones_stood() -> None:
    with svg.settings():
        figure = svg.new_figure(2.0)
        old = [
            figure.supxlabel("steps", y=0.3, fontsize=svg.FONT),
            figure.supylabel("loss", x=0.2, fontsize=svg.FONT),
        ]
        before = [(text.get_position(), text.get_fontsize()) for text in old]
        svg.relabel(figure, "tokens in sight", "accuracy", {})
        assert [figure.get_supxlabel(), figure.get_supylabel()] == ["tokens in sight", "accuracy"]
        assert [(text.get_position(), text.get_fontsize()) for text in old] == before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "0.05"),
        (2000, "2000"),
        (50_000, "50000"),
        (500_000, "500k"),
        (2e7, "20M"),
        (1e9, "1G"),
        (2e13, "20T"),
        (1e22, "1e+22"),
        (1e-6, "1e−06"),
    ],
)
def test_a_tick_is_a_short_number(value: float, text: str) -> None:
    """Long ones would push the axis' label off the figure."""
    assert short(value) == text


@pytest.mark.parametrize(
    ("limit", "names"), [(4e6, ["0", "1M", "2M", "3M", "4M"]), (4e5, ["0", "100000", "200000", "300000", "400000"])]
)
def test_a_linear_axis_has_no_factor_at_its_end(limit: float, names: list[str]) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.set_xlim(0, limit)
    svg.few_ticks(axes, "x", 4)
    figure.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == names
    assert axes.xaxis.get_offset_text().get_text() == ""


@pytest.mark.parametrize(("last", "side"), [(8, "right"), (4, "center")])
def test_a_name_at_the_end_of_a_small_panel_stays_within_it(last: int, side: str) -> None:
    axes = svg.add_panel(svg.new_figure(1.0), 0.5, 0.3, 0.1, 0.1)
    axes.set_xlim(1, 8.2)
    svg.ticks_at(axes, [1, last], ["1024", "4096"], within=True)
    assert [name.get_horizontalalignment() for name in axes.get_xticklabels()] == ["center", side]
