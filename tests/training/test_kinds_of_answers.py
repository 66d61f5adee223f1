"""Every kind of task trains, and its metrics are in the trial's outcome: two steps of the smallest models."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml

from swapformer.study.config.compose import compose
from swapformer.training import fit as fit_module
from swapformer.training.fit import fit

TINY = [
    "model.d_model=16", "model.num_heads=2", "model.num_layers=1", "budget.steps=2", "eval.every=2", "eval.batches=1",
    "eval.final_batches=1", "task.batch_size=4", "divergence=100",
]  # fmt: skip
LIBRARY = "task.source.packages=[json,wsgiref]"
SNIPPETS = ["task.source.packages=[email,unittest]"]
SEGMENTS = ["task.segments=true", "task.second=second"]
CASES: dict[str, tuple[list[str], set[str]]] = {
    "elnino": ([], {"loss", "mae", "r2", "skill", "naive_loss", "seasonal_loss", "seasonal_skill"}),
    "packages": (SNIPPETS, {"loss", "accuracy", "macro_f1", "calibration_error"}),
    "classification": (
        ["model/topology=encoder", *SEGMENTS], {"loss", "accuracy", "macro_f1", "calibration_error"}
    ),
    "regression": (["model/topology=encoder"], {"loss", "mae", "r2"}),
    "sequence_to_sequence": (
        ["model/topology=encoder_decoder"], {"loss", "perplexity", "accuracy", "exact_match"}
    ),
    "roles": (
        ["model/topology=encoder", LIBRARY, "task.split=[0.6,0.15,0.25]"],
        {"loss", "accuracy", "macro_f1", "calibration_error"},
    ),
    "source_code": (
        ["model/pattern=code", LIBRARY, "task.split=[0.6,0.15,0.25]"],
        {"loss", "perplexity", "bits_per_byte", "accuracy"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", CASES)
def test_a_task_trains_and_is_measured(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    overrides, metrics = CASES[task]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"text": f"text {n}", "second": "b" * n, "label": n % 2, "value": n, "target": f"{n}"}) + "\n"
            for n in range(60)
        )
    )
    node = yaml.safe_load((Path(__file__).parents[2] / "conf" / "task" / f"{task}.yaml").read_text(encoding="utf-8"))
    files = [f"task.source.path={rows}"] if {"source": "files"} in node.get("defaults", []) else []
    outcome = fit(compose([f"task={task}", *TINY, *overrides, *files]), tmp_path / "trial")
    assert outcome.status == "finished" and outcome.steps == 2
    for split in ("val", "test"):
        assert {f"{split}/{name}" for name in metrics} == {name for name in outcome.metrics if name.startswith(split)}
    assert all(math.isfinite(value) for value in outcome.metrics.values())
    assert set(outcome.directions) == set(outcome.metrics)
    assert outcome.standard_errors.keys() <= outcome.metrics.keys() and len(outcome.standard_errors) >= 2
    assert (tmp_path / "trial" / "tokeniser.json").exists() == (task != "elnino")


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("val/loss_se", "val/loss"),
        ("val/loss_se@64", "val/loss@64"),
        ("val/next_sentence_loss_se@2", "val/next_sentence_loss@2"),
    ],
)
def test_a_standard_error_belongs_to_the_metric_before_its_ending(name: str, metric: str) -> None:
    """An answer's own name may hold the same letters."""
    assert fit_module._metric_of_error(name) == metric
