"""A reversible residual stream, whose backward pass recomputes activations instead of storing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from swapformer.model.ops import CAN_AUTOCAST, total, without_autocast
from swapformer.model.residual.base import ForwardPass, Residual, Update

Pair = tuple[Tensor, Tensor]


class Reversible(Residual):
    """Two streams, (a, b) ← (b, a + F(b)), so that a = b' − F(a'); closed as their mean.

    Two branches in a row are y₁ = x₁ + F(x₂), y₂ = x₂ + G(y₁) of Gomez et al. 2017 (arXiv:1707.04585). Both streams
    start from the embeddings, as in Reformer (Kitaev et al. 2020, arXiv:2001.04451, which concatenates them at the
    end). In training the backward pass recovers each state from the one after it and computes each branch once more, so
    activation memory does not grow with depth; the state of the random generator is stored by branch, for dropout.

    A branch may have no auxiliary loss, and must not change between its two computations.
    """

    keeps: ClassVar[str] = "the two streams of a reversible network"
    reads_stream: ClassVar[bool] = False
    recomputes: ClassVar[bool] = True

    def open(self, x: Tensor) -> Pair:
        return x, x

    def read(self, state: Pair) -> Tensor:
        return state[1]

    def write(self, state: Pair, update: Tensor) -> Pair:
        return state[1], state[0] + update

    def normalise(self, state: Pair, norm: Update) -> Pair:
        raise ValueError("a norm after the sum cannot be inverted, so residual reversible needs model/placement=pre.")

    def close(self, state: Pair, norm: Update) -> Tensor:
        return norm((state[0] + state[1]) / 2)

    def run(self, state: Pair, forward: ForwardPass) -> Pair:
        if not torch.is_grad_enabled():
            return super().run(state, forward)
        inputs = forward.inputs()
        ends: Pair = _Backwards.apply(forward.updates, len(inputs), *inputs, *state)  # type: ignore[no-untyped-call]
        return ends


class _Backwards(torch.autograd.Function):
    """(x₁, x₂) → the state after all branches; only this is stored for the backward pass."""

    @staticmethod
    def forward(ctx: Any, updates: Callable[[], Sequence[Update]], count: int, *tensors: Tensor) -> Pair:
        ctx.updates, ctx.inputs = updates, tensors[:count]
        ctx.conditions = []
        a, b = tensors[count:]
        for update in updates():
            ctx.conditions.append(_Conditions(b.device))
            a, b = b, a + update(b)
        ctx.save_for_backward(a, b)
        return a, b

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_a: Tensor, grad_b: Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        wanted = [parameter for parameter in ctx.inputs if parameter.requires_grad]
        totals: list[Tensor | None] = [None] * len(wanted)
        for index in reversed(range(len(ctx.conditions))):
            read = a.detach().requires_grad_()
            with torch.enable_grad(), ctx.conditions[index].again():
                update = ctx.updates()[index](read)
            # The state before was (b − F(a), a): its first part is reached only through the sum.
            found = torch.autograd.grad(update, [read, *wanted], grad_b, allow_unused=True)
            a, b = b - update.detach(), a
            grad_a, grad_b = grad_b, grad_a if found[0] is None else grad_a + found[0]
            totals = [total(before, more) for before, more in zip(totals, found[1:], strict=True)]
        by_parameter = iter(totals)
        grads = [next(by_parameter) if parameter.requires_grad else None for parameter in ctx.inputs]
        return None, None, *grads, grad_a, grad_b


class _Conditions:
    """The random generators' states and autocast settings, with which a branch is computed again."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        casts = device.type in CAN_AUTOCAST  # meta never casts
        self.dtype = torch.get_autocast_dtype(device.type) if casts and torch.is_autocast_enabled(device.type) else None

    @contextmanager
    def again(self) -> Iterator[None]:
        """Restore the conditions; the generators have their states of before again afterwards."""
        devices = [] if self.cuda is None else [self.device]
        with (
            torch.random.fork_rng(devices=devices),
            without_autocast(self.device) if self.dtype is None else torch.autocast(self.device.type, self.dtype),
        ):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield
