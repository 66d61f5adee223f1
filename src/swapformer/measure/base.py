"""The base of measurements, which build a model and train nothing, and the sequences that they give it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from swapformer.interface import MAIN, Readout
from swapformer.measure.clock import Clock
from swapformer.model.attention import Attention
from swapformer.model.ops import without_autocast
from swapformer.model.position import Position
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.ranges import Declared
from swapformer.results.shapes import Finding
from swapformer.task.base import Batch, Direction, Sequences, Task
from swapformer.training.assemble import Config

if TYPE_CHECKING:
    from swapformer.training.fit import Outcome


@dataclass(frozen=True)
class MeasuredModel:
    """The object of a measurement.

    Attributes:
        config: of the trial.
        task: of the trial.
        model: in evaluation mode, on its device, in its precision, with the weights that a training would start from.
        clock: times what runs on that device.
    """

    config: Config
    task: Task
    model: Topology
    clock: Clock

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return next(self.model.parameters()).device


class Measurement(Declared, ABC):
    """Base of measurements: `measure` times, counts or computes something of a model that is not trained.

    Facts:
        timed: its numbers depend on the machine, which it therefore has to itself; each seed is a round.
        trains: it takes training steps, so that `trainer.compile` and `trainer.gradient_checkpointing` do something.
    """

    timed: ClassVar[bool] = False
    trains: ClassVar[bool] = False

    @abstractmethod
    def directions(self) -> Mapping[str, Direction]:
        """Every metric that it may give, and which way it is better; a model may lack what some are about."""

    def unsuited(self, model: Topology, task: Task) -> str | None:
        """The reason why nothing could be measured, and what would work; asked before anything is launched.

        Only what is stated of the model may be read: its weights may have no numbers.
        """
        return None

    def run(self, config: Config, directory: Path) -> Outcome | None:
        """The outcome of a measurement that is of no model of ours; None where one is built, and `measure` is asked."""
        return None

    @abstractmethod
    def measure(self, subject: MeasuredModel) -> Finding:
        """The numbers that were found, and what figures are drawn from."""


def beyond_table(name: str, length: int, model: Topology) -> str | None:
    """The reason why a model cannot read sequences of `length`: a table of positions ends before; None if it can."""
    parts = [part for part in model.modules() if isinstance(part, Position | Attention)]
    short = {type(part).__name__: part.limit for part in parts if part.limit is not None and part.limit < length}
    if not short:
        return None
    part, limit = next(iter(short.items()))
    return (
        f"measure={name} asks for {length} positions, but the table of {part} has {limit}; set model.max_len={length}, "
        "or leave out the lengths beyond it."
    )


def random_batch(model: Topology, rows: int, length: int, device: torch.device) -> Batch:
    """Random sequences [rows, length] in the form that a model reads, with random targets; the same every time."""
    generator = stream("measure", rows, length)
    inputs, tokens, source, _ = model.example(rows, length, "cpu")
    tags = {name: tag.expand(rows, -1) for name, tag in tokens.tags.items()}

    def filled(like: Tensor) -> Tensor:
        if like.is_floating_point():
            return torch.randn(like.shape, dtype=like.dtype, generator=generator)
        return torch.randint(model.interface.vocab_size, like.shape, generator=generator)

    def targets(readout: Readout) -> Tensor:
        shape = (rows, length) if readout.per == "position" else (rows,)
        if readout.kind == "values":
            return torch.randn(*shape, readout.size, generator=generator)
        return torch.randint(readout.size, shape, generator=generator)

    labels = {name: targets(readout) for name, readout in model.interface.readouts.items()}
    batch = Batch(
        inputs=filled(inputs),
        tags=tags,
        targets=labels.pop(MAIN),
        labels=labels,
        source=None if source is None else Sequences(inputs=filled(source), tags=tags),
    )
    return batch.to(device)


def backward_pass(total: Tensor) -> None:
    """The backward pass as a training does it: not cast, whatever the forward pass was."""
    with without_autocast(total.device):
        torch.autograd.backward(total)
