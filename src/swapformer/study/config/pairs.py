"""Attended pairs: how many keys the queries of a sequence look at, which is what a sparse pattern saves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Full, Pattern
from swapformer.model.plan import LayerPlan
from swapformer.model.topology import Topology
from swapformer.task.base import Batch, Sequences, Task, cut
from swapformer.training.assemble import build_plan, factory
from swapformer.training.inputs import tokens_of

BATCHES = 4
"""Training batches that are looked at where sequences differ."""


def attended_pairs(config: Mapping[str, Any], task: Task) -> int:
    """Pairs of query and key that a training sequence attends, summed over layers, as a mean over heads and sequences.

    Counted in the masks of patterns over the task's own batches, since tags, documents and padding decide them too;
    where sequences are alike, by the pattern's closed form if it has one. A source that is read counts as well: within
    itself, and for each query that reads it. Attentions that form no scores attend to no pairs.

    Raises:
        UsageError: for a model that attends to none.
    """
    with torch.device("meta"):
        plan = build_plan(config, task.interface)
        model: Topology = factory(config["model"]["topology"])(plan)
    if not model.has_slots:
        raise UsageError("the attention of a whole model (model=own) is not known, so no attended pairs are counted")
    reads_ahead = model.reads_ahead
    batches = [task.train_batch(config["data_seed"], step) for step in range(BATCHES)]
    if reads_ahead:
        batches = [replace(batch, source=batch) for batch in batches]
    sources = [batch.source for batch in batches if batch.source is not None]
    total = _in_stack(plan.layers, batches) + _in_stack(plan.encoder, sources)
    total += sum(_across(plan.dims, batches) for layer in plan.layers if plan.encoder and _attends(layer))
    if not total:
        raise UsageError("no attention of this model forms scores, so there are no attended pairs; match another cost")
    return round(total)


def _in_stack(layers: Iterable[LayerPlan], sequences: list[Any]) -> float:
    """The pairs that self-attention attends in a stack's layers, counted once for layers that share a pattern."""
    known: dict[Pattern, float] = {}
    total = 0.0
    for layer in layers:
        pattern = layer.pattern()
        if _attends(layer):
            if pattern not in known:
                known[pattern] = _mean_pairs(pattern, sequences)
            total += known[pattern]
    return total


def _attends(layer: LayerPlan) -> bool:
    with torch.device("meta"):
        attention = layer.attention()
    return "pattern" in attention.uses and attention.scoreless is None


def _mean_pairs(pattern: Pattern, sequences: list[Sequences]) -> float:
    first = tokens_of(sequences[0])
    if not pattern.tags and all(each.padding is None and each.document is None for each in sequences):
        known = pattern.pairs(len(first))
        return float(_count(pattern, Context(first, first))) if known is None else float(known)
    counts = [
        _count(pattern, Context(tokens, tokens))
        for each in sequences
        for row in range(len(each.inputs))
        for tokens in [tokens_of(cut(each, len(each.inputs), row, row + 1))]
    ]
    return sum(counts) / len(counts)


def _count(pattern: Pattern, context: Context) -> float:
    """The pairs of one sequence, a mean over heads; padding asks for nothing."""
    mask, size = context.mask(pattern), (len(context.query), len(context.key))
    allowed: Tensor = torch.ones(1, 1, *size, dtype=torch.bool) if mask is None else mask
    if context.query.padding is not None:
        allowed = allowed & ~context.query.padding[:, None, :, None]
    return int(allowed.sum()) / allowed.shape[1]


def _across(dims: Dims, batches: list[Batch]) -> float:
    """The pairs that cross-attention attends: every token that is no padding asks for all those of the source."""
    counts = [
        _count(
            Full(dims),
            Context(tokens_of(cut(each, rows, row, row + 1)), tokens_of(cut(each.source, rows, row, row + 1))),
        )
        for each in batches
        for rows in [len(each.inputs)]
        for row in range(rows)
    ]
    return sum(counts) / len(counts)
