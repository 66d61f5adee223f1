"""What probes measured beside the study's metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from report.store import Store
from swapformer.report.build import Report, build


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


def test_lengths_whose_values_span_decades_have_ticks_that_are_plain_numbers(tmp_path: Path) -> None:
    """Browsers show the formulas of matplotlib's own ticks as they are written."""
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss@8", "val/loss@32"], range(2))
    store.write(lambda arm, seed: {"val/loss@8": 0.02, "val/loss@32": 5.0 + seed})
    store.write_manifest()
    (figure,) = [each for each in build(store.study, store.runs).views[0].figures if each.name == "length_val_loss"]
    assert "mathdefault" not in figure.svg and ">0.1</text>" in figure.svg


def test_stated_numbers_are_hollow_marks_that_legend_and_caption_name(tmp_path: Path) -> None:
    """Of an arm on its row or its place on the axis, of a length on the curve of lengths."""
    numbers = [
        {"metric": "val/loss", "source": "Vaswani <2017>", "value": 1.25, "arm": "b"},
        {"metric": "val/loss", "source": "Press 2022", "value": 1.5, "x": 3.0},
    ]
    axis = {"key": "model.num_heads", "values": {"a": 1, "b": 2}}
    shown = {}
    for name, more in (("rows", {}), ("axis", {"axis": axis})):
        store = Store(tmp_path / name, {"a": [], "b": []}, "a", ["val/loss", "val/loss@8", "val/loss@32"], range(2))
        store.manifest = {"published": numbers, **more}
        store.write(lambda arm, seed: {"val/loss": 1.0 + seed, "val/loss@8": 1.0, "val/loss@32": 2.0})
        store.write_manifest()
        shown[name] = {figure.name: figure for figure in build(store.study, store.runs).views[0].figures}
    rows, along, lengths = (
        shown["rows"]["arms_val_loss"],
        shown["axis"]["axis_val_loss"],
        shown["rows"]["length_val_loss"],
    )
    for figure, sources in ((rows, 1), (along, 2), (lengths, 1)):
        assert figure.svg.count("(published)</text>") == sources and "published numbers, not ours" in figure.caption
    assert "Vaswani <2017> (published),,1.25,1.0,,,1.25" in rows.csv.splitlines()
    assert "Vaswani <2017> (published),,2.0,1.25,,,1.25" in along.csv.splitlines()
    assert "Press 2022 (published),,3.0,1.5,,,1.5" in lengths.csv.splitlines()
    assert "published" not in shown["axis"]["length_val_loss"].caption
