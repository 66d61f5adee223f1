"""Probe of generation: how often a model answers right when it writes by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model.generate import Prompt, beam_search, complete, greedy
from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe
from swapformer.ranges import Count
from swapformer.task.base import Batch, Task, target_mask
from swapformer.training.data import drawn_position_range, positions_of, with_drawn_positions
from swapformer.training.inputs import tokens_of

_PIECES = "the targets of {} are not one answer behind a prompt, so none is written; leave out probes=generation."


class Generation(Probe):
    """Free-running accuracy: the model sees the prompt, then its own symbols, as many as the right answer has.

    The metrics are `probe/generated_exact_match` (share of answers that are right in every symbol) and
    `probe/generated_accuracy` (share of right symbols), with `@L` for the other evaluation sets. Under teacher forcing
    a causal model's exact match is the same number (positions that are drawn are drawn again); a model that saw its
    targets in training fails only here.

    Args:
        batches: validation batches of each evaluation set.
        beams: 1 writes greedily; more search for the most probable answer.

    Raises:
        ValueError: for a task whose targets are not one answer behind a prompt.
    """

    def __init__(self, *, batches: Count, beams: Count) -> None:
        self.batches, self.beams = batches, beams

    def unsuited(self, model: Topology, task: Task) -> str | None:
        name = type(task).__name__
        if not task.predicts_next or task.interface.readouts[MAIN].kind != "symbols":
            return f"a model that learns {name} does not write; leave out probes=generation."
        if not all(_spans(item.batch(0).targets)[2] for item in task.evaluation("val")):
            return _PIECES.format(name)
        if self.beams > 1 and task.end_token is None:
            return (
                f"beams search for an answer up to the symbol that ends it, but the answers of {name} have none; set "
                f"probes.generation.beams=1, not {self.beams}."
            )
        return None

    def measure(self, model: Topology, task: Task) -> Finding:
        metrics = {}
        for item in task.evaluation("val"):
            count = self.batches if item.batches is None else min(self.batches, item.batches)
            rows = [self._answered(model, task, item.batch(index), item.name, index) for index in range(count)]
            hits, sizes = (torch.cat(column) for column in zip(*rows, strict=True))
            metrics[f"probe/generated_exact_match{item.name}"] = float((hits == sizes).double().mean())
            metrics[f"probe/generated_accuracy{item.name}"] = float(hits.sum() / sizes.sum())
        return Finding(metrics)

    def _answered(self, model: Topology, task: Task, batch: Batch, name: str, index: int) -> tuple[Tensor, Tensor]:
        """For each row, how many symbols of its answer were right, and how many it has, [B] each."""
        first, sizes, whole = _spans(batch.targets)
        if not whole:
            raise ValueError(_PIECES.format(type(task).__name__))
        steps = int(sizes.max())
        prompt = _prompt(model, batch, first + 1, steps, (name, index))
        if self.beams == 1:
            written = complete(model, prompt, steps, greedy)
        else:
            assert task.end_token is not None, "an unsuited task has been refused"
            written, _ = beam_search(model, prompt, steps, width=self.beams, stop=task.end_token)
        offset = torch.arange(written.shape[1])
        right = batch.targets.gather(1, (first[:, None] + offset).clamp(max=batch.targets.shape[1] - 1))
        return ((written == right) & (offset < sizes[:, None])).sum(1), sizes


def _spans(targets: Tensor) -> tuple[Tensor, Tensor, bool]:
    """The start of each row's answer and its number of symbols, [B] each; whether each is in one piece."""
    there = target_mask(targets)
    sizes, first = there.sum(1), there.long().argmax(1)
    position = torch.arange(there.shape[1])
    return first, sizes, torch.equal(there, (position >= first[:, None]) & (position < (first + sizes)[:, None]))


def _prompt(model: Topology, batch: Batch, lengths: Tensor, steps: int, key: Sequence[object]) -> Prompt:
    """The first `lengths` [B] tokens of each row, standing to the right."""
    width = int(lengths.max())
    index = torch.arange(width) - (width - lengths)[:, None]
    padding = index < 0
    ids = batch.inputs.gather(1, index.clamp(min=0))
    drawn_from = drawn_position_range(model)
    positions = positions_of(model, width + steps, *key)
    source = with_drawn_positions(batch, drawn_from, *key).source
    return Prompt(
        ids,
        padding=padding if bool(padding.any()) else None,
        source=None if source is None else source.inputs,
        source_tokens=None if source is None else tokens_of(source),
        positions=positions,
    )
