"""Losses that need no model: of guessing among all answers alike, and of counting how often each is the right one.

`ngram_baselines` counts neighbours as well, for texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from swapformer.interface import MAIN, Interface
from swapformer.task.base import Task, target_mask

BATCHES = 16
"""Training batches whose answers are counted."""


def guessing_loss(interface: Interface) -> float:
    """The loss of a model that takes all answers for alike, ln V, summed over all that is asked; nan of values."""
    readouts = interface.readouts.values()
    return (
        math.nan if any(each.kind == "values" for each in readouts) else sum(math.log(each.size) for each in readouts)
    )


def count_targets(targets: Tensor, size: int) -> Tensor:
    """The number of times that each of `size` answers is the right one, float64 [size]."""
    return torch.bincount(targets[target_mask(targets)], minlength=size).double()


def baselines(task: Task, asked: Mapping[str, Tensor]) -> dict[str, dict[str, float]]:
    """The losses of `guessing` and `counting` for each loss of the main answer, such as `val/loss@64`; none of values.

    Counting is -Σ f(w) ln p(w) over the evaluated targets, with p(w) = (c(w) + 1) / (N + V) from the counts c of the
    first training batches, whatever the trial's seed. `asked`: evaluation set, such as `val@64` → the counts of its
    evaluated targets [V]; without an entry only guessing is known.
    """
    readout = task.interface.readouts[MAIN]
    if readout.kind == "values":
        return {}
    found = {
        f"{split}/loss{item.name}": {"guessing": math.log(readout.size)}
        for split in ("val", "test")
        for item in task.evaluation(split)
    }
    if not asked:
        return found
    counts = torch.stack([count_targets(task.train_batch(0, step).targets, readout.size) for step in range(BATCHES)])
    log_p = ((counts.sum(0) + 1) / (counts.sum() + readout.size)).log()
    for name, of in asked.items():
        split, at, length = name.partition("@")
        if of.sum():
            found[f"{split}/loss{at}{length}"]["counting"] = float(-(of @ log_p) / of.sum())
    return found
