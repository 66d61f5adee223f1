"""What leaving early saves, counted by the places that leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import MAIN, Interface
from swapformer.probes.base import finding_of
from swapformer.probes.early_exit import EarlyExits
from swapformer.results.shapes import Curve
from swapformer.task.base import IGNORE, Batch, EvaluationSet


class Guess:
    """A task of one batch, half of whose places have a target."""

    interface = Interface(VOCABULARY)

    def __init__(self) -> None:
        inputs = ids(3, 12)
        targets = inputs.roll(-1, 1)
        targets[:, ::2] = IGNORE
        self.batch = Batch(inputs=inputs, targets=targets)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        return [EvaluationSet("", 1, lambda _: self.batch)]


def test_layers_saved_are_those_above_the_exits_of_scored_places() -> None:
    config = small(
        ["model/depth=early_exit", "model.num_layers=4", "model.depth.exits=[1,2]", "model.depth.threshold=0.2"]
    )
    model, task = Subject(config, "depth").perturbed(), Guess()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = EarlyExits(batches=2, thresholds=[0.0, 0.2, 1.0]).measure(model, task)  # type: ignore[arg-type]
    curve = found.shapes["loss"]
    assert isinstance(curve, Curve)
    first, second, last = (share or 0.0 for share in curve.xs)
    assert first == 3 / 4, "all leave behind the first of four layers"
    with torch.no_grad():
        model(task.batch.inputs)
    passed: Any = model.layers_passed
    assert found.metrics["probe/layers_saved"] == found.metrics["probe/early_exit/saved/0.2"] == second
    for threshold, share, loss in zip(("0", "0.2", "1"), curve.xs, curve.series[""], strict=True):
        assert found.metrics[f"probe/early_exit/saved/{threshold}"] == share
        assert found.metrics[f"probe/early_exit/loss/{threshold}"] == loss
    logits = model.answers(task.batch.inputs)[MAIN].double()
    nats = logits.logsumexp(-1) - logits.gather(-1, task.batch.inputs.roll(-1, 1)[..., None])[..., 0]
    assert found.metrics["probe/early_exit/loss/0.2"] == pytest.approx(nats[:, 1::2].mean().item())
    assert second == pytest.approx(1 - passed[:, 1::2].double().mean().item() / 4)
    assert 3 / 4 > second > last >= 0
    assert model.depth.threshold == 0.2
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_nothing_leaves_a_fixed_depth() -> None:
    task: Any = Guess()
    with pytest.raises(ValueError, match="use model/depth=early_exit"):
        finding_of(EarlyExits(batches=1, thresholds=[]), Subject(small(), "depth").perturbed(), task)
