"""Measures one feed-forward layer: seconds of its activation and of the whole, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from swapformer.measure.base import MeasuredModel, Measurement, backward_pass
from swapformer.measure.clock import Clock
from swapformer.model.activation import Activation
from swapformer.model.ffn import FFN
from swapformer.model.taps import record
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.ranges import Count, Natural
from swapformer.results.shapes import Curve, Finding
from swapformer.task.base import Direction, Task

OPERATIONS = ("activation", "activation_backward", "ffn", "ffn_backward")


class FeedForwardCost(Measurement):
    """Seconds of one feed-forward layer by number of tokens: time/activation@n, time/ffn@n, and their backward passes.

    The layer is the model's first, given random x [1, n, D] from N(0, 1). `time/activation` is the element-wise
    function alone, on as many numbers from N(0, 1) as it gets there; `time/activation_backward` the backward pass of
    the sum of its values; `time/ffn` and `time/ffn_backward` those of the layer, gradients of its weights among them.
    Forward passes are timed without gradients.

    Args:
        tokens: n.
        warm_up: calls before the first that counts.
        repeats: samples whose median counts.
    """

    timed: ClassVar[bool] = True

    def __init__(self, *, tokens: Sequence[Count], warm_up: Natural, repeats: Count) -> None:
        self.tokens, self.warm_up, self.repeats = tokens, warm_up, repeats

    def directions(self) -> Mapping[str, Direction]:
        return {f"time/{operation}@{tokens}": "lower" for operation in OPERATIONS for tokens in self.tokens}

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if any("hook_pre" in layer.places for layer in _layers(model)[:1]):
            return None
        return "measure=feed_forward times a layer with an activation, but this model has none; choose model/ffn=mlp."

    def measure(self, subject: MeasuredModel) -> Finding:
        layer = _layers(subject.model)[0]
        activation = next(part for part in layer.modules() if isinstance(part, Activation))
        metrics: dict[str, float] = {}
        for tokens in self.tokens:
            x = _normal((1, tokens, subject.model.dims.d_model), subject)
            with torch.no_grad(), record(layer, "hook_pre") as seen:
                layer(x)
            hidden = _normal(tuple(seen["hook_pre"].shape), subject)
            for name, act, given in (("activation", activation, hidden), ("ffn", layer, x)):
                timing = _Timing(act, given, subject.clock, f"time/{name}", tokens)
                metrics |= subject.clock.sample(timing.forward, self.warm_up, self.repeats)
                metrics |= subject.clock.sample(timing.backward, self.warm_up, self.repeats)
            layer.zero_grad()
        series = {name: [metrics[f"time/{name}@{tokens}"] for tokens in self.tokens] for name in OPERATIONS}
        curve = Curve(
            "Seconds of a feed-forward layer", "Its activation alone and the whole layer, by number of tokens.",
            "tokens", "seconds", list(self.tokens), series, log_x=True, log_y=True,
        )  # fmt: skip
        return Finding(metrics, {"time": curve})


class _Timing:
    """The passes of something that maps a tensor to one."""

    def __init__(self, act: Callable[[Tensor], Tensor], x: Tensor, clock: Clock, name: str, tokens: int) -> None:
        self.act, self.x, self.clock, self.name, self.tokens = act, x, clock, name, tokens

    def forward(self) -> dict[str, float]:
        """Seconds of the forward pass."""
        with torch.no_grad():
            return {f"{self.name}@{self.tokens}": self.clock.timed(lambda: self.act(self.x))}

    def backward(self) -> dict[str, float]:
        """Seconds of the backward pass of the sum of the outputs."""
        total = self.act(self.x.detach().requires_grad_()).sum()
        return {f"{self.name}_backward@{self.tokens}": self.clock.timed(lambda: backward_pass(total))}


def _layers(model: Topology) -> list[FFN]:
    return [part for part in model.modules() if isinstance(part, FFN) and part.present]


def _normal(shape: tuple[int, ...], subject: MeasuredModel) -> Tensor:
    weight = next(subject.model.parameters())
    return torch.randn(shape, generator=stream("measure", *shape)).to(subject.device, weight.dtype)
