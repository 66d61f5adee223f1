"""What probes saw, drawn from their artifacts: means over seeds, and nothing where the data are of another shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.store import Store
from swapformer.report.build import Report, build
from swapformer.report.figures.probe_figures import pool_positions


def with_artifact(root: Path, probe: str, data: dict[str, list[Any]]) -> Report:
    """A study of two arms; `data[arm][seed]` is what the probe left of each trial."""
    store = Store(root, {"a": [], "b": []}, "a", ["val/loss"], range(2))
    for arm, per_seed in data.items():
        for seed, content in enumerate(per_seed):
            folder = store.write_trial(arm, seed, {"val/loss": 1.0 + seed}) / "artifacts"
            folder.mkdir(exist_ok=True)
            metrics = {"probe/own": 0.25 + 0.5 * seed}
            (folder / f"{probe}.json").write_text(json.dumps({"settings": {}, "metrics": metrics, "data": content}))
    store.write_manifest()
    return build(store.study, store.runs)


def told(report: Report, name: str) -> dict[str, tuple[list[float], list[float]]]:
    (figure,) = [each for each in report.views[0].figures if each.name == name]
    assert figure.tooltips is not None
    return {marks["arm"]: (marks["x"], marks["y"]) for marks in figure.tooltips["marks"]}


def test_head_similarity_is_drawn_by_layer(tmp_path: Path) -> None:
    data = {"a": [{"means": [0.2, None, 0.4]}, {"means": [0.4, None, 0.8]}], "b": [{"means": [0.1, 0.1, 0.1]}] * 2}
    found = told(with_artifact(tmp_path, "head_similarity", data), "probe_how_alike_heads_look")
    assert found["a"][0] == [1, 3] and found["a"][1] == pytest.approx([0.3, 0.6])  # a layer of one head has none
    assert found["b"][1] == pytest.approx([0.1] * 3)


def test_heads_of_the_first_seed_are_drawn_layer_by_layer(tmp_path: Path) -> None:
    """Two layers of two heads, one layer of one head, which is alike to nothing: 2 · 4 cells beside the key's 24."""
    layers = [[[1.0, 0.2], [0.2, 1.0]], [[1.0]], [[1.0, 0.9], [0.9, 1.0]]]
    data = {"a": [{"layers": layers, "means": []}, {"layers": layers}], "b": [{"layers": "none"}]}
    report = with_artifact(tmp_path, "head_similarity", data)
    (figure,) = [each for each in report.views[0].figures if each.name == "probe_heads"]
    assert "of seed 0" in figure.caption and "layer 1" in figure.svg and "layer 3" in figure.svg
    assert "layer 2" not in figure.svg and figure.svg.count("fill: #") - figure.svg.count("fill: #fffffe") >= 24 + 8


def test_loss_by_position_takes_the_longest_set_and_leaves_unasked_places_out(tmp_path: Path) -> None:
    one = {"trained": 2, "": {"loss": [9.0], "count": [1]}, "@4": {"loss": [None, 2.0, 4.0], "count": [0, 5, 5]}}
    other = {"trained": 2, "@4": {"loss": [None, 4.0, 6.0], "count": [0, 5, 5]}}
    found = told(with_artifact(tmp_path, "loss_by_position", {"a": [one, other], "b": [one]}), "probe_loss_by_position")
    assert found["a"] == ([2, 3], [3.0, 5.0]) and found["b"] == ([2, 3], [2.0, 4.0])


def test_neighbouring_places_are_put_together_by_their_targets() -> None:
    """A thousand places with 1 or 3 targets each: every group's mean counts each target once."""
    loss, count = np.arange(1000.0), np.where(np.arange(1000) % 2, 3, 1)
    found = pool_positions(loss.tolist(), count.tolist())
    assert len(found) == 48
    groups = np.array_split(np.arange(1000), 48)
    expected = [np.average(loss[group], weights=count[group]) for group in groups]
    assert list(found.values()) == pytest.approx(expected)


def test_early_exits_are_drawn_as_what_they_save_and_cost(tmp_path: Path) -> None:
    def curve(loss: float) -> dict[str, Any]:
        points = [(0.0, 0.5, loss), (1.0, 0.0, 1.0)]
        return {"curves": {"": [dict(zip(("threshold", "layers_saved", "loss"), p, strict=True)) for p in points]}}

    report = with_artifact(tmp_path, "early_exit", {"a": [curve(2.0), curve(3.0)], "b": [{"curves": {}}]})
    assert told(report, "probe_early_exit") == {"a": ([0.5, 0.0], [2.5, 1.0])}


@pytest.mark.parametrize(
    ("probe", "data"),
    [
        ("head_similarity", [1, 2]),
        ("head_similarity", {"means": "many"}),
        ("head_similarity", {"means": 3}),
        ("loss_by_position", {"": {"loss": [1.0, 2.0], "count": [1]}}),
        ("loss_by_position", {"": {"loss": [1.0]}}),
        ("early_exit", {"curves": {"": [{"threshold": 1}]}}),
        ("unknown", {"anything": 1}),
    ],
    ids=repr,
)
def test_data_of_another_shape_are_not_drawn_and_break_nothing(tmp_path: Path, probe: str, data: Any) -> None:
    report = with_artifact(tmp_path, probe, {"a": [data], "b": [data]})
    assert not [each for each in report.views[0].figures if each.name.startswith("probe")]


def test_what_probes_measured_beside_the_studys_metrics_stands_in_a_table(tmp_path: Path) -> None:
    report = with_artifact(tmp_path, "unknown", {"a": [{}, {}], "b": [{}, {}]})
    summary = report.views[0].probed["probe/own"]["a"]
    assert (summary.mean, summary.n) == (0.5, 2)
    assert "What probes measured besides" in (report.directory / "report.html").read_text()


def test_what_a_probe_measured_at_several_lengths_is_drawn_against_length(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"], range(2))
    for arm, right in (("a", 0.5), ("b", 0.75)):
        for seed in range(2):
            found = {"probe/generated_exact_match": right, "probe/generated_exact_match@32": right / 2,
                     "probe/generated_exact_match@64": 0.0}  # fmt: skip
            store.write_trial(arm, seed, {"val/loss": 1.0}, probes=found)
    store.manifest = {"longest_trained": 16}
    store.write_manifest()
    assert told(build(store.study, store.runs), "length_probe_generated_exact_match") == {
        "a": ([16, 32, 64], [0.5, 0.25, 0.0]), "b": ([16, 32, 64], [0.75, 0.375, 0.0]),
    }  # fmt: skip
