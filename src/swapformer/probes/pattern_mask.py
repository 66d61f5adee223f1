"""Probe of the pattern itself: which keys each token of a real sequence may attend to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.pattern import Pattern
from swapformer.model.topology import Topology
from swapformer.probes.attention_statistics import written
from swapformer.probes.base import Finding, Probe, validation
from swapformer.ranges import Count, Natural
from swapformer.results.shapes import AttentionMaps
from swapformer.task.base import Batch, Task, cut
from swapformer.training.inputs import tokens_of


class PatternMask(Probe):
    """The pairs that the patterns of a model allow in the task's own sequences, drawn over one of them.

    The metric `probe/keys_share` is the number of pairs of query and key that the patterns allow over that of the pairs
    j ≤ i, a mean over the layers and heads of a decoder; padding asks for nothing and is not attended to. The shape
    shows the mask of each layer and head that differs, on tokens of one validation sequence: 1 where a query may attend
    to a key, as a pattern by tags depends on the text.

    Args:
        batches: validation batches at the training length.
        sequence: the sequence that is drawn, counted from 0, of the first batch; its last one if there are fewer.
        tokens: of that sequence, its last ones, at most.

    Raises:
        ValueError: for a model without patterns.
    """

    def __init__(self, *, batches: Count, sequence: Natural, tokens: Count) -> None:
        self.batches, self.sequence, self.tokens = batches, sequence, tokens

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if 0 < len(_patterns(model)) == len(list(model.stack.layers)):
            return None
        return "pattern_mask shows the patterns of attentions, but a layer of this model has none; remove it."

    def measure(self, model: Topology, task: Task) -> Finding:
        patterns = _patterns(model)
        batches = list(validation(model, task, self.batches))
        allowed = earlier = 0.0
        for batch in batches:
            asking, masks = _masks(batch, patterns)
            allowed += sum(float((mask & asking).sum()) / mask.shape[1] for mask in masks) / len(patterns)
            size = batch.inputs.shape[1]
            before = torch.ones(size, size, dtype=torch.bool, device=asking.device).tril()
            earlier += float((before & asking & asking.mT).sum())
        return Finding({"probe/keys_share": allowed / earlier}, {"mask": self._drawn(task, batches[0], patterns)})

    def _drawn(self, task: Task, batch: Batch, patterns: Sequence[Pattern]) -> AttentionMaps:
        """The masks over one sequence: of each layer that differs from those before, and of heads that differ."""
        rows = len(batch.inputs)
        row = min(self.sequence, rows - 1)
        one: Batch = cut(batch, rows, row, row + 1)
        asking, masks = _masks(one, patterns)
        real = asking[0, 0, :, 0].nonzero().flatten()[-self.tokens :]
        maps: dict[str, list[list[float]]] = {}
        for layer, mask in enumerate(masks, 1):
            for head, drawn in enumerate(mask[0, :, real][:, :, real].float(), 1):
                if (values := drawn.tolist()) not in maps.values():
                    maps[f"layer {layer} head {head}"] = values
        return AttentionMaps(
            "Which keys a query may attend to",
            "Each row is a query, each column a key of one sequence; a bright field is allowed. A layer or head that "
            "is not shown has the mask of an earlier one.",
            written(task, one, real), None, maps,
        )  # fmt: skip


def _patterns(model: Topology) -> list[Pattern]:
    """The patterns of the layers whose attention has one, in order."""
    found = (getattr(layer.attention, "pattern", None) for layer in model.stack.layers)
    return [pattern for pattern in found if pattern is not None]


def _masks(batch: Batch, patterns: Sequence[Pattern]) -> tuple[Tensor, list[Tensor]]:
    """The positions of queries, bool [B, 1, T, 1], and the keys that each pattern allows, bool [B, 1|H, T, T]."""
    tokens = tokens_of(batch)
    rows, size = batch.inputs.shape[:2]
    context = Context(tokens, tokens)
    real = torch.ones(rows, size, dtype=torch.bool) if batch.padding is None else ~batch.padding.cpu()
    everything = torch.ones(1, 1, size, size, dtype=torch.bool, device=tokens.order.device)
    found = [context.mask(pattern) for pattern in patterns]
    masks = [everything if mask is None else mask for mask in found]
    asking = real.to(tokens.order.device)[:, None, :, None]
    return asking, [mask.expand(rows, -1, -1, -1) for mask in masks]
