"""Probe of the loss at each position: whether a model uses more context, and fails beyond the trained length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model.topology import Topology
from swapformer.probes.analysis import means, target_nats, totals_by_position
from swapformer.probes.base import Finding, Probe
from swapformer.ranges import Count
from swapformer.results.shapes import Curve, Shape
from swapformer.task.base import Batch, Task, target_mask
from swapformer.training.data import EvaluationStream, drawn_position_range
from swapformer.training.inputs import model_inputs


class LossByPosition(Probe):
    """Mean loss in nats of the targets at each position, for each evaluation set of the validation data.

    The shapes are a curve `loss` for each set, weighted by how many targets there are; where nothing was asked the
    loss is None. The metrics
    compare positions that training had with those beyond, in the sets "@L" whose sequences are longer than training's:
    `probe/loss_within@L` and `probe/loss_beyond@L`. A better mean loss at a longer length may come from more context
    for the same targets (within) or from positions that never were trained (beyond); these tell which.

    Args:
        batches: validation batches of each evaluation set.

    Raises:
        ValueError: if the answers are not symbols or classes at each position.
    """

    def __init__(self, *, batches: Count) -> None:
        self.batches = batches

    def unsuited(self, model: Topology, task: Task) -> str | None:
        asked = task.interface.readouts[MAIN]
        if asked.per == "position" and asked.kind != "values":
            return None
        return (
            f"{type(task).__name__} asks for {asked.kind} of a {asked.per}, so there is no loss by position; leave out "
            "probes=loss_by_position."
        )

    def measure(self, model: Topology, task: Task) -> Finding:
        metrics: dict[str, float] = {}
        shapes: dict[str, Shape] = {}
        for item in task.evaluation("val"):
            sums, counts = _totals(model, EvaluationStream(item, self.batches, drawn_position_range(model)))
            shapes[f"loss{item.name}"] = _curve(item.name, means(sums, counts), counts.tolist(), task.train_length)
            for name, part in (("within", slice(None, task.train_length)), ("beyond", slice(task.train_length, None))):
                if len(counts) > task.train_length and counts[part].sum():
                    metrics[f"probe/loss_{name}{item.name}"] = float(sums[part].sum() / counts[part].sum())
        return Finding(metrics, shapes)


def _curve(name: str, losses: Sequence[float | None], counts: Sequence[int], trained: int) -> Curve:
    return Curve(
        f"Loss by position{name and f' ({name})'}",
        "Mean loss of the targets at each place of the sequences, counted from 1.",
        "place", "loss in nats", range(1, len(losses) + 1), {"": losses}, weights={"": counts},
        marks={"longest trained length": trained} if len(losses) > trained else {},
    )  # fmt: skip


def _totals(model: Topology, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """Summed loss and number of targets at each position over the batches of a set, which are equally long."""
    found = []
    for batch in batches:
        nats = target_nats(model.answers(*model_inputs(batch))[MAIN], batch.targets)
        found.append(totals_by_position(nats, target_mask(batch.targets)))
    sums, counts = (torch.stack(parts).sum(0) for parts in zip(*found, strict=True))
    return sums, counts
