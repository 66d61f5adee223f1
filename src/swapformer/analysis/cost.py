"""What a model costs, counted before anything is trained: on the meta device, where tensors have shapes and no data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Cost:
    """What one batch costs.

    Attributes:
        length: places of a sequence.
        forward, backward: floating-point operations of matrix products and triangular systems, a multiplication and an
            addition counted as two; everything else (norms, softmax, activations) is left out, as is usual.
        activations: bytes that the forward keeps for the backward, parameters aside.
        kv_cache: bytes that generation keeps of `length` places, a recurrent state included; None for an attention
            that has neither.
    """

    length: int
    forward: int
    backward: int
    activations: int
    kv_cache: int | None


def parameters_by_role(model: nn.Module, role_of: Callable[[str, nn.Parameter], str]) -> dict[str, int]:
    """Parameters by what they are for; a tied one is counted once, where it is declared."""
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[role_of(name, parameter)] += parameter.numel()
    return dict(counts)


def count(
    model: nn.Module, given: Sequence[Any], batch: int, length: int, kv_elements: int | None, state_elements: int = 0
) -> Cost:
    """The cost of one training batch [batch, length] of a model that lies on the meta device.

    Args:
        model: on meta, in the precision that activations are counted in.
        given: what its forward takes, for this batch.
        batch: sequences.
        length: places of each.
        kv_elements: elements that a cache keeps for each place of one sequence, all layers together.
        state_elements: elements that it keeps of one sequence whatever its length, in float32 or wider.
    """
    kept, counter = _Kept(model), partial(FlopCounterMode, display=False, custom_mapping=_ALSO)
    with (
        counter() as forward,
        saved_tensors_hooks(kept.pack, lambda tensor: tensor),
    ):
        logits: Tensor = model(*given)
    with counter() as backward:
        logits.sum().backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    size = next(model.parameters()).element_size()
    return Cost(
        length=length,
        forward=forward.get_total_flops(),
        backward=backward.get_total_flops(),
        activations=kept.bytes,
        kv_cache=None if kv_elements is None else batch * cache_bytes(length, kv_elements, state_elements, size),
    )


def cache_bytes(length: int, elements: int, state: int, size: int = 4) -> int:
    """Bytes that generation keeps of one sequence: numbers of `size` of each place, a state in at least float32."""
    return length * elements * size + state * max(size, 4)


def _triangular(system: Sequence[int], right: Sequence[int], *_: Any, **__: Any) -> int:
    """Substitution: each of n unknowns of a right-hand side needs a product with those before it, n²/2 in all."""
    return int(prod(right) * system[-1])


_ALSO = {torch.ops.aten.linalg_solve_triangular: _triangular}
"""Operations that torch's own counter leaves out."""


class _Kept:
    """Bytes of distinct storages that the backward needs, parameters aside."""

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
