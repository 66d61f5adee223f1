"""Evaluation of a model outside of a training, to the same numbers as those after one."""

from __future__ import annotations

from typing import Literal

import torch
from lightning import Trainer
from lightning.pytorch.plugins import DoublePrecision
from torch import Tensor

from swapformer.model.topology import Topology
from swapformer.task.base import Batch, EvaluationSet, PositionShift, Task
from swapformer.training.assemble import Config
from swapformer.training.module import TrialModule
from swapformer.training.trainer import suppress_advice


class _Evaluation(TrialModule):
    """The final evaluation of one split, with other positions."""

    split: Literal["val", "test"] = "val"
    shift = PositionShift()
    final = True

    @property
    def current_evaluations(self) -> list[tuple[str, EvaluationSet]]:
        return [(self.split, item) for item in self.task.evaluation(self.split)]

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return super().forward(self.shift.of(batch))


def evaluate(
    model: Topology,
    task: Task,
    config: Config,
    shift: PositionShift | None = None,
    split: Literal["val", "test"] = "val",
) -> dict[str, float]:
    """The metrics of a split's sets, such as `val/loss` and `val/loss@64`, as the trial's final evaluation takes them.

    On one device: the trial's where this machine has one, else the CPU. There, on the same weights and in the same
    environment, they are those of the record bit by bit. The model stays as it is, in evaluation mode.

    Args:
        model: of the trial, with any weights.
        task: of the trial.
        config: the trial's resolved configuration.
        shift: what encodings are told of positions; None for what they are.
        split: which sets.
    """
    settings = config["trainer"]
    module = _Evaluation(model, task, {**config, "trainer": {**settings, "compile": False, "strategy": None}})
    module.final, module.split, module.shift = True, split, shift or PositionShift()
    double = settings["precision"] == "64-true"
    threads = torch.get_num_threads()
    torch.set_num_threads(settings["threads"])
    try:
        with suppress_advice():
            trainer = Trainer(
                accelerator=settings["accelerator"] if torch.cuda.is_available() else "cpu", devices=1,
                plugins=[DoublePrecision()] if double else [], precision=None if double else settings["precision"],
                deterministic=settings["deterministic"], logger=False, enable_checkpointing=False,
                enable_model_summary=False, enable_progress_bar=False, use_distributed_sampler=False,
            )  # fmt: skip
            trainer.validate(module, verbose=False)
    finally:
        torch.set_num_threads(threads)
        model.cpu().eval()
    return module.results
