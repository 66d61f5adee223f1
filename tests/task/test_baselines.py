"""Losses that need no model, against loops over targets, and what a record keeps of them."""

from __future__ import annotations

import math

import pytest
import torch

from swapformer.interface import Interface, Readout
from swapformer.study.config.compose import compose, task_of
from swapformer.task.base import IGNORE
from swapformer.task.baselines import BATCHES, baselines, count_targets, guessing_loss


def test_counting_is_the_loss_of_the_frequencies_of_training_answers() -> None:
    """Oracle: a loop over targets in float64."""
    task = task_of(compose(["task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8"]))
    size = task.vocab_size
    times = [1] * size
    for step in range(BATCHES):
        for target in task.train_batch(0, step).targets.flatten().tolist():
            if target != IGNORE:
                times[target] += 1
    batch = task.evaluation("val")[0].batch(0)
    wanted = [-math.log(times[t] / sum(times)) for t in batch.targets.flatten().tolist() if t != IGNORE]
    found = baselines(task, {"val": count_targets(batch.targets, size)})
    assert found["val/loss"]["counting"] == pytest.approx(sum(wanted) / len(wanted), rel=1e-12)
    assert {name: of["guessing"] for name, of in found.items()} == dict.fromkeys(found, math.log(size))
    assert "counting" not in baselines(task, {})["val/loss"]


def test_values_have_no_loss_of_guessing_and_answers_add_up() -> None:
    assert math.isnan(guessing_loss(Interface(0, channels=1, readouts={"": Readout(1, "values")})))
    both = {"": Readout(8), "next": Readout(2, "classes", "sequence")}
    assert guessing_loss(Interface(8, readouts=both)) == pytest.approx(math.log(16))
    assert count_targets(torch.tensor([[0, 2, IGNORE], [2, 2, 1]]), 4).tolist() == [1, 1, 3, 0]
