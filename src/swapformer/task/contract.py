"""Holds a task of the user's own to what models, training and records ask of one, before anything is trained.

The tasks of swapformer are held to it by their tests.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Readout
from swapformer.task.base import IGNORE, Batch, Sequences, Task, cut, target_mask

ATTRIBUTES: Mapping[str, tuple[str, str]] = {
    "vocab_size": ("the number of token ids", "self.vocab_size = 26"),
    "tokens": ("how each id is written", "self.tokens = tuple(map(str, range(26)))"),
    "train_length": ("the positions of a training batch", "self.train_length = 64"),
    "max_length": ("the positions of the longest batch of any split", "self.max_length = self.train_length"),
    "longest_trained": ("the longest length of training, in the unit of the sets @L", "self.longest_trained = 64"),
    "directions": ("which way each metric is better", 'directions = directions_of(("loss", "accuracy"))'),
}
"""What a task must set: what it is, and a line that sets it."""


def is_own(task: Task) -> bool:
    """Whether a task is defined outside swapformer."""
    return type(task).__module__.split(".")[0] != __name__.split(".")[0]


def require_attributes(task: Task) -> None:
    """UsageError for the first of ATTRIBUTES that a task does not set, with a line that sets it."""
    for name, (meaning, example) in ATTRIBUTES.items():
        if not hasattr(task, name):
            raise UsageError(f"{_name(task)} must set `{name}`, {meaning}, but does not; such as `{example}`")
    count, tokens = task.vocab_size, task.tokens
    if not task.interface.channels and len(tokens) != count:
        raise UsageError(
            f"`tokens` of {_name(task)} must write each of its {count} ids (vocab_size), but has {len(tokens)}; "
            "make them as many"
        )


def require_data(task: Task) -> None:
    """UsageError for the first fault of a task's first batches, metrics and hash.

    Asked are shapes, types and ranges, at least one target, that batches are of one size, that a batch is the same when
    it is asked for again, whole or in part, and that the metrics have a loss and a direction each.
    """
    first = _checked(task, "train_batch(0, 0)", task.train_batch(0, 0))
    rows, others = len(first.inputs), len(task.train_batch(1, 1).inputs)
    if rows != others:
        raise UsageError(
            f"{_name(task)}.train_batch must give as many sequences at every step, but gives {rows} and {others}; make "
            "each batch as large"
        )
    _require_same(task, "train_batch(0, 0)", first, task.train_batch(0, 0))
    own = task.train_rows(0, 0, rows - 1, rows)
    if not _equal(cut(first, rows, rows - 1, rows), own):
        raise UsageError(
            f"{_name(task)}.train_rows must give the sequences that train_batch has there, but gives others; remove "
            "the method where a sequence depends on the rest of its batch"
        )
    sets = task.evaluation("val")
    if not sets or sets[0].name != "":
        names = ", ".join(repr(each.name) for each in sets) or "none"
        raise UsageError(
            f'{_name(task)}.evaluation("val") must begin with a set named "", but its sets are {names}; such as '
            '`[EvaluationSet("", None, self.make_batch)]`'
        )
    held_out = _checked(task, 'evaluation("val")[0].batch(0)', sets[0].batch(0))
    _require_same(task, 'evaluation("val")[0].batch(0)', held_out, task.evaluation("val")[0].batch(0))
    _require_metrics(task, held_out)
    if not isinstance(task.fingerprint(), str):
        raise UsageError(f"{_name(task)}.fingerprint() must be a text such as a SHA-256, but is {task.fingerprint()!r}")


def _checked(task: Task, call: str, batch: object) -> Batch:
    """The batch that a call has given; UsageError where a model could not read it, or could learn nothing of it."""
    where = f"{_name(task)}.{call}"
    if not isinstance(batch, Batch):
        raise UsageError(
            f"{where} must give a Batch, but gives a {type(batch).__name__}; end it with "
            "`return Batch(inputs=…, targets=…)`"
        )
    _require_sequences(task, where, batch)
    if task.interface.source != (batch.source is not None):
        raise UsageError(
            f"{where} must have a source exactly where its task's `interface` says source=True, but that says "
            f"{task.interface.source}; give Interface(vocab_size, source={batch.source is not None})"
        )
    if batch.source is not None:
        _require_sequences(task, f"{where}.source", batch.source)
    for name, readout in task.interface.readouts.items():
        if name not in batch.answers:
            raise UsageError(f"{where} must have targets for the answer {name!r}, but has none; add labels={{…}}")
        _require_targets(where, batch.inputs, batch.answers[name], readout)
    if not target_mask(batch.targets).any():
        raise UsageError(f"{where} must have a target that is not IGNORE, or nothing can be learned, but has none")
    return batch


def _require_sequences(task: Task, where: str, given: Sequences) -> None:
    inputs, channels = given.inputs, task.interface.channels
    wanted = f"float32 [B, T, {channels}]" if channels else "int64 [B, T]"
    dtype, axes = (torch.float32, 3) if channels else (torch.int64, 2)
    if inputs.dtype != dtype or inputs.dim() != axes or (channels and inputs.shape[2] != channels):
        raise UsageError(f"inputs of {where} must be {wanted}, but are {_form(inputs)}")
    if inputs.shape[1] > task.max_length:
        raise UsageError(
            f"inputs of {where} must have at most max_length={task.max_length} positions, but have {inputs.shape[1]}"
        )
    if not channels and not 0 <= int(inputs.min()) <= int(inputs.max()) < task.vocab_size:
        raise UsageError(
            f"inputs of {where} must be ids from 0 to {task.vocab_size - 1} (vocab_size), but reach from "
            f"{int(inputs.min())} to {int(inputs.max())}"
        )
    for name, each in {"padding": given.padding, "document": given.document, **given.tags}.items():
        if each is not None and each.shape != inputs.shape[:2]:
            raise UsageError(f"{name} of {where} must be {list(inputs.shape[:2])} as its inputs, but is {_form(each)}")


def _require_targets(where: str, inputs: Tensor, targets: Tensor, readout: Readout) -> None:
    values = readout.kind == "values"
    shape = [*inputs.shape[: 2 if readout.per == "position" else 1], *([readout.size] if values else [])]
    dtype = torch.float32 if values else torch.int64
    if list(targets.shape) != shape or targets.dtype != dtype:
        wanted = f"{str(dtype).removeprefix('torch.')} {shape}"
        raise UsageError(
            f"targets of {where} must be {wanted} ({readout.kind} for each {readout.per}), but are {_form(targets)}"
        )
    asked = targets[target_mask(targets)]
    if not values and asked.numel() and not 0 <= int(asked.min()) <= int(asked.max()) < readout.size:
        raise UsageError(
            f"targets of {where} must be {IGNORE} (IGNORE) or from 0 to {readout.size - 1}, but reach from "
            f"{int(asked.min())} to {int(asked.max())}"
        )


def _require_same(task: Task, call: str, first: Batch, again: Batch) -> None:
    if not _equal(first, again):
        raise UsageError(
            f"{_name(task)}.{call} must give the same batch whenever it is asked, but gave two; draw from "
            "`swapformer.random.stream(…)`, seeded by what is asked"
        )


def _equal(first: Batch, again: Batch) -> bool:
    """Whether two batches read and ask the same."""
    pairs = [(first.inputs, again.inputs), *((first.answers[name], again.answers[name]) for name in first.answers)]
    return all(one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)


def _require_metrics(task: Task, batch: Batch) -> None:
    """UsageError unless the metrics of the main answer have a loss, and a direction each."""
    size = task.interface.readouts[MAIN].size
    shape = batch.targets.shape if batch.targets.is_floating_point() else (*batch.targets.shape, size)
    metrics = task.metrics()
    metrics.update(torch.zeros(shape), batch.targets)
    names = [name for name in metrics.compute() if not name.endswith("_se")]
    if "loss" not in names:
        raise UsageError(
            f"{_name(task)}.metrics() must have `loss`, but has {', '.join(names) or 'none'}; such as "
            '`return sequence_metrics(("loss", "accuracy"))`'
        )
    for name in names:
        if task.directions.get(name) not in ("lower", "higher"):
            raise UsageError(
                f"`directions` of {_name(task)} must say of its metric {name} whether lower or higher is better, but "
                f"says {task.directions.get(name)!r}; add it"
            )


def _name(task: Task) -> str:
    return f"{type(task).__module__}.{type(task).__qualname__}"


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
