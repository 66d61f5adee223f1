"""Measures a training step: seconds of its forward pass, backward pass and update, by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from swapformer.measure.base import MeasuredModel, Measurement, backward_pass, beyond_table, random_batch
from swapformer.measure.clock import peak_bytes
from swapformer.model.stack import stacks
from swapformer.model.topology import Topology
from swapformer.ranges import Count, Natural
from swapformer.results.shapes import Curve, Finding
from swapformer.task.base import Direction, Task, target_mask
from swapformer.training.assemble import scaling
from swapformer.training.data import BatchShare, drawn_position_range, with_drawn_positions
from swapformer.training.optimiser import freeze, make_optimiser, parameter_groups

PHASES = ("forward", "backward", "update", "step")


class StepCost(Measurement):
    """Seconds of one training step by phase and length: time/forward@n, time/backward@n, time/update@n, time/step@n.

    The step is that of the trial: its loss on random sequences of n tokens, its gradients, their clipping and its
    optimiser. A batch has as many tokens at each length, so far as whole sequences allow. `time/step` is all three,
    `bytes/step` the peak of what forward and backward allocate, gradients among them.

    Args:
        lengths: n, in tokens.
        tokens: of a batch; its sequences are as many as fit, one at least.
        warm_up: steps before the first that counts.
        repeats: samples whose median counts.
    """

    timed: ClassVar[bool] = True
    trains: ClassVar[bool] = True

    def __init__(self, *, lengths: Sequence[Count], tokens: Count, warm_up: Natural, repeats: Count) -> None:
        self.lengths, self.tokens, self.warm_up, self.repeats = lengths, tokens, warm_up, repeats

    def directions(self) -> Mapping[str, Direction]:
        names = [*(f"time/{phase}" for phase in PHASES), "bytes/step"]
        return {f"{name}@{length}": "lower" for name in names for length in self.lengths}

    def unsuited(self, model: Topology, task: Task) -> str | None:
        return beyond_table("step", max(self.lengths), model)

    def measure(self, subject: MeasuredModel) -> Finding:
        training = _Training(subject)
        metrics: dict[str, float] = {}
        for length in self.lengths:
            training.take_batch(max(self.tokens // length, 1), length)
            metrics |= subject.clock.sample(training.timed_step, self.warm_up, self.repeats)
            training.optimiser.zero_grad()
            metrics[f"bytes/step@{length}"] = peak_bytes(training.gradients, subject.device)
        series = {phase: [metrics[f"time/{phase}@{length}"] for length in self.lengths] for phase in PHASES}
        curve = Curve(
            "Seconds of a training step",
            f"Forward pass, backward pass and update of a batch of {self.tokens} tokens, by length of its sequences.",
            "tokens of a sequence", "seconds", list(self.lengths), series, log_x=True, log_y=True,
        )  # fmt: skip
        return Finding(metrics, {"step": curve})


class _Training:
    """A model in training on one random batch."""

    share: BatchShare
    length: int

    def __init__(self, subject: MeasuredModel) -> None:
        self.model, self.clock, self.device = subject.model.train(), subject.clock, subject.device
        settings = subject.config["optim"]
        freeze(self.model, settings)
        from swapformer.training.module import TrialModule  # late: it brings Lightning

        self.module = TrialModule(self.model, subject.task, subject.config)
        groups = parameter_groups(self.model, settings, scaling(subject.config, subject.task.interface))
        self.optimiser = make_optimiser(settings)(groups)
        trainer = subject.config["trainer"]
        for stack in stacks(self.model).values():
            stack.checkpointed = trainer["gradient_checkpointing"]
        by_value = trainer.get("gradient_clip_algorithm") == "value"
        self.clip, self.limit = clip_grad_value_ if by_value else clip_grad_norm_, trainer["gradient_clip_val"]

    def take_batch(self, rows: int, length: int) -> None:
        """Train on random sequences [rows, length] from now on."""
        plain = random_batch(self.model, rows, length, self.device)
        batch = with_drawn_positions(plain, drawn_position_range(self.model), "measure", length).to(self.device)
        targets = {name: int(target_mask(each).sum()) for name, each in batch.answers.items()}
        self.share, self.length = BatchShare(batch, targets, batch.num_positions), length

    def gradients(self) -> None:
        """The gradients of the batch's loss."""
        loss = self.module.training_step(self.share, 0)
        backward_pass(loss)

    def timed_step(self) -> dict[str, float]:
        """Seconds of each phase of one step."""
        self.optimiser.zero_grad()
        start = self.clock.read()
        loss = self.module.training_step(self.share, 0)
        forward = self.clock.read()
        backward_pass(loss)
        backward = self.clock.read()
        if self.limit:
            self.clip(self.model.parameters(), self.limit)
        self.optimiser.step()
        end = self.clock.read()
        seconds = (forward - start, backward - forward, end - backward, end - start)
        return {f"time/{phase}@{self.length}": each for phase, each in zip(PHASES, seconds, strict=True)}
