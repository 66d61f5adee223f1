"""What a step is given, as a list of tensors: for steps whose computation does not run through Python each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from swapformer.model.tokens import Tokens
from swapformer.task.base import Batch, Sequences
from swapformer.training.data import BatchShare


def inputs_of(batch: Batch, extents: Mapping[str, int]) -> Any:
    """The arguments of a model's forward, in which nothing has to be read from a tensor."""
    source = batch.source
    here = batch.inputs, _tokens(batch, extents.get("batch"))
    return (*here, None, None) if source is None else (*here, source.inputs, _tokens(source, extents.get("source")))


def _tokens(sequences: Sequences, extent: int | None) -> Tokens:
    length, device = sequences.inputs.shape[1], sequences.inputs.device
    given = {name: getattr(sequences, name) for name in ("document", "padding", "tags")}
    tokens = Tokens.of(length, device=device, **given)
    if sequences.position is None:
        return tokens
    assert extent is not None, "the extent of positions is read before the step"
    return replace(tokens, position=sequences.position, extent=extent, bounds=(0, extent - 1))


def signature(module: Any, share: BatchShare) -> object:
    """What the batches of trials must have in common to be one batch: their shapes, and what is read of positions.

    An encoding that depends on how many tokens there are reads the largest position of its own batch.
    """
    (flat, shape), extents = flatten(share)
    own = any(getattr(part, "depends_on_length", False) for part in module.model.modules())
    return (tuple((t.shape, t.dtype) for t in flat), str(shape), tuple(sorted(extents.items())) if own else None)


def flatten(share: BatchShare) -> tuple[tuple[list[Tensor], Any], dict[str, int]]:
    """The tensors of a share and what they are, and how far its positions reach."""
    batch = share.batch
    extents = {
        name: int(held.position.max()) + 1
        for name, held in (("batch", batch), ("source", batch.source))
        if held is not None and held.position is not None
    }
    targets = {name: count_tensor(count, batch.inputs.device) for name, count in share.targets.items()}
    flat, spec = tree_flatten({"batch": _plain(batch), "targets": targets})
    where = [isinstance(value, Tensor) for value in flat]
    return ([value for value in flat if isinstance(value, Tensor)], (spec, tuple(where))), extents


def count_tensor(count: int | Tensor, device: torch.device) -> Tensor:
    """A number of targets, by which a loss is divided: int64 [].

    On CUDA a division by a number of Python is a product with its inverse, which rounds otherwise: every kind of step
    divides by a tensor.
    """
    return count if isinstance(count, Tensor) else torch.full((), count, device=device)


def _plain(sequences: Sequences) -> dict[str, Any]:
    """All that sequences hold, by name."""
    held = {field.name: getattr(sequences, field.name) for field in fields(sequences)}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in held.items()}
    return {name: _plain(value) if isinstance(value, Sequences) else value for name, value in plain.items()}


def restore(flat: Sequence[Tensor], spec: Any) -> BatchShare:
    """The share that `flatten` took apart, with its tensors or others of their shapes."""
    form, where = spec
    tensors = iter(flat)
    held = tree_unflatten([next(tensors) if there else None for there in where], form)
    batch = held["batch"]
    source = None if batch["source"] is None else Sequences(**batch["source"])
    return BatchShare(Batch(**{**batch, "source": source}), held["targets"], 0)
