"""The gradients that probes read are those of the training loss, and looking at them leaves a model as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback
from torch import Tensor

from swapformer.probes.gradients import (
    gradient_norm,
    training_gradients,
)
from swapformer.probes.moments import starting_model
from swapformer.study.config.compose import compose
from swapformer.training.assemble import build_task
from swapformer.training.fit import fit

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8", "model/norm=batchnorm"),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=2", "model.dropout=0.1", "model/ffn=moe"),
    *("budget.steps=3", "schedule.warmup_steps=1", "eval.final_batches=1", "eval.batches=1"),
]


class FirstGradients(Callback):
    """Keeps the gradients of the first optimiser step, before they are clipped."""

    def __init__(self) -> None:
        self.seen: dict[str, Tensor] = {}

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if not self.seen:
            named = pl_module.model.named_parameters()
            self.seen = {name: p.grad.clone() for name, p in named if p.grad is not None}


@pytest.mark.parametrize("more", [[], ["optim.freeze=[token_embedding]"]], ids=["all", "frozen"])
def test_of_the_first_batch_are_those_of_the_first_step_bit_by_bit(more: list[str], tmp_path: Path) -> None:
    """With dropout, statistics of batches and auxiliary losses of experts: the randomness is the first step's."""
    config, watch = compose([*TINY, *more]), FirstGradients()
    fit(config, tmp_path, callbacks=[watch], final=False)
    task = build_task(config)
    model = starting_model(config, task)
    with training_gradients(model, task, config, "train"):
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        assert found.keys() == watch.seen.keys() and all(torch.equal(found[name], watch.seen[name]) for name in found)
        assert ("embedding.weight" in " ".join(found)) == (not more)


def test_leave_the_model_as_it_was_and_of_another_batch_are_others() -> None:
    config = compose(TINY)
    task = build_task(config)
    model = starting_model(config, task)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    norms = []
    for batch in ("train", "val", "train"):
        with training_gradients(model, task, config, batch):  # type: ignore[arg-type]
            assert not model.training
            norms.append(gradient_norm(model.parameters()))
    assert norms[0] == norms[2] != norms[1]
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not model.training and all(p.grad is None and p.requires_grad for p in model.parameters())
