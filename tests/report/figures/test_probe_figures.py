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
