"""Describes a task in words: its sizes and metrics, some items with their targets, and the overlap of its splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from torch import Tensor

from swapformer.interface import MAIN
from swapformer.task.base import Batch, Sequences, Task, target_mask
from swapformer.task.overlap import overlap

SHOWN = 5
"""Training items that are shown."""

Evaluated = Literal["val", "test"]
SPLITS: Sequence[Evaluated] = ("val", "test")


def describe(task: Task) -> Iterator[str]:
    """Lines about a task; targets are in «»."""
    tokens, asked = task.tokens, task.interface.readouts[MAIN]
    some = " ".join(repr(token) if token.isspace() else token for token in tokens[:40])
    yield f"{type(task).__name__}: asks for {asked.kind} of {asked.size}, one for each {asked.per}"
    yield f"vocabulary of {task.vocab_size}: {some}{' …' if len(tokens) > 40 else ''}"
    names = [one.name or "as trained" for one in task.evaluation("val")]
    yield f"training sequences of {task.train_length} tokens, at most {task.max_length}; evaluated {', '.join(names)}"
    yield f"metrics: {', '.join([*task.directions, *task.summaries])}"
    yield ""
    batch = task.train_batch(0, 0)
    for row in range(min(SHOWN, len(batch.inputs))):
        yield from _item(task, batch, row)
    yield ""
    for split in SPLITS:
        if task.evaluation(split):
            yield f"overlap: {overlap(task, split)}"
    for left, count in task.left_out.items():
        yield f"left out: {count} {left} items that training has too"


def _item(task: Task, batch: Batch, row: int) -> Iterator[str]:
    if batch.source is not None:
        yield f"  source: {_inputs_text(task, batch.source, row)}"
    targets = batch.targets[row]
    targeted = target_mask(targets)
    if task.predicts_next and targets.dim() == 1 and not targets.is_floating_point():
        inputs = _present(batch, row)
        marks = [False, *targeted[: len(inputs)].tolist()]
        sequence = [*inputs.tolist(), *([int(targets[len(inputs) - 1])] if marks[-1] else [])]
        yield f"  {_marked(task, sequence, marks)}"
    else:
        found = targets[targeted].flatten().tolist() if targets.dim() else [targets.item()]
        words = task.decode(map(int, found)) if task.interface.readouts[MAIN].kind == "symbols" else found
        yield f"  {_inputs_text(task, batch, row)}  «{words}»"
    for name, tag in batch.tags.items():
        yield f"    {name}: {' '.join(map(str, tag[row][: len(_present(batch, row))].tolist()))}"


def _present(given: Sequences, row: int) -> Tensor:
    """The inputs of a row without padding."""
    return given.inputs[row] if given.padding is None else given.inputs[row][~given.padding[row]]


def _inputs_text(task: Task, given: Sequences, row: int) -> str:
    inputs = _present(given, row)
    if inputs.is_floating_point():
        return str([round(value, 3) for value in inputs.flatten().tolist()])
    return task.decode(inputs)


def _marked(task: Task, sequence: Sequence[int], targeted: Sequence[bool]) -> str:
    """The sequence with « » around every run of target tokens."""
    pieces: list[str] = []
    run: list[int] = []
    for index, token in enumerate(sequence):
        run.append(token)
        if index + 1 == len(sequence) or targeted[index + 1] != targeted[index]:
            text = task.decode(run)
            pieces.append(f"«{text}»" if targeted[index] else text)
            run = []
    return task.separator.join(pieces)
