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
    model: nn.Module, run: Callable[..., Tensor], given: Sequence[Any], length: int, kv_cache: int | None
) -> Cost:
    """The cost of one training batch [batch, length] of a model that lies on the meta device.

    Args:
        model: on meta, in the precision that activations are counted in.
        run: the model's answers for what is given, summed.
        given: what a forward takes, for one batch.
        length: places of each sequence.
        kv_cache: bytes that generation keeps.
    """
    kept, counter = _Kept(model), partial(FlopCounterMode, display=False, custom_mapping=_ALSO)
    with (
        counter() as forward,
        saved_tensors_hooks(kept.pack, lambda tensor: tensor),
    ):
        total = run(*given)
    with counter() as backward:
        total.backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    return Cost(
        length=length,
        forward=forward.get_total_flops(),
        backward=backward.get_total_flops(),
        activations=kept.bytes,
        kv_cache=kv_cache,
    )


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
