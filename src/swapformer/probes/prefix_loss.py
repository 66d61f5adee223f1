"""Probe of prefix loss: what a model makes of each target when the tokens behind it are cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model.topology import Topology
from swapformer.probes.analysis import means, target_nats, totals_by_position
from swapformer.probes.base import Finding, Probe, validation
from swapformer.ranges import Count
from swapformer.results.shapes import Curve
from swapformer.task.base import Batch, Task, target_mask
from swapformer.training.inputs import model_inputs


class PrefixLoss(Probe):
    """The loss of each target when the model reads only the tokens up to it, as it does when it writes.

    A loss is usually taken with the whole sequence as input. A model that is shown later tokens finds its targets
    among them. Here every place t has a forward of its own, on the tokens 1 … t, and its answer is read from the last
    of them. In a causal model both losses are the same number. The tokens are the right ones, not the model's own.

    The metrics are `probe/prefix_loss` (mean nats over all targets), `probe/prefix_accuracy`, and `probe/future_gain`:
    the prefix loss less the loss on the whole sequences. The shape `loss` is a curve of both losses by place.

    Args:
        batches: validation batches at the training length; one costs about half as many forwards as it has places.

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
            f"{type(task).__name__} asks for {asked.kind} of a {asked.per}, so no target has tokens behind it that "
            "could be cut off; leave out probes=prefix_loss."
        )

    def measure(self, model: Topology, task: Task) -> Finding:
        found = [_judged(model, batch) for batch in validation(model, task, self.batches)]
        whole, prefix, hits = (torch.stack([sums for sums, _ in column]).sum(0) for column in zip(*found, strict=True))
        counts = torch.stack([each.whole[1] for each in found]).sum(0)
        total = int(counts.sum())
        metrics = {
            "probe/prefix_loss": float(prefix.sum()) / total,
            "probe/prefix_accuracy": float(hits.sum()) / total,
            "probe/future_gain": float((prefix - whole).sum()) / total,
        }
        series = {"cut off": means(prefix, counts), "given": means(whole, counts)}
        return Finding(
            metrics,
            {
                "loss": Curve(
                    "Loss with and without the tokens behind",
                    "Mean loss of the targets at each place, when the tokens behind it are given and when they are "
                    "cut off, as they are in writing.",
                    "place", "loss in nats", range(1, len(counts) + 1), series,
                    weights=dict.fromkeys(series, counts.tolist()),
                )
            },
        )  # fmt: skip


class _Judged(NamedTuple):
    """Sums over the rows of a batch and counts of targets, by place, [T] each: of losses, prefix losses and hits."""

    whole: tuple[Tensor, Tensor]
    prefix: tuple[Tensor, Tensor]
    hits: tuple[Tensor, Tensor]


def _judged(model: Topology, batch: Batch) -> _Judged:
    """Every target of a batch, once with the whole row and once with what is up to it."""
    there = target_mask(batch.targets)
    last = torch.zeros_like(batch.targets, dtype=torch.float64)
    hits = torch.zeros_like(last)
    for place in there.any(0).nonzero().flatten().tolist():
        logits = model.answers(*model_inputs(prefix_of(batch, place + 1)))[MAIN][:, -1]
        last[:, place] = target_nats(logits, batch.targets[:, place])
        hits[:, place] = (logits.argmax(-1) == batch.targets[:, place]).double()
    whole = target_nats(model.answers(*model_inputs(batch))[MAIN], batch.targets)
    return _Judged(*(totals_by_position(values, there) for values in (whole, last, hits)))


def prefix_of(batch: Batch, length: int) -> Batch:
    """The first `length` tokens of each row, with what is given of them; a source stays whole."""
    names = ("inputs", "padding", "document", "position", "targets")
    held = {name: getattr(batch, name) for name in names}
    kept: dict[str, Any] = {name: None if value is None else value[:, :length] for name, value in held.items()}
    tags = {name: channel[:, :length] for name, channel in batch.tags.items()}
    found: Batch = replace(batch, **kept, tags=tags)
    return found
