"""Measures one attention layer: seconds by operation and length, and the bytes that it holds."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from swapformer.measure.base import MeasuredModel, Measurement, backward_pass, beyond_table
from swapformer.measure.clock import Clock, hold_memory, peak_bytes
from swapformer.model.attention import Attention
from swapformer.model.context import Context
from swapformer.model.kernel import Kernel
from swapformer.model.layers import Linear
from swapformer.model.position import Position
from swapformer.model.score import Score
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.ranges import Count, Natural
from swapformer.results.shapes import Curve, Finding
from swapformer.task.base import Direction, Task

OPERATIONS = ("product", "scores", "softmax", "mix", "projections", "all", "attention", "backward")


class AttentionCost(Measurement):
    """Seconds and bytes of one attention layer by operation and length: time/scores@n, time/all@n, bytes/all@n …

    The layer is the model's first, given random x [B, n, D], forward and without gradients. For each length n:
    `time/projections` are the linear maps between the stream and the heads (q, k, v, output, gates); `time/scores` is
    from q and k to masked logits, of which `time/product` is QKᵀ before scale and mask; `time/softmax` is the
    normaliser, `time/mix` the weighted sum of values. A kernel that fuses them, and an attention without them, lacks
    these four. `time/all` is the layer without the clock in between, and `time/attention` what is left of it without
    the projections. `time/backward` is the backward pass of the sum of the outputs. `bytes/all` is the peak of what a
    forward allocates beside x and the weights, with masks and biases; `bytes/backward` that of forward and backward. In
    the timings masks and biases are there already, as the layers of a model share them.

    Args:
        lengths: n, in tokens.
        batch: B.
        backward: whether the backward pass is measured.
        warm_up: calls before the first that counts.
        repeats: samples whose median counts.
        hold_memory: whether freed memory is kept for the next call. The C library gives buffers beyond 32 MB back, and
            the system fills them with zeros when they are asked for again, which can take longer than the arithmetic.
    """

    timed: ClassVar[bool] = True

    def __init__(
        self, *, lengths: Sequence[Count], batch: Count, backward: bool, warm_up: Natural, repeats: Count,
        hold_memory: bool = False,
    ) -> None:  # fmt: skip
        self.lengths, self.batch, self.backward, self.hold_memory = lengths, batch, backward, hold_memory
        self.warm_up, self.repeats = warm_up, repeats

    def directions(self) -> Mapping[str, Direction]:
        bases = [f"time/{operation}" for operation in OPERATIONS] + ["bytes/all", "bytes/backward"]
        named = [base for base in bases if self.backward or not base.endswith("backward")]
        return {f"{base}@{length}": "lower" for base in named for length in self.lengths}

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if self.hold_memory and platform.libc_ver()[0] != "glibc":
            return "measure.hold_memory needs the GNU C library; say false"
        return beyond_table("attention", max(self.lengths), model)

    def measure(self, subject: MeasuredModel) -> Finding:
        if self.hold_memory:
            hold_memory()
        attention, position = first_attention(subject.model, min(self.lengths), subject.device)
        metrics: dict[str, float] = {}
        for length in self.lengths:
            layer = _Layer(attention, position, self.batch, length, subject)
            metrics |= self._forward(layer, subject)
            if self.backward:
                metrics |= subject.clock.sample(layer.backward, self.warm_up, self.repeats)
                attention.zero_grad()  # a first backward pass makes the gradients of the weights, too
                metrics[f"bytes/backward@{length}"] = peak_bytes(layer.fresh_backward, subject.device)
                attention.zero_grad()
        kinds = {"time": "seconds", "bytes": "bytes"}
        return Finding(metrics, {kind: _curve(kind, unit, self.lengths, metrics) for kind, unit in kinds.items()})

    @torch.no_grad()
    def _forward(self, layer: _Layer, subject: MeasuredModel) -> dict[str, float]:
        """The metrics of the forward pass at one length."""
        length = layer.length
        found = subject.clock.sample(layer.whole, self.warm_up, self.repeats)
        found |= subject.clock.sample(layer.operations, self.warm_up, self.repeats)
        rest = found[f"time/all@{length}"] - found[f"time/projections@{length}"]
        held = peak_bytes(layer.fresh_forward, subject.device)
        return found | {f"time/attention@{length}": max(rest, 0.0), f"bytes/all@{length}": held}


class _Layer:
    """One attention layer with an input of one length."""

    def __init__(
        self, attention: Attention, position: Position, rows: int, length: int, subject: MeasuredModel
    ) -> None:
        self.attention, self.position, self.clock, self.length = attention, position, subject.clock, length
        weight = next(attention.parameters())
        shape = (rows, length, subject.model.dims.d_model)
        x = torch.randn(shape, generator=stream("measure", *shape))
        self.x = x.to(subject.device, weight.dtype)
        names = subject.model.stack.tags
        tags = {name: torch.zeros(1, length, dtype=torch.int64, device=subject.device) for name in names}
        self.tokens = Tokens.of(length, device=subject.device, tags=tags)
        self.context = self._fresh_context()

    def _fresh_context(self) -> Context:
        """A context before its masks and biases are made."""
        return Context(self.tokens, self.tokens, self.x.dtype)

    def forward(self, context: Context | None = None) -> Tensor:
        """The output; the backward pass goes back to the input, as in a model."""
        x = self.x.detach().requires_grad_()
        out: Tensor = self.attention(x, context=context or self.context, position=self.position)
        return out

    def fresh_forward(self) -> Tensor:
        """The output, for which masks and biases are made again."""
        return self.forward(self._fresh_context())

    def fresh_backward(self) -> None:
        """Forward and backward, with masks and biases made again."""
        backward_pass(self.fresh_forward().sum())

    def whole(self) -> dict[str, float]:
        """Seconds of the layer."""
        return {f"time/all@{self.length}": self.clock.timed(self.forward)}

    def backward(self) -> dict[str, float]:
        """Seconds of the backward pass."""
        total = self.forward().sum()
        return {f"time/backward@{self.length}": self.clock.timed(lambda: backward_pass(total))}

    def operations(self) -> dict[str, float]:
        """Seconds by operation, read at their borders."""
        with _watched(self.attention, self.clock) as marks:
            self.forward()
        return {f"time/{name}@{self.length}": seconds for name, seconds in marks.seconds().items()}


class _Marks:
    """Times at the borders of the operations of one forward."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.projections: list[float] = []
        self.product: list[float] = []
        self.kernel: list[float] = []
        self.normaliser: list[float] = []

    def seconds(self) -> dict[str, float]:
        """Seconds by operation; those that one kernel does at once are left out."""
        found = {"projections": sum(self.projections[1::2]) - sum(self.projections[::2])}
        if len(self.kernel) == len(self.normaliser) == 2:
            (begin, end), (first, last) = self.kernel, self.normaliser
            found |= {"scores": first - begin, "softmax": last - first, "mix": end - last}
            if len(self.product) == 2:
                found["product"] = self.product[1] - self.product[0]
        return found


@contextmanager
def _watched(attention: Attention, clock: Clock) -> Iterator[_Marks]:
    """Read the clock before and after every linear map, the kernel and the normaliser of an attention."""
    marks = _Marks(clock)

    def watch(module: torch.nn.Module, times: list[float]) -> None:
        before = module.register_forward_pre_hook(lambda *_: times.append(clock.read()))
        after = module.register_forward_hook(lambda *_: times.append(clock.read()))
        stack.callback(before.remove)
        stack.callback(after.remove)

    def timed(act: Callable[..., Tensor], times: list[float]) -> Callable[..., Tensor]:
        def call(*args: Any, **kwargs: Any) -> Tensor:
            times.append(clock.read())
            out = act(*args, **kwargs)
            times.append(clock.read())
            return out

        return call

    with ExitStack() as stack:
        for module in attention.modules():
            if isinstance(module, Linear):
                watch(module, marks.projections)
        kernel, score, normaliser = (getattr(attention, name, None) for name in ("kernel", "score", "normaliser"))
        if isinstance(normaliser, torch.nn.Module):
            watch(normaliser, marks.normaliser)
        if isinstance(score, Score):
            score.raw = timed(score.raw, marks.product)  # type: ignore[method-assign]
            stack.callback(score.__dict__.pop, "raw")
        if isinstance(kernel, Kernel):
            attention.kernel = timed(kernel, marks.kernel)  # type: ignore[assignment]
            stack.callback(setattr, attention, "kernel", kernel)
        yield marks


class _Seen(Exception):
    """Ends a forward at the first attention."""


def first_attention(model: Topology, length: int, device: torch.device) -> tuple[Attention, Position]:
    """The first attention that a forward comes to, and the position encoding that it is handed."""
    found: list[tuple[Attention, Position]] = []

    def see(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        assert isinstance(module, Attention)
        found.append((module, kwargs["position"]))
        raise _Seen

    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    handles = [module.register_forward_pre_hook(see, with_kwargs=True) for module in attentions]
    try:
        with torch.no_grad():
            model(*model.example(1, length, device))
    except _Seen:
        pass
    finally:
        for handle in handles:
            handle.remove()
    return found[0]


def _curve(kind: str, unit: str, lengths: Sequence[int], metrics: Mapping[str, float]) -> Curve:
    names = dict.fromkeys(name.partition("@")[0] for name in metrics if name.startswith(f"{kind}/"))
    return Curve(
        f"{kind.capitalize()} of one attention layer",
        f"{unit.capitalize()} of a forward pass against length, by operation.",
        "tokens",
        unit,
        list(lengths),
        {name.partition("/")[2]: [metrics[f"{name}@{length}"] for length in lengths] for name in names},
        log_x=True,
        log_y=True,
        fit=len(lengths) > 1,
    )
