"""Averages of weights, as callbacks: what a trial is evaluated with and keeps as its answer, not its newest weights.

Training never reads them. Weights here are a model's parameters and stored buffers by name, so that the running
statistics of a batchnorm are averaged as the weights are; what is no floating-point number is the newest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from swapformer.model.ops import widen
from swapformer.ranges import Within

Weights = Mapping[str, Tensor]


class WeightAverage(Callback, ABC):
    """Base of averages over a training's weights, taken in float32 or wider.

    The model holds the average while it is evaluated, and the checkpoint holds it next to the newest weights.

    `evaluations`: how many evaluations a training must have for the average to be what its settings say, that after
    training among them. `steps`: optimiser steps seen. `held`: tensors that later averages are made of.
    """

    evaluations = 1

    def __init__(self) -> None:
        self.steps = 0
        self.held: dict[Any, Any] = {}
        self._newest: dict[str, Tensor] = {}

    def problems(self, config: Mapping[str, Any]) -> Iterator[str]:
        """The reasons why a trial cannot have this average: it needs enough evaluations, and whole weights."""
        name, steps, every = type(self).__name__, config["budget"]["steps"], config["eval"]["every"]
        if steps == 0:
            yield f"{name} averages the weights of a training, but there is none; use callbacks=none."
        elif self.evaluations > (found := -(-steps // every)):
            yield (
                f"{name} averages the weights of {self.evaluations} evaluations, but budget.steps={steps} with "
                f"eval.every={every} has {found}, that after training among them; lower eval.every or "
                "callbacks.average.count, or use callbacks=none."
            )
        if config["trainer"]["strategy"] == "fsdp":
            yield (
                f"{name} evaluates whole weights, of which fsdp leaves a part on each device; use "
                "trainer.strategy=ddp, or callbacks=none."
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        module: Any = pl_module
        module.evaluated_weights = lambda: self.average(module.model.state_dict())

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            module: Any = pl_module
            self.update(module.model.state_dict(), trainer.global_step % module.config["eval"]["every"] == 0)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model: Any = pl_module.model
        newest = model.state_dict()
        self._newest = {name: weight.clone() for name, weight in newest.items()}
        model.load_state_dict(self.average(newest))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model: Any = pl_module.model
        model.load_state_dict(self._newest)
        self._newest = {}

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        model: Any = pl_module.model
        checkpoint["evaluated"] = self.average(model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "held": self.held}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps, self.held = state_dict["steps"], state_dict["held"]

    def update(self, weights: Weights, evaluated: bool) -> None:
        """Take note of the weights after an optimiser step; `evaluated`: whether an evaluation follows it."""
        self.steps += 1
        self.hold(weights, evaluated)

    def average(self, weights: Weights) -> dict[str, Tensor]:
        """The weights to evaluate, in the types of the newest `weights`; before the first step these themselves."""
        mean = self.mean(weights) if self.steps else weights
        return {name: mean[name].to(newest) for name, newest in weights.items()}

    @abstractmethod
    def hold(self, weights: Weights, evaluated: bool) -> None:
        """Put into `held` what is needed of the weights after step number `steps`: copies of them."""

    @abstractmethod
    def mean(self, weights: Weights) -> Weights:
        """The average after step number `steps`, whose weights are given."""


class ExponentialAverage(WeightAverage):
    """The exponential moving average of the weights θ_1 … θ_t after each step, without bias toward the start.

        θ̄_t = Σ_s d^(t−s) θ_s / Σ_s d^(t−s),   that is   θ̄_t = θ̄_(t−1) + (1 − d) / (1 − d^t) · (θ_t − θ̄_(t−1))

    so that early averages are means over the few steps so far and the weights before training are no part of it: the
    correction of Adam's moments (Kingma & Ba 2014, arXiv:1412.6980, section 3). Averages of weights along a training:
    Polyak & Juditsky 1992, doi 10.1137/0330046; of networks Morales-Brotons et al. 2024, arXiv:2411.18704.

    Args:
        decay: d, in (0, 1); about 1 / (1 − d) steps count.
    """

    def __init__(self, *, decay: Annotated[float, Within("(0, 1)")]) -> None:
        super().__init__()
        self.decay = decay

    def hold(self, weights: Weights, evaluated: bool) -> None:
        self.held = toward(self.held, weights, (1 - self.decay) / (1 - self.decay**self.steps))

    def mean(self, weights: Weights) -> Weights:
        return self.held


class LastEvaluations(WeightAverage):
    """The mean of the newest weights and of those at the evaluations before, `count` in all.

    At an evaluation, and after training, that is the mean over the last `count` evaluations; between two of them the
    newest weights take the place of the next one. Until there were so many, it is the mean over those that there were.
    Of checkpoints along a training: Izmailov et al. 2018, arXiv:1803.05407; the last of a language model's: Kaddour
    2022, arXiv:2209.14981.

    Args:
        count: of evaluations, at least 2.
    """

    def __init__(self, *, count: Annotated[int, Within("[2, inf)")]) -> None:
        super().__init__()
        self.count = self.evaluations = count

    def hold(self, weights: Weights, evaluated: bool) -> None:
        if evaluated:
            self.held[self.steps] = {name: weight.detach().clone() for name, weight in weights.items()}
            for step in sorted(self.held)[: -self.count]:
                del self.held[step]

    def mean(self, weights: Weights) -> Weights:
        before = [held for step, held in sorted(self.held.items()) if step < self.steps]
        mean: dict[str, Tensor] = {}
        for number, each in enumerate([*before[1 - self.count :], weights], start=1):
            mean = toward(mean, each, 1 / number)
        return mean


def toward(mean: dict[str, Tensor], weights: Weights, share: float) -> dict[str, Tensor]:
    """A mean moved by a share of the way to weights, in place; a copy of the weights where there is no mean yet."""
    if not mean:
        return {name: widened(weight).clone() for name, weight in weights.items()}
    kept = {name: mean[name].to(weight.device) for name, weight in weights.items()}
    moved = [name for name, weight in weights.items() if weight.is_floating_point()]
    for name in kept.keys() - set(moved):
        kept[name] = weights[name].clone()
    own, new = [kept[name] for name in moved], [widened(weights[name]) for name in moved]
    get_ema_multi_avg_fn(1 - share)(own, new, 0)  # type: ignore[no-untyped-call]
    return kept


def widened(weight: Tensor) -> Tensor:
    """A weight without its gradient, a floating-point one in float32 or wider."""
    return widen(weight.detach()) if weight.is_floating_point() else weight.detach()
