"""One drawer for each shape: it draws what was found, the CSV has it to the last digit, edge cases break nothing.

Numbers are means over seeds where axes agree; expected intervals are scipy's.
"""

from __future__ import annotations

import csv
import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from report.store import Store
from swapformer.report.build import Report, build
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure, figure_data, shown_as
from swapformer.report.figures.shapes import attention_maps, cells, draw_shapes
from swapformer.report.figures.shapes.found import Found
from swapformer.report.records import read
from swapformer.results.arms import ShownFigure
from swapformer.results.artifacts import Artifact, write_artifact
from swapformer.results.shapes import AttentionMaps, Curve, Histogram, Matrix, Profile, Published, Shape, Table

NASTY = 'a <b> & "c" ' + "long_" * 12


def study(root: Path, found: Mapping[str, Sequence[Mapping[str, Shape]]]) -> Store:
    """`found[arm][seed]` is what the probe `p` found of a trial."""
    store = Store(root, {arm: [] for arm in found}, next(iter(found)), ["val/loss"], range(3))
    for arm, seeds in found.items():
        for seed, shapes in enumerate(seeds):
            write_artifact(store.write_trial(arm, seed, {"val/loss": 1.0 + seed}), "p", Artifact({}, {}, shapes))
    store.write_manifest()
    return store


def drawn(root: Path, found: Mapping[str, Sequence[Mapping[str, Shape]]]) -> list[ReportFigure]:
    store = study(root, found)
    (data,) = figure_data(read(store.study, store.runs), []).values()
    with svg.settings():
        return [figure for figure in draw_shapes(data) if figure is not None]


def alone(root: Path, found: Mapping[str, Sequence[Shape]]) -> ReportFigure:
    (figure,) = drawn(root, {arm: [{"x": shape} for shape in seeds] for arm, seeds in found.items()})
    ET.fromstring(figure.svg)
    return figure


def rows(figure: ReportFigure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.csv)))


def test_every_shape_has_the_caption_that_the_study_file_gives_its_figure(tmp_path: Path) -> None:
    found = {
        "profile": profile([1.0, 2.0]),
        "matrix": Matrix("M", "c.", ["1", "2"], ["1", "2"], [[1.0, 2.0], [3.0, 4.0]]),
        "maps": maps(2, 2, 3),
        "table": Table("T", "c.", ["what", "n"], [["x", 1.0]]),
    }
    shown = [figure.name for figure in drawn(tmp_path, {"a": [found]})]
    assert len(shown) >= len(found)
    with shown_as([ShownFigure(name, f"Of {name}") for name in shown]):
        assert [each.caption for each in drawn(tmp_path / "again", {"a": [found]})] == [f"Of {each}" for each in shown]


def profile(*values: Sequence[float | None], moments: Sequence[str] = ("end",)) -> Profile:
    return Profile("P", "c.", "norm", "nats", [f"layer {i + 1}" for i in range(len(values[0]))], moments, values)


class TestAProfile:
    def test_is_averaged_over_seeds_with_t_intervals(self, tmp_path: Path) -> None:
        seeds = [[1.0, 2.0], [3.0, None], [8.0, 4.0]]
        figure = alone(tmp_path, {"a": [profile(seed) for seed in seeds]})
        one, two = rows(figure)
        low, high = stats.t.interval(0.95, 2, 4.0, stats.sem([1.0, 3.0, 8.0]))
        assert (one["arm"], one["layer"], one["mean"], one["seeds"]) == ("a", "layer 1", "4.0", "3")
        assert (float(one["low"]), float(one["high"])) == pytest.approx((low, high))
        assert (two["mean"], two["seeds"]) == ("3.0", "2"), "a number that is missing is not counted"
        assert figure.tooltips is not None and figure.tooltips["marks"][0]["x"] == [1, 2]
        assert ">layer<" in figure.svg and "norm in nats" in figure.svg

    def test_has_a_line_for_each_moment_and_a_panel_for_each_arm(self, tmp_path: Path) -> None:
        both = profile([1.0, 2.0], [3.0, 4.0], moments=("init", "end"))
        figure = alone(tmp_path, {"a": [both], "b": [both]})
        assert figure.tooltips is not None and len(figure.tooltips["panels"]) == 2
        assert [(row["arm"], row["moment"], row["mean"]) for row in rows(figure)][:3] == [
            ("a", "init", "1.0"), ("a", "init", "2.0"), ("a", "end", "3.0"),
        ]  # fmt: skip
        assert "init</text>" in figure.svg
        assert {marks.get("bare") for marks in figure.tooltips["marks"]} == {True}, "no swatch of another line"
        one = alone(tmp_path / "one", {"a": [profile([1.0, 2.0])], "b": [profile([1.0, 2.0])]})
        assert one.tooltips is not None and not any("bare" in marks for marks in one.tooltips["marks"])

    def test_leaves_seeds_out_that_have_other_layers_and_says_so(self, tmp_path: Path) -> None:
        figure = alone(tmp_path, {"a": [profile([1.0, 2.0]), profile([9.0]), profile([3.0, 4.0])]})
        assert [row["mean"] for row in rows(figure)] == ["2.0", "3.0"]
        assert "Seeds of a have other axes" in figure.caption

    def test_of_a_deeper_arm_has_its_layers_within_its_own_stacks(self, tmp_path: Path) -> None:
        """Two stacks, of two and of three layers; and a moment between others stands between them."""

        def stacks(depth: int, moments: Sequence[str]) -> Profile:
            layers = [f"{stack} {i}" for stack in ("encoder", "decoder") for i in range(1, depth + 1)]
            return Profile("P", "c.", "norm", "nats", layers, moments, [[1.0] * len(layers)] * len(moments))

        figure = alone(tmp_path, {"a": [stacks(2, ["init", "end"])], "b": [stacks(3, ["init", "100", "end"])]})
        assert figure.tooltips is not None
        of_deep = [marks for marks in figure.tooltips["marks"] if marks["arm"].startswith("b")]
        assert [marks["x"] for marks in of_deep] == [[0, 1, 2, 3, 4, 5]] * 3
        legend = re.findall(r">(init|100|end)</text>", figure.svg)
        assert legend == ["init", "100", "end"]


class TestACurve:
    def test_has_its_fitted_slope_written_on_it(self, tmp_path: Path) -> None:
        """A power law is a straight line on two logarithmic axes, whose slope is its exponent."""
        xs = [128, 256, 512, 1024]
        shapes = [Curve("C", "c.", "n", "ms", xs, {"": [f * x**1.75 for x in xs]}, True, True, True) for f in (1, 2, 3)]
        figure = alone(tmp_path, {"a": shapes})
        assert "a: slope 1.75" in figure.svg
        (fit,) = [row for row in rows(figure) if row["series"] == "slope"]
        assert float(fit["ms"]) == pytest.approx(1.75)

    def test_shows_guides_marks_and_stated_numbers_and_names_them(self, tmp_path: Path) -> None:
        shape = Curve(
            "C", "c.", "n", "ms", [1, 2, 4], {"": [1.0, 2.0, 4.0]}, True, True, guides={"slope <2>": 2.0},
            published=[Published("Dao 2022", 2.0, 3.0)], marks={"trained length": 2.0},
        )  # fmt: skip
        figure = alone(tmp_path, {"a": [shape]})
        assert "slope &lt;2&gt;" in figure.svg and "Dao 2022 (published)" in figure.svg
        assert "published numbers, not ours" in figure.caption and "trained length, 2" in figure.caption
        assert rows(figure)[-1] | {"low": ""} == {
            "arm": "Dao 2022 (published)", "series": "", "n": "2.0", "ms": "3.0", "low": "", "high": "", "seeds": "",
        }  # fmt: skip

    def test_counts_each_observation_once_where_neighbours_are_put_together(self, tmp_path: Path) -> None:
        values, weight = np.arange(1000.0), np.where(np.arange(1000) % 2, 3, 1)
        shape = Curve("C", "c.", "place", "nats", range(1000), {"": values.tolist()}, weights={"": weight.tolist()})
        found = [float(row["nats"]) for row in rows(alone(tmp_path, {"a": [shape]}))]
        groups = np.array_split(np.arange(1000), 48)
        assert found == pytest.approx([np.average(values[group], weights=weight[group]) for group in groups])

    def test_averages_points_that_lie_elsewhere_in_each_seed(self, tmp_path: Path) -> None:
        shapes = [Curve("C", "c.", "saved", "loss", [x, 1.0], {"": [x, 2.0]}, points=["0.5", "1"]) for x in (0.0, 0.5)]
        assert [(row["saved"], row["loss"]) for row in rows(alone(tmp_path, {"a": shapes}))] == [
            ("0.5", "0.25"), ("1", "2.0"),
        ]  # fmt: skip

    def test_marks_what_arms_agree_on_and_names_them_where_they_do_not(self, tmp_path: Path) -> None:
        def curve(place: float) -> Curve:
            return Curve("C", "c.", "x", "y", [1.0, 20.0], {"": [1.0, 2.0]}, marks={"trained length": place})

        same, apart = (alone(tmp_path / f"{b}", {"a": [curve(5)], "b": [curve(b)]}) for b in (5, 10))
        assert "The dashed vertical line marks the trained length, 5." in same.caption
        assert "The trained length is not the same for all arms: 5 of a, 10 of b" in apart.caption
        assert same.svg.count("stroke-dasharray: 3,2") == 1 + apart.svg.count("stroke-dasharray: 3,2")

    def test_keeps_all_seeds_where_one_of_them_observed_nothing_in_a_group(self, tmp_path: Path) -> None:
        xs = [float(i) for i in range(96)]

        def curve(weights: Sequence[float]) -> Curve:
            return Curve("C", "c.", "x", "y", xs, {"": [1.0] * 96}, weights={"": weights})

        lacking = [0.0 if i < 2 else 1.0 for i in range(96)]
        figure = alone(tmp_path, {"a": [curve(lacking), curve([1.0] * 96)]})
        assert [row["seeds"] for row in rows(figure)] == ["1"] + ["2"] * 47
        assert len(rows(alone(tmp_path / "none", {"a": [curve(lacking), curve(lacking)]}))) == 47


def test_a_histogram_is_averaged_between_equal_edges(tmp_path: Path) -> None:
    shapes = [Histogram("H", "c.", "distance", [0.0, 1.0, 4.0], {"": counts}) for counts in ([2, 4], [4, 8])]
    figure = alone(tmp_path, {"a": shapes})
    assert [(row["from"], row["to"], row["count"]) for row in rows(figure)] == [
        ("0.0", "1.0", "3.0"),
        ("1.0", "4.0", "6.0"),
    ]


class TestAMatrix:
    def test_has_its_numbers_written_where_they_are_few(self, tmp_path: Path) -> None:
        shapes = [Matrix("M", "c.", ["r <1>"], ["x", "y"], [[v, None]], unit="share") for v in (0.25, 0.75)]
        figure = alone(tmp_path, {"a": shapes, "b": shapes})
        assert figure.svg.count(">0.50<") == 2 and "r &lt;1&gt;" in figure.svg and "share" in figure.svg
        assert [row["mean"] for row in rows(figure)] == ["0.5", "", "0.5", ""]

    def test_of_one_name_share_a_figure_and_examples_are_of_the_first_seed(self, tmp_path: Path) -> None:
        def heads(value: float) -> dict[str, Shape]:
            matrix = Matrix("M", "c.", ["1", "2"], ["1", "2"], [[1.0, value], [value, 1.0]], per_seed=True)
            return {"heads/layer 1": matrix, "heads/layer 2": matrix}

        (figure,) = drawn(tmp_path, {"a": [heads(0.1), heads(0.9)]})
        assert {row["mean"] for row in rows(figure)} == {"1.0", "0.1"} and "of seed 0" in figure.caption
        assert figure.name == "probe_p_heads" and "layer 2" in figure.svg

    def test_loses_its_written_numbers_before_its_cells(self, tmp_path: Path) -> None:
        """Colours of a board of 0 and 1 would be one grey if neighbours were put together."""
        board = [[float((i + j) % 2) for j in range(12)] for i in range(12)]
        names = [str(i) for i in range(12)]
        few, many = (
            alone(tmp_path / f"{arms}", {f"a{i}": [Matrix("M", "c.", names, names, board)] for i in range(arms)})
            for arms in (1, 6)
        )
        assert few.svg.count(">1.00<") == 72 and ">1.00<" not in many.svg
        assert "neighbours" not in few.caption + many.caption

    def test_of_a_sheet_tells_of_which_part_seeds_are_left_out(self, tmp_path: Path) -> None:
        def sheet(*rows: str) -> dict[str, Shape]:
            of_b = Matrix("B", "", list(rows), ["x"], [[1.0]] * len(rows))
            return {"heads/a": Matrix("A", "", ["1"], ["x"], [[1.0]]), "heads/b": of_b}

        (figure,) = drawn(tmp_path, {"arm": [sheet("1"), sheet("1", "2"), sheet("1", "3")]})
        assert (
            "a: Mean over finished seeds. b: Mean over finished seeds. Seeds of arm have other axes" in figure.caption
        )

    def test_is_put_together_evenly_where_it_is_large(self) -> None:
        values = np.arange(200.0)[:, None] + np.zeros(3)
        found, down, across = cells.reduced(values, 128)
        assert (found.shape, down, across) == ((100, 3), 2, 1)
        assert found[:, 0].tolist() == [2 * i + 0.5 for i in range(100)]


def maps(layers: int, heads: int, places: int, queries: int | None = None) -> AttentionMaps:
    generator = np.random.default_rng(1)
    named = {
        f"layer {layer} head {head}": generator.dirichlet(np.ones(places), queries or places).tolist()
        for layer in range(1, layers + 1)
        for head in range(1, heads + 1)
    }
    asked = None if queries is None else [f"q{i}" for i in range(queries)]
    return AttentionMaps("A", "c.", [f"<{i}>" for i in range(places)], asked, named)


class TestAttentionMaps:
    @staticmethod
    def figure(shape: AttentionMaps) -> ReportFigure:
        with svg.settings():
            return next(attention_maps.draw_attention(Found("p", "x", {"a": {0: shape}})))

    def test_of_twelve_by_sixteen_heads_fit_into_a_file(self) -> None:
        figure = self.figure(maps(12, 16, 64))
        assert len(figure.svg.encode()) <= 200_000 and figure.wide
        assert all(f"layer {layer}</text>" in figure.svg for layer in range(1, 13)) and "head 16</text>" in figure.svg
        assert "neighbouring places" in figure.caption and "1:&lt;0&gt; 2:&lt;1&gt;" in figure.svg
        assert len(rows(figure)) == 12 * 16 * 64

    def test_would_not_fit_if_cells_were_not_put_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The planted fault."""
        monkeypatch.setattr(svg, "LARGEST", math.inf)
        monkeypatch.setattr(attention_maps, "_CELLS", math.inf)
        assert len(self.figure(maps(4, 8, 100)).svg.encode()) > 200_000

    def test_have_their_tokens_written_and_arcs_where_they_are_few(self, tmp_path: Path) -> None:
        shape = AttentionMaps(
            "A", "c.", ["the", " ", "<eos>"], None, {"layer 1 head 1": [[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1]]}
        )
        grid, arcs = drawn(tmp_path, {"a": [{"x": shape}]})
        assert "&lt;eos&gt;" in grid.svg and "␣" in grid.svg and "of seed 0" in grid.caption
        assert arcs.name == "probe_p_x_arcs" and len(re.findall(r'<g id="patch_\d+">', arcs.svg)) == 1 + 1 + 1
        assert grid.csv.splitlines()[2] == "a,0,layer 1 head 1,2,␣,0.9,0.1,0".replace("␣", " ")

    def test_of_other_queries_have_no_arcs(self, tmp_path: Path) -> None:
        assert len(drawn(tmp_path, {"a": [{"x": maps(1, 2, 4, queries=3)}]})) == 1


def test_a_table_is_one_on_the_page_and_text_in_a_file(tmp_path: Path) -> None:
    def table(value: float) -> Table:
        return Table("T", "c.", ["what", "n"], [["<x>", value], ["=1+1", None]])

    store = study(tmp_path, {"a": [{"x": table(1.0)}, {"x": table(3.0)}], "b": [{"x": table(2.0)}]})
    report = build(store.study, store.runs)
    (figure,) = [each for each in report.views[0].figures if each.name == "probe_p_x"]
    ET.fromstring(figure.svg)
    assert figure.table is not None and figure.table[0] == ("arm", "what", "n")
    assert [row["n"] for row in rows(figure)] == ["2.0", "", "2.0", ""] and rows(figure)[1]["what"] == "'=1+1"
    page = (report.directory / "report.html").read_text()
    assert "<th>b</th><td>&lt;x&gt;</td><td>2</td>" in page


def test_a_table_of_arms_with_other_columns_has_each_cell_under_its_name(tmp_path: Path) -> None:
    first = Table("T", "", ["name", "loss", "accuracy"], [["x", 1.0, 0.5]])
    other = Table("T", "", ["name", "loss", "perplexity"], [["x", 2.0, 7.0]])
    figure = alone(tmp_path, {"a": [first], "b": [other]})
    assert figure.table == (
        ("arm", "name", "loss", "accuracy", "perplexity"),
        (("a", "x", "1", "0.5", "–"), ("b", "x", "2", "–", "7")),
    )
    assert [(row["accuracy"], row["perplexity"]) for row in rows(figure)] == [("0.5", ""), ("", "7.0")]


EDGES: dict[str, Shape] = {
    "one layer": profile([1.0]),
    "nothing finite": profile([None, None]),
    "no layers": Profile("P", "", "y", "", [], ["end"], [[]]),
    "no moments": Profile("P", "", "y", "", ["1"], [], []),
    "kinds": Profile("P", "", "y", "", ["embedding", NASTY], ["end"], [[1.0, 2.0]], log=True),
    "one point": Curve("C", "", "x", "y", [1.0], {"": [2.0]}, True, True, True, {"g": 1.0}),
    "no points": Curve("C", "", "x", "y", [], {"": []}, fit=True),
    "no series": Curve("C", "", "x", "y", [1.0], {}),
    "gaps": Curve(
        "C", NASTY, NASTY, "y", [0.0, -1.0, 5.0], {NASTY: [0.0, None, -1.0], "b": [1, 1, 1]}, True, True, True
    ),
    "no counts": Histogram("H", "", "x", [], {}),
    "one bin": Histogram("H", "", "x", [0.0, 1.0], {"a": [0], NASTY: [None]}),
    "no cells": Matrix("M", "", [], [], []),
    "one cell": Matrix("M", "", [NASTY], [NASTY], [[1.0]]),
    "equal cells": Matrix("M", "", ["1"], ["1", "2"], [[3.0, 3.0]]),
    "empty cells": Matrix("M", "", ["1"], ["1", "2"], [[None, None]]),
    "long": Matrix("M", "", [str(i) for i in range(300)], ["1"], [[float(i)] for i in range(300)]),
    "no maps": AttentionMaps("A", "", ["x"], None, {}),
    "no tokens": AttentionMaps("A", "", [], None, {"h": []}),
    "one token": AttentionMaps("A", "", [NASTY], None, {NASTY: [[1.0]]}),
    "no numbers": AttentionMaps("A", "", ["a", "b"], None, {"h": [[None, None], [None, None]]}),
    "no rows": Table("T", "", ["a"], []),
    "no columns": Table("T", "", [], [[]]),
    "cells": Table("T", "", [NASTY, "b"], [[NASTY, 1.0], [None, 1e300]]),
}


def test_edge_cases_are_drawn_or_left_out(tmp_path: Path) -> None:
    """One seed each; two arms, so that both layouts are drawn."""
    figures = drawn(tmp_path, {"a": [EDGES], NASTY: [EDGES]})
    for figure in figures:
        ET.fromstring(figure.svg)
    empty = {name for name in EDGES if name.startswith(("no ", "nothing", "empty"))} - {"no numbers"}
    names = {figure.name for figure in figures}
    missing = {name for name in EDGES if not any(f"probe_p_{svg.slug(name)}" in each for each in names)}
    assert missing == empty


def test_a_sheet_of_several_matrices_says_what_each_of_them_is(tmp_path: Path) -> None:
    found: dict[str, Shape] = {
        "heads/distance": Matrix("Distance", "How far heads look.", ["1"], ["1"], [[1.0]]),
        "heads/entropy": Matrix("Entropy", "How evenly they look.", ["1"], ["1"], [[0.5]]),
    }
    (figure,) = drawn(tmp_path, {"a": [found]})
    assert figure.title == "Distance, Entropy"
    assert figure.caption.startswith("distance: How far heads look. entropy: How evenly they look. Mean over")


def test_a_limit_of_one_matrix_cuts_off_no_other_of_its_sheet(tmp_path: Path) -> None:
    """Shares end at 1; distances over that of uniform attention do not."""
    shares = Matrix("Answer", "", ["1"], ["1"], [[0.5]], low=0.0, high=1.0)
    distances = Matrix("Distance", "", ["1"], ["1", "2"], [[1.5, 2.5]], low=0.0)
    (both,) = drawn(tmp_path / "both", {"a": [{"heads/answer": shares, "heads/distance": distances}]})
    (alone,) = drawn(
        tmp_path / "alone", {"a": [{"heads/answer": shares, "heads/entropy": replace(distances, high=1.0)}]}
    )
    assert "≥" in alone.svg and "≥" not in both.svg


def test_forty_arms_are_drawn(tmp_path: Path) -> None:
    found: dict[str, Shape] = {
        "profile": profile([1.0, 2.0], [2.0, 3.0], moments=("init", "end")),
        "matrix": Matrix("M", "", ["1"], ["1"], [[1.0]]),
        "maps": maps(1, 1, 2),
    }
    figures = drawn(tmp_path, {f"arm {i}": [found] for i in range(40)})
    assert {figure.name: len(figure.svg.encode()) for figure in figures if len(figure.svg.encode()) > 200_000} == {}
    by_name = {figure.name: figure for figure in figures}
    assert "28 arms" in by_name["probe_p_matrix"].caption and len(rows(by_name["probe_p_matrix"])) == 40
    assert "first 4 are drawn" in by_name["probe_p_maps_arm_0"].caption


def report_of(root: Path, text: str) -> Report:
    store = Store(root, {"a": []}, "a", ["val/loss"], range(1))
    folder = store.write_trial("a", 0, {"val/loss": 1.0}) / "artifacts"
    folder.mkdir()
    (folder / "p.json").write_text(text)
    store.write_manifest()
    return build(store.study, store.runs)


def test_a_damaged_shape_is_a_line_among_the_problems(tmp_path: Path) -> None:
    report = report_of(tmp_path, '{"settings": {}, "metrics": {"probe/own": 1}, "shapes": {"x": {"shape": "curve"}}}')
    (problem,) = report.records.problems
    assert "p.json: it lacks `shapes.x.title`" in problem and "probe/own" in report.views[0].probed


def test_data_of_an_older_version_are_named_and_not_drawn(tmp_path: Path) -> None:
    report = report_of(tmp_path, '{"settings": {}, "metrics": {"probe/own": 1}, "data": {"means": [1]}}')
    assert report.records.problems == () and "probe/own" in report.views[0].probed
    assert [caveat for caveat in report.caveats if "form of an older version" in caveat and "p of 1 trial" in caveat]


def test_numbers_are_shown_of_each_condition_alone(tmp_path: Path) -> None:
    store = study(tmp_path, {"a": [{"x": profile([1.0, 2.0])}]})
    found: dict[str, FigureData] = figure_data(read(store.study, store.runs), [])
    assert list(found) == [""] and found[""].records.at("other").probes == {}
