"""Probe of attention statistics: how far, how widely and at what kind of token each head looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from statistics import fmean

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model import taps
from swapformer.model.context import Context
from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe, validation
from swapformer.probes.head_scores import BINS, SCORES, HeadScores, SeenAttention, bin_width, matrix_of_heads
from swapformer.ranges import Count
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import AttentionMaps, Histogram, Matrix, Profile, Shape
from swapformer.task.base import Batch, Task, cut
from swapformer.training.inputs import model_inputs

WEIGHTS = "*.attn.hook_pattern"
"""The places where self-attentions show their weights."""
_AVERAGED = ("distance", "entropy", "first_key", "distance_rest", "entropy_rest", "future")
_BY_LAYER = ("distance", "entropy", "distance_rest", "entropy_rest")
_IN_ALL = ("answer", "rare_token", "next_token")
_ELEMENTS = 1 << 22
"""Weights that are looked at together."""


class AttentionStatistics(Probe):
    """Scores of every head, as means over the queries whose target is scored and that may attend to several keys.

    Metrics are averages over heads and layers (`probe/distance`, `probe/entropy`, `probe/first_key`, `probe/future`;
    `probe/distance_rest` and `probe/entropy_rest` with the first token left out) and over the heads of layer L, counted
    from 1 (`probe/distance_by_layer@L` and likewise for entropy and those of the rest; `derive` takes their rank
    correlation with L). Of what single heads specialise in, the best head counts: `probe/previous_token` in the first
    layer, `probe/prefix_matching` in later ones, `probe/answer`, `probe/rare_token` and `probe/next_token` in all. See
    `analysis` for the formulas.

    The shapes are a matrix of layers × heads for each score, a profile of those that are taken by layer, a histogram of
    distances, and the attention maps of one example. In an encoder-decoder it is the decoder that is watched, and what
    it attends to in the source is left out. Layers that form no weights are passed over.

    Args:
        batches: validation batches at the training length.
        tokens: of the example whose maps are kept, at most.

    Raises:
        ValueError: for a model without attention weights.
    """

    def __init__(self, *, batches: Count, tokens: Count) -> None:
        self.batches, self.tokens = batches, tokens

    def unsuited(self, model: Topology, task: Task) -> str | None:
        problem = taps.missing(model, WEIGHTS)
        return None if problem is None else f"attention_statistics looks at attention weights: {problem}"

    def measure(self, model: Topology, task: Task) -> Finding:
        return self.of(model, task, "")

    def of(self, model: Topology, task: Task, name: str) -> Finding:
        """The findings on the validation data's evaluation set of a name; \"\" is the one like training's."""
        batches = list(validation(model, task, self.batches, name))
        layers: dict[int, HeadScores] = {}
        uniform = torch.zeros(BINS, dtype=torch.float64)
        for index, seen in seen_attention(model, task, batches):
            layers.setdefault(index, HeadScores()).add(seen)
            uniform += seen.binned(seen.uniform, batches[0].inputs.shape[1]).sum(0)
        known = [name for name in SCORES if any(each.known(name) for each in layers.values())]
        shapes: dict[str, Shape] = {f"heads/{name}": _matrix(name, layers) for name in known}
        shapes |= {f"layers/{name}": _profile(name, layers) for name in _BY_LAYER if name in known}
        shapes["distances"] = _histogram(layers, uniform, batches[0].inputs.shape[1])
        shapes["maps"] = self._maps(model, task, batches[0])
        empty = [name for name in SCORES if all(value is None for each in layers.values() for value in each.of(name))]
        return Finding(
            _metrics(layers), {key: each for key, each in shapes.items() if key[len("heads/") :] not in empty}
        )

    def _maps(self, model: Topology, task: Task, batch: Batch) -> AttentionMaps:
        """The maps of the first sequence of a batch."""
        one: Batch = cut(batch, batch.inputs.shape[0], 0, 1)
        real = torch.arange(one.inputs.shape[1]) if one.padding is None else (~one.padding[0]).nonzero().flatten()
        real = real[: self.tokens]
        texts = written(task, one, real)
        maps = {
            f"layer {layer + 1} head {head + 1}": weights[0, head][real][:, real].tolist()
            for layer, weights, _ in watched_weights(model, one)
            for head in range(weights.shape[1])
        }
        return AttentionMaps("Attention of one example", "Each row is a query, each column a key.", texts, None, maps)


class LongAttention(Probe):
    """`AttentionStatistics` on an evaluation set of another length: `probe/prefix_matching@32` and others.

    Metrics bear the set's name, and those of single layers are left out; scores, formulas and shapes are those of
    `AttentionStatistics`. Beside it, it tells whether heads do at a new length what they do at the trained ones.

    Args:
        length: of the evaluation set, as it is named: 32 of "@32".
        batches: of that set.
        tokens: of the example whose maps are kept, at most.
    """

    def __init__(self, *, length: Count, batches: Count, tokens: Count) -> None:
        self.name, self.scores = f"@{length}", AttentionStatistics(batches=batches, tokens=tokens)

    def unsuited(self, model: Topology, task: Task) -> str | None:
        known = [item.name for item in task.evaluation("val") if item.name]
        if self.name in known:
            return self.scores.unsuited(model, task)
        return (
            f"long_attention looks at the evaluation set {self.name}, but the task has {', '.join(known) or 'none'}; "
            f"set probes.long_attention.length to one of them, or add {self.name[1:]} to task.eval_lengths."
        )

    def measure(self, model: Topology, task: Task) -> Finding:
        found = self.scores.of(model, task, self.name)
        whole = {f"{name}{self.name}": value for name, value in found.metrics.items() if BY_LAYER not in name}
        return Finding(whole, found.shapes)


def written(task: Task, batch: Batch, places: Tensor) -> list[str]:
    """The text of some places of the first sequence of a batch: as symbols, or as values of the first channel."""
    if task.interface.channels:
        return [f"{value:.2g}" for value in batch.inputs[0, places, 0].tolist()]
    return [task.tokens[index] for index in batch.inputs[0, places].tolist()]


def watched_weights(model: Topology, batch: Batch) -> list[tuple[int, Tensor, Tensor | None]]:
    """Layer, weights [B, H, T, T] and allowed keys (None for all) of every self-attention that forms weights."""
    ids, tokens, source, source_tokens = model_inputs(batch)
    with taps.record(model, WEIGHTS) as seen:
        model(ids, tokens, source, source_tokens)
    context, layers = Context(tokens, tokens), list(model.stack.layers)
    found: list[tuple[int, Tensor, Tensor | None]] = []
    for name, weights in seen.items():
        if not name.startswith("encoder."):
            index = int(name.split(".")[1])
            pattern = getattr(layers[index].attention, "pattern", None)
            found.append((index, weights, None if pattern is None else context.mask(pattern)))
    return found


def seen_attention(model: Topology, task: Task, batches: Sequence[Batch]) -> Iterator[tuple[int, SeenAttention]]:
    """Layer and observations of every self-attention on batches, a few sequences at a time."""
    frequency = None if task.interface.channels else _frequency(batches, task.vocab_size)
    asked = task.interface.readouts[MAIN]
    answers = asked.kind == "symbols" and asked.per == "position"
    for batch in batches:
        for index, weights, allowed in watched_weights(model, batch):
            rows = max(1, _ELEMENTS // weights[0].numel())
            for low in range(0, len(weights), rows):
                part: Batch = cut(batch, len(weights), low, low + rows)
                some = weights[low : low + rows]
                yield index, SeenAttention.of(part, some, _rows(allowed, low, rows), frequency, answers)


def _rows(allowed: Tensor | None, low: int, rows: int) -> Tensor | None:
    return allowed if allowed is None or len(allowed) == 1 else allowed[low : low + rows]


def _frequency(batches: Sequence[Batch], size: int) -> Tensor:
    """The number of times that each symbol occurs in the batches, [V]."""
    counts = torch.zeros(size, dtype=torch.int64)
    for batch in batches:
        ids = batch.inputs if batch.padding is None else batch.inputs[~batch.padding]
        counts += torch.bincount(ids.flatten(), minlength=size)
    return counts


def _metrics(layers: Mapping[int, HeadScores]) -> dict[str, float]:
    heads = {name: {index: each.known(name) for index, each in sorted(layers.items())} for name in SCORES}
    means = {name: {index: fmean(known) for index, known in heads[name].items() if known} for name in _AVERAGED}
    found = {f"probe/{name}": fmean(each.values()) for name, each in means.items() if each}
    found |= {
        f"probe/{name}{BY_LAYER}@{index + 1}": value for name in _BY_LAYER for index, value in means[name].items()
    }
    best = {
        "previous_token": heads["previous_token"].get(0, []),
        "prefix_matching": [value for index, known in heads["prefix_matching"].items() if index for value in known],
        **{name: [value for known in heads[name].values() for value in known] for name in _IN_ALL},
    }
    return found | {f"probe/{name}": max(known) for name, known in best.items() if known}


def _profile(name: str, layers: Mapping[int, HeadScores]) -> Profile:
    means = {index: fmean(each.known(name)) for index, each in sorted(layers.items()) if each.known(name)}
    return Profile(
        f"{name.replace('_', ' ').capitalize()} by layer", f"A mean over heads: {SCORES[name]}.",
        name.replace("_", " "), "", [str(index + 1) for index in means], ["end"], [list(means.values())],
    )  # fmt: skip


def _matrix(name: str, layers: Mapping[int, HeadScores]) -> Matrix:
    found = {f"layer {index + 1}": each.of(name) for index, each in sorted(layers.items())}
    high = None if name.startswith("distance") else 1.0
    return matrix_of_heads(name.replace("_", " ").capitalize(), f"By layer and head: {SCORES[name]}.", found, high=high)


def _histogram(layers: Mapping[int, HeadScores], uniform: Tensor, length: int) -> Histogram:
    width = bin_width(length)
    count = ceil(length / width)
    sums = {f"layer {index + 1}": each.distances.sum(0) for index, each in sorted(layers.items())}  # type: ignore[union-attr]
    series = {**sums, "uniform": uniform}
    return Histogram(
        "How far attention reaches",
        "Shares of the attention of scored queries by distance; uniform: on all keys that may be attended to.",
        "distance in tokens", [edge * width - 0.5 for edge in range(count + 1)],
        {name: (each[:count] / each.sum().clamp(min=1e-300)).tolist() for name, each in series.items()},
    )  # fmt: skip
