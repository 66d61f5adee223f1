"""Hidden tokens, pairs and spans are trained and measured through the models that they are meant for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from settings_of_tasks import SMALL
from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose
from swapformer.training.fit import fit

TINY = [
    *("model.d_model=16", "model.num_layers=1", "model.num_heads=2", "model.init.std=0.02", "task.batch_size=8"),
    *("budget.steps=3", "schedule.warmup_steps=1", "eval.batches=1", "eval.final_batches=2", "log_every=1"),
]


@pytest.mark.parametrize(
    ("task", "topology", "more"),
    [
        ("masked", "encoder", []),
        ("masked_nsp", "encoder", ["next_sentence_loss", "next_sentence_accuracy"]),
        ("spans", "encoder_decoder", ["exact_match"]),
    ],
)
def test_an_objective_is_trained_and_measured(
    task: str, topology: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    config = compose([f"task={task}", f"model/topology={topology}", *SMALL[task], *TINY, "task.eval_lengths=[32]"])
    check(config)
    outcome = fit(config, tmp_path)
    assert outcome.status == "finished", outcome.reason
    for name in ("loss", "accuracy", *more):
        for split in ("val", "test"):
            assert math.isfinite(outcome.metrics[f"{split}/{name}"]) and f"{split}/{name}@32" in outcome.metrics
    # An untrained model of 500 symbols gives each of them about the same probability.
    assert outcome.metrics["val/loss"] == pytest.approx(math.log(500), rel=0.1)
    assert outcome.directions["val/accuracy"] == "higher"
    if task == "masked_nsp":
        assert outcome.metrics["val/next_sentence_loss"] == pytest.approx(math.log(2), rel=0.1)
        assert outcome.directions["val/next_sentence_loss"] == "lower"


def test_an_objective_is_refused_by_a_model_that_cannot_serve_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    for task, topology, message in (
        ("masked_nsp", "decoder", "tells 2 segments apart, but the topology Decoder embeds none"),
        ("spans", "decoder", "has a source that is read first, but the topology Decoder reads none"),
        ("masked", "encoder_decoder", "reads a source before it answers, but the task Masked has none"),
    ):
        with pytest.raises(UsageError, match=message):
            check(compose([f"task={task}", f"model/topology={topology}", *SMALL[task]]))
