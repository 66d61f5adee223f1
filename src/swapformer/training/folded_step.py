"""The step of several trials as one batch: forward and backward under `torch.func.vmap` over their weights.

Each trial keeps its own tensors. A step stacks them, computes the losses of all trials at once, and differentiates the
sum of the losses: since no trial's loss depends on another's weights, each gets the gradient of its own.

Attention stays fused: where a mask differs among the trials they lie side by side as heads, [B, K·H, T, E], else as
rows, [K·B, H, T, E], so that no mask is copied for each row. What is drawn at random is drawn for each trial by itself,
from the stream that it has alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from swapformer.model.topology import Topology
from swapformer.targets import find
from swapformer.training.data import BatchShare
from swapformer.training.step_inputs import flatten, inputs_of, restore


class Streams:
    """The random streams of the trials of a step: while one of them draws, torch's generators are in its state."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.seeds, self.device = seeds, device
        self._states: list[Any] = [None] * len(seeds)

    @contextmanager
    def of(self, trial: int) -> Iterator[None]:
        """Draw from the stream of one trial within, on from where it was."""
        outside = self._get()
        if self._states[trial] is None:
            torch.manual_seed(self.seeds[trial])
        else:
            self._set(self._states[trial])
        try:
            yield
        finally:
            self._states[trial] = self._get()
            self._set(outside)

    def _get(self) -> Any:
        own = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        return torch.get_rng_state(), own

    def _set(self, state: Any) -> None:
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1], self.device)


class _EachAlone(torch.autograd.Function):
    """A function of tensors, called for each trial by itself, from its own random stream."""

    @staticmethod
    def forward(streams: Streams, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        raise AssertionError("what is drawn in a folded step depends on the trial")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, streams: Streams, function: Callable[..., Tensor], *tensors: Tensor) -> Any:
        results = []
        for trial in range(info.batch_size):
            own = [t if dim is None else t.select(dim, trial) for t, dim in zip(tensors, in_dims[2:], strict=True)]
            with streams.of(trial):
                results.append(function(*own))
        return torch.stack(results), 0


class _SideBySide(torch.autograd.Function):
    """torch's fused attention over the queries, keys and values [B, H, T, E] of all trials."""

    @staticmethod
    def forward(attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return attend(q, k, v, attn_mask=mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> Any:
        count = info.batch_size
        q, k, v = (
            x.unsqueeze(0).expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((q, k, v), in_dims[1:4], strict=True)
        )
        rows = q.shape[1]
        if mask is None or in_dims[4] is None:  # one mask for all trials: they are more rows
            if mask is not None and mask.dim() == 4 and mask.shape[0] > 1:
                mask = mask.repeat(count, 1, 1, 1)
            return _apart(attend(*(x.flatten(0, 1) for x in (q, k, v)), attn_mask=mask), 0, count, rows), 0
        mask = mask.movedim(in_dims[4], 0)
        heads = q.shape[2]
        mask = mask.expand(-1, -1, heads, -1, -1) if mask.shape[2] == 1 else mask
        q, k, v, mask = (x.transpose(0, 1).flatten(1, 2) for x in (q, k, v, mask))
        return _apart(attend(q, k, v, attn_mask=mask), 1, count, heads).transpose(0, 1), 0


def _apart(x: Tensor, dim: int, *sizes: int) -> Tensor:
    """x with one of its axes taken apart."""
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


class _Folding(TorchFunctionMode):
    """What a folded step calls in place of some of torch's functions: attention that stays fused, and own streams."""

    def __init__(self, streams: Streams, marker: Tensor) -> None:
        super().__init__()
        self.streams, self.marker = streams, marker

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            if kwargs.get("dropout_p"):
                return self._alone(func, args, kwargs)
            mask = kwargs.pop("attn_mask", None)

            def attend(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
                return functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **kwargs)

            return _SideBySide.apply(attend, *args, mask)  # type: ignore[no-untyped-call]
        if func is functional.dropout:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            return self._alone(func, args, kwargs) if p and kwargs.get("training", True) else args[0]
        if func is torch.rand:
            return _EachAlone.apply(self.streams, lambda marker: func(*args, **kwargs), self.marker)  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)

    def _alone(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """Call a function that draws for each trial by itself."""
        flat, spec = tree_flatten((args, kwargs))
        where = [index for index, value in enumerate(flat) if isinstance(value, Tensor)]

        def call(*tensors: Tensor) -> Tensor:
            values = list(flat)
            for index, tensor in zip(where, tensors, strict=True):
                values[index] = tensor
            positional, named = tree_unflatten(values, spec)
            result: Tensor = func(*positional, **named)
            return result

        tensors = [flat[index] for index in where]
        result: Tensor = _EachAlone.apply(self.streams, call, *tensors)  # type: ignore[no-untyped-call]
        return result


class _Objective(nn.Module):
    """The losses of one trial as a module, so that they can be computed with the weights of others."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.model: Topology = module.model
        self._module = (module,)  # no module of its own

    def forward(self, share: BatchShare, extents: Mapping[str, int]) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self._module[0].objective(share, inputs_of(share.batch, extents))
        return found


@dataclass(frozen=True, eq=False)
class Step:
    """The losses of one trial's step, as `TrialModule.objective` gives them, and the gradients of what is trained."""

    part: Tensor
    loss: Tensor
    gradients: Sequence[Tensor | None]


def folded_step(modules: Sequence[Any], shares: Sequence[BatchShare], seeds: Sequence[int]) -> list[Step]:
    """The losses of several trials for their batches, and their gradients.

    Args:
        modules: a TrialModule of each trial, of one architecture, with weights of its own.
        shares: the part of a batch that each computes, all of the same shapes.
        seeds: of what each draws in this step.

    Raises:
        ValueError: for weights of unequal shapes.
    """
    weights = [dict(module.model.named_parameters()) for module in modules]
    require_equal_shapes([{name: held.shape for name, held in own.items()} for own in weights])
    state = [{**own, **dict(module.model.named_buffers())} for own, module in zip(weights, modules, strict=True)]
    stacked = {f"model.{name}": torch.stack([own[name] for own in state]) for name in state[0]}
    held, extents = zip(*map(flatten, shares), strict=True)
    batched = [torch.stack(parts) for parts in zip(*(flat for flat, _ in held), strict=True)]
    shape = held[0][1]
    common = {name: max(own[name] for own in extents) for name in extents[0]}
    device = modules[0].device
    objective = _Objective(modules[0])
    marker = torch.zeros(len(modules), device=device)

    def one(weights: dict[str, Tensor], flat: list[Tensor], marker: Tensor) -> tuple[Tensor, Tensor]:
        with _Folding(streams, marker):
            found: tuple[Tensor, Tensor] = functional_call(objective, weights, (restore(flat, shape), common))
        return found

    streams = Streams(seeds, device)
    parts, losses = torch.func.vmap(one, randomness="error")(stacked, batched, marker)
    trained = [[held for held in own.values() if held.requires_grad] for own in weights]
    gradients = torch.autograd.grad(losses.sum(), [held for own in trained for held in own], allow_unused=True)
    given = iter(gradients)
    return [
        Step(part, loss, [next(given) for _ in own])
        for part, loss, own in zip(parts.detach(), losses.detach(), trained, strict=True)
    ]


def unfoldable(node: Any) -> Iterator[str]:
    """Which parts of a `model` node cannot be folded with those of other trials: those that state `folds = False`."""
    if isinstance(node, list):
        for each in node:
            yield from unfoldable(each)
    elif isinstance(node, Mapping):
        target = node.get("_target_")
        if target is not None and not getattr(find(target), "folds", True):
            yield f"{target.rpartition('.')[-1]} cannot be folded (it states folds=False)"
        for value in node.values():
            yield from unfoldable(value)


def require_equal_shapes(shapes: Sequence[Mapping[str, torch.Size]]) -> None:
    """Raise ValueError, which names what differs, unless all trials have the same weights."""
    first = shapes[0]
    for other in shapes[1:]:
        for name in [*first, *(other.keys() - first.keys())]:
            if first.get(name) != other.get(name):
                one, two = ("none" if s.get(name) is None else str(list(s[name])) for s in (first, other))
                raise ValueError(
                    f"folded trials must have weights of equal shapes, but {name} is {one} in one and {two} in "
                    "another; fold trials that differ in seed, optimiser and schedule alone."
                )
