"""Probe of early exits: the layers that tokens skip, and what that costs."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from swapformer.interface import MAIN
from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe
from swapformer.ranges import Count, Share
from swapformer.results.shapes import Curve, Shape
from swapformer.task.base import IGNORE, EvaluationSet, Task, target_mask
from swapformer.training.data import EvaluationStream, drawn_position_range
from swapformer.training.inputs import model_inputs


class EarlyExits(Probe):
    """Share of all layers that tokens skip, averaged over the tokens that have a target.

    A layer that is skipped saves its work for that token, but for the keys and values that other tokens read. The
    metric is `probe/layers_saved`, at the threshold of model.depth, with `@L` for the other evaluation sets. At each
    threshold of the list, `probe/early_exit/loss/0.5` is the loss (nats) and `probe/early_exit/saved/0.5` that share:
    at 0 every token leaves at the first exit, at 1 hardly any does. The shapes are curves of the loss and of the
    accuracy of the same targets over the share, threshold by threshold.

    Args:
        batches: validation batches of each evaluation set.
        thresholds: of the curves, in [0, 1].

    Raises:
        ValueError: for a model that nothing leaves early.
    """

    def __init__(self, *, batches: Count, thresholds: Sequence[Share]) -> None:
        self.batches, self.thresholds = batches, list(thresholds)

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if model.depth.exits:
            return None
        return "nothing leaves a model of fixed depth; use model/depth=early_exit, or leave out probes=early_exit."

    def measure(self, model: Topology, task: Task) -> Finding:
        metrics, other = {}, copy.deepcopy(model)
        shapes: dict[str, Shape] = {}
        for item in task.evaluation("val"):
            saved, _, _ = self._at(model, item)
            metrics[f"probe/layers_saved{item.name}"] = saved
            found = []
            for threshold in self.thresholds:
                other.depth.threshold = threshold
                found.append(self._at(other, item))
            shares, losses, accuracies = zip(*found, strict=True) if found else ((), (), ())
            for threshold, share, loss in zip(self.thresholds, shares, losses, strict=True):
                metrics[f"probe/early_exit/loss/{threshold:g}{item.name}"] = loss
                metrics[f"probe/early_exit/saved/{threshold:g}{item.name}"] = share
            shapes[f"loss{item.name}"] = self._curve("loss in nats", item.name, shares, losses)
            shapes[f"accuracy{item.name}"] = self._curve("accuracy", item.name, shares, accuracies)
        return Finding(metrics, shapes)

    def _curve(self, what: str, name: str, shares: Sequence[float], values: Sequence[float]) -> Curve:
        return Curve(
            f"What leaving early saves and costs: {what.split()[0]}{name and f' ({name})'}",
            "Each mark is a threshold of confidence.",
            "share of layers saved", what, shares, {"": values},
            points=[f"threshold {threshold:g}" for threshold in self.thresholds],
        )  # fmt: skip

    def _at(self, model: Topology, item: EvaluationSet) -> tuple[float, float, float]:
        """Share of layers saved, loss and accuracy."""
        layers, found = len(model.stack.layers), []
        for batch in EvaluationStream(item, self.batches, drawn_position_range(model)):
            logits: Tensor = model.answers(*model_inputs(batch))[MAIN].double()
            there = target_mask(batch.targets)
            passed = torch.full_like(batch.targets, layers) if model.layers_passed is None else model.layers_passed
            nats = cross_entropy(logits[there], batch.targets[there], ignore_index=IGNORE, reduction="none")
            right = logits[there].argmax(-1) == batch.targets[there]
            saved = 1 - passed.expand_as(there)[there] / layers
            found.append(torch.stack([saved.double(), nats, right.double()]))
        saved_share, loss, accuracy = torch.cat(found, 1).mean(1).tolist()
        return saved_share, loss, accuracy
