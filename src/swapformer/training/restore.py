"""A trained model from its trial's folder."""

from __future__ import annotations

from pathlib import Path

import torch

from swapformer.model.topology import Topology
from swapformer.task.base import Task
from swapformer.training.assemble import Config, build_model, build_task


def restore(config: Config, directory: Path) -> tuple[Task, Topology]:
    """The task of a trial and its model as the last checkpoint has it, in evaluation mode on the CPU.

    Args:
        config: the trial's resolved configuration.
        directory: the trial's folder.

    Raises:
        OSError: if there is no checkpoint.
    """
    task = build_task(config)
    model = build_model(config, task.interface)
    checkpoint = torch.load(directory / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True)
    model.load_state_dict({name.removeprefix("model."): weight for name, weight in checkpoint["state_dict"].items()})
    return task, model.eval()
