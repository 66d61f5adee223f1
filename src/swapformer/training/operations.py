"""Counts the operations and the bytes of a training step on the meta device, where tensors have shapes and no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from swapformer.interface import MAIN, Interface
from swapformer.model.ops import CountedFor
from swapformer.model.plan import ModelPlan
from swapformer.model.topology import Topology, take_auxiliary_loss
from swapformer.training.assemble import build_plan, factory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def built(config: Mapping[str, Any], asked: Interface | int, dtype: str) -> tuple[Topology, ModelPlan]:
    """The model on the meta device, and its plan."""
    with torch.device("meta"):
        plan = build_plan(config, asked)
        model: Topology = factory(config["model"]["topology"])(plan).to("meta", DTYPES[dtype])
    return model, plan


def kind_of_device(accelerator: str) -> str:
    """The kind of device that a trainer's `accelerator` trains on."""
    return {"gpu": "cuda", "auto": "cuda" if torch.cuda.is_available() else "cpu"}.get(accelerator, accelerator)


def batch_cost(
    model: Topology, given: Sequence[Any], length: int, kv_cache: int | None, kind: str = "cpu"
) -> dict[str, int | None]:
    """The operations and bytes of one training batch [batch, length], whose arguments of a forward pass are `given`.

    The model is on the meta device, in the precision that activations are counted in. `kind`: of the device that is to
    execute it, whose kernels may compute more or fewer pairs.

    Returns:
        length: tokens of a sequence.
        forward, backward: floating-point operations of matrix products and triangular systems, a multiplication and an
            addition counted as two; everything else (norms, softmax, activations) is left out, as is usual.
        activations: bytes that the forward keeps for the backward, without the parameters.
        kv_cache: bytes that generation keeps of `length` tokens, a recurrent state included; None for an attention
            that has neither.
    """
    with CountedFor(kind):
        return _counted(model, given, length, kv_cache)


def _counted(model: Topology, given: Sequence[Any], length: int, kv_cache: int | None) -> dict[str, int | None]:
    saved, counter = _SavedBytes(model), partial(FlopCounterMode, display=False, custom_mapping=_MORE_OPERATIONS)
    with counter() as forward, saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        last: Tensor = model(*given)
        losses = [last.sum(), *(early[MAIN].sum() for early in model.take_early_answers())]
        if (auxiliary := take_auxiliary_loss(model)) is not None:
            losses.append(auxiliary)
        total = torch.stack(losses).sum()
    with counter() as backward:
        total.backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    return {
        "length": length,
        "forward": forward.get_total_flops(),
        "backward": backward.get_total_flops(),
        "activations": saved.bytes,
        "kv_cache": kv_cache,
    }


def _triangular(system: Sequence[int], right: Sequence[int], *_: Any, **__: Any) -> int:
    """Substitution: each of n unknowns of a right-hand side needs a product with those before it, n²/2 in all."""
    return int(prod(right) * system[-1])


_MORE_OPERATIONS = {torch.ops.aten.linalg_solve_triangular: _triangular}
"""Operations that torch's own counter leaves out."""


class _SavedBytes:
    """Counts the bytes of distinct storages that the backward pass needs, without the parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._seen: set[Any] = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        self._alive: list[Tensor] = []  # a freed storage's address may be given to another
        self.bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            self._alive.append(tensor)
            self.bytes += storage.nbytes()
        return tensor
