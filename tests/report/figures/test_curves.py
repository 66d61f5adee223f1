"""Curves during training: what a diverged trial shows of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.store import Store
from swapformer.report.build import build
from swapformer.report.figures import curves, svg


@pytest.mark.parametrize("last", [0.05, 7.0])
def test_a_diverged_trial_ends_within_the_frame(last: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above it or below it, the cross stands at the edge, as the caption says."""
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/accuracy"], range(3))
    store.directions = {"val/accuracy": "higher"}
    for arm in store.arms:
        for seed in store.seeds:
            steps = [(100 * step, 0.5 + 0.03 * step + 0.01 * seed) for step in range(1, 12)]
            lost = arm == "b" and seed == 2
            history = {"val/accuracy": [*steps[:-1], (1100, last)] if lost else steps}
            metrics = {} if lost else {"val/accuracy": steps[-1][1]}
            store.write_trial(arm, seed, metrics, "diverged" if lost else "finished", history=history)
    store.write_manifest()
    data = build(store.study, store.runs, draw=False).views[0].data
    monkeypatch.setattr(curves, "_report_figure", lambda figure, *rest: figure)
    with svg.settings():
        figure: Any = curves.learning_curve(data, "val/accuracy")
        (place,) = [
            (axes.get_ylim(), float(line.get_ydata()[0]))
            for axes in figure.axes for line in axes.lines if line.get_marker() == "x"
        ]  # fmt: skip
    (bottom, top), end = place
    assert bottom <= end <= top and end == pytest.approx(bottom if last < 0.5 else top)
