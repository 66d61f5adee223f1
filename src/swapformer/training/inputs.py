"""The inputs of a model from a batch, and the loss of its answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from swapformer.interface import Readout
from swapformer.model.ops import widen
from swapformer.model.tokens import Tokens
from swapformer.task.base import IGNORE, Batch, Sequences, Task, target_mask


def tokens_of(sequences: Sequences) -> Tokens:
    """Tokens: the facts that a model needs about sequences, other than their inputs."""
    return Tokens.of(
        sequences.inputs.shape[1],
        device=sequences.inputs.device,
        position=sequences.position,
        document=sequences.document,
        padding=sequences.padding,
        tags=sequences.tags,
        extent=sequences.extent,
    )


MOST_LOGITS = 2**27
"""Logits that are computed with in float32 at a time."""

ModelInputs = tuple[Tensor, Tokens, Tensor | None, Tokens | None]
"""The arguments of a model's forward."""


def model_inputs(batch: Batch) -> ModelInputs:
    """The arguments of a model's forward for a batch."""
    source = batch.source
    here = batch.inputs, tokens_of(batch)
    return (*here, None, None) if source is None else (*here, source.inputs, tokens_of(source))


def total_loss(readout: Readout, answer: Tensor, targets: Tensor) -> Tensor:
    """The loss summed over all targets: cross-entropy in nats of symbols and classes, squared error of values.

    Args:
        readout: what was asked for.
        answer: logits or values, [B, T, size] or [B, size].
        targets: [B, T] or [B] for symbols and classes; shaped as the answer for values.
    """
    if readout.kind != "values" and answer.element_size() < 4:
        total: Tensor = CrossEntropyInParts.apply(answer.flatten(0, -2), targets.flatten())  # type: ignore[no-untyped-call]
        return total
    answer = widen(answer)
    if readout.kind == "values":
        there = target_mask(targets)
        return (answer - torch.where(there, targets, 0.0).to(answer.dtype)).square().masked_fill(~there, 0.0).sum()
    return functional.cross_entropy(answer.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum")


class CrossEntropyInParts(torch.autograd.Function):
    """Cross-entropy of 16-bit logits [N, V], summed over targets, without all of them in float32 at a time.

    Rows are computed in float32, a part after another. The gradient is softmax(x) − 1[v = t]; its softmax is computed
    once, with the loss, and the backward pass keeps it in 16 bits, instead of the logits. In float16, whose smallest
    number is 6e-8, it is kept times 2¹⁵.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        there = targets != IGNORE
        asked = targets.masked_fill(~there, 0)[:, None]
        chances = logits.new_empty(logits.shape if ctx.needs_input_grad[0] else (0, 0))
        known = logits.new_empty(asked.shape, dtype=torch.float32)
        ctx.unit = 2.0**15 if logits.dtype == torch.float16 else 1.0
        for x, of, found, *out in _parts(logits, asked, known, *([chances] if len(chances) else [])):
            logs = torch.log_softmax(x, -1, dtype=torch.float32)
            torch.gather(logs, -1, of, out=found)
            if out:
                torch.exp(logs.add_(math.log(ctx.unit)) if ctx.unit > 1 else logs, out=out[0])
        ctx.save_for_backward(chances, asked, there, known)
        return -torch.where(there, known[:, 0], 0.0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        chances, asked, there, known = ctx.saved_tensors
        scale = (grad * there)[:, None]
        found = torch.mul(chances, scale / ctx.unit, out=torch.empty_like(chances))
        found.scatter_(-1, asked, (known.expm1() * scale).to(found.dtype))
        return found, None


def _parts(logits: Tensor, *more: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Rows of the logits and of what belongs to them, few at a time."""
    size = max(1, MOST_LOGITS // logits.shape[-1])
    return zip(*(torch.split(each, size) for each in (logits, *more)), strict=True)


def task_losses(task: Task, answers: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """The loss summed over all targets, by answer: the task's own, or `total_loss`.

    Raises:
        ValueError: if the task's own is not one number for each answer.
    """
    readouts, own = task.interface.readouts, task.loss(answers, batch)
    if own is None:
        return {name: total_loss(of, answers[name], batch.answers[name]) for name, of in readouts.items()}
    if own.keys() != readouts.keys() or any(held.ndim for held in own.values()):
        given = {name: list(held.shape) for name, held in own.items()}
        raise ValueError(
            f"{type(task).__name__}.loss must give one number for each of the answers {list(readouts)}, summed over "
            f"its targets, but it gave the shapes {given}"
        )
    return dict(own)
