"""Callbacks of a trial's training: history, checkpoints, divergence, interruption, progress."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from swapformer.results.files import move
from swapformer.results.history import SECONDS, TOKENS, TRAINING_LOSS, HistoryWriter
from swapformer.training.ranks import Ranks
from swapformer.training.signals import StopRequest


class Diverged(Exception):
    """Raised when the loss is not finite or has exploded: a result, not a failure."""


class Interrupted(Exception):
    """Raised when the trial was asked to stop; it can be resumed."""


class Stopwatch:
    """Seconds that went by while it ran, from `seconds` on; nan where it is not known what went before."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._before, self._start = seconds, math.nan

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return self._before if math.isnan(self._start) else self._before + time.monotonic() - self._start

    def start(self) -> None:
        """Run from now on; it must stand."""
        self._start = time.monotonic()

    def stop(self) -> None:
        """Stand still from now on."""
        self._before, self._start = self.seconds, math.nan


class TrainingMonitor(Callback):
    """Writes the history and ends a trial that diverges.

    Every `log_every` steps the mean training loss since the last row is written, with the learning rate of the last of
    them and the norm of its gradient before clipping. Each step with rows, those of evaluations too, has the tokens and
    the seconds of training until then: without evaluations and probes, and over the attempts that led there.

    The loss is judged every `log_every` steps, and after the first and the last: it must be finite and at most
    `divergence` times the loss of `guessing`. A training may start above that, and stay below as many times its first
    loss until it has come down once; at the last step it must have.

    Args:
        folder: of the trial; None where another rank writes its history.
        log_every: steps.
        divergence: multiple of the loss of guessing.
        guessing: the loss of a model that takes all answers for alike; nan for none, where the first loss counts.
    """

    def __init__(
        self, folder: Path | None, log_every: int, divergence: float, accumulate: int, guessing: float = math.nan
    ) -> None:
        self.folder, self.log_every, self.divergence, self.accumulate = folder, log_every, divergence, accumulate
        self.guessing = guessing
        self.first: float | None = None
        self.settled = False
        self.total: Any = 0.0
        self.last_loss = self.rate = math.nan
        self.history: HistoryWriter | None = None
        self.watch = Stopwatch()
        self.tokens = 0
        self.placed = -1  # the newest step whose tokens and seconds are written

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.folder is not None:
            self.history = HistoryWriter(self.folder, trainer.global_step)
        self.tokens = pl_module.tokens_seen  # type: ignore[assignment]
        self.watch.start()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        self.rate = max(group["lr"] for group in optimizer.param_groups)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.total = self.total + pl_module.loss_share
        self.tokens = pl_module.tokens_seen  # type: ignore[assignment]
        step = trainer.global_step
        due = step % self.log_every == 0 or step == trainer.max_steps or self.first is None
        if (batch_idx + 1) % self.accumulate or not due:
            return
        norm: Tensor = pl_module.gradient_norm  # type: ignore[assignment]
        whole = norm.full_tensor() if isinstance(norm, DTensor) else norm  # all ranks ask for it
        total, grad_norm = torch.stack([self.total, whole.to(self.total.device)]).tolist()
        loss = total / (step - (step - 1) // self.log_every * self.log_every)
        if self.first is None:
            self.first = loss
        if not math.isfinite(loss):
            raise Diverged(f"the training loss is {loss} at step {step}")
        self._require_sane(loss, step, step == trainer.max_steps)
        if step % self.log_every == 0:
            self.last_loss, self.total = loss, 0.0
            self.write(step, {TRAINING_LOSS: loss, "train/lr": self.rate, "train/grad_norm": grad_norm})

    def _require_sane(self, loss: float, step: int, last: bool) -> None:
        """Raise Diverged for a loss that is far above that of guessing."""
        first = self.first or 0.0
        usual, what = (first, "the first") if math.isnan(self.guessing) else (self.guessing, "that of guessing")
        self.settled = self.settled or loss <= self.divergence * usual
        if not self.settled and not last and first > usual:
            usual, what = first, "the first"
        if loss > self.divergence * usual:
            raise Diverged(
                f"the training loss {loss:.4g} at step {step} exceeds {self.divergence} × {usual:.4g}, {what}"
            )

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._stop(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self.write(trainer.global_step, pl_module.results)  # type: ignore[arg-type]
            self.watch.start()

    def _stop(self, module: LightningModule) -> None:
        """Stop the time of training, once all is computed that was asked of the device."""
        if module.device.type == "cuda":
            torch.cuda.synchronize(module.device)
        self.watch.stop()

    @contextmanager
    def paused(self, module: LightningModule) -> Iterator[None]:
        """Leave the seconds of a block out of the time of training."""
        self._stop(module)
        try:
            yield
        finally:
            self.watch.start()

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add values that were measured after `step` steps to the history, where this process writes it."""
        if self.history is None:
            return
        seconds = {} if math.isnan(self.watch.seconds) else {SECONDS: round(self.watch.seconds, 6)}
        self.history.write(step, values if step == self.placed else {**values, TOKENS: self.tokens, **seconds})
        self.placed = step

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.history is not None:
            self.history.sync()  # a trial that resumes from the checkpoint does not measure these rows again

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first, "total": float(self.total), "settled": self.settled, "seconds": self.watch.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.first, self.total = state_dict["first"], state_dict["total"]
        self.settled = state_dict.get("settled", False)
        self.watch = Stopwatch(state_dict.get("seconds", math.nan))  # an older version kept none


def write_checkpoint(trainer: Trainer, path: Path, ranks: Ranks) -> None:
    """Replace a trial's checkpoint whole; every rank calls it, and the first keeps the file."""
    draft = path.with_suffix(".tmp")
    trainer.save_checkpoint(draft)
    if ranks.first:
        move(draft, path)


class Checkpoints(Callback):
    """Keeps the newest state in `last.ckpt`, replaced whole, and stops the trial after a whole step when asked to.

    A checkpoint that falls on a step with an evaluation is written after it, so that a resumed trial misses none.

    Args:
        path: the checkpoint's file.
        every: steps between checkpoints; None: by the clock, `SECONDS` or `SHARE` times as long as writing one takes
            after the last, whichever is longer. The last step always has one.
        evaluate_every: steps between evaluations.
        stop: whether the trial was asked to stop.
        ranks: the processes that train together; they stop after the same batch, and rank 0 keeps the file.
    """

    SECONDS, SHARE = 20.0, 50.0

    def __init__(self, path: Path, every: int | None, evaluate_every: int, stop: StopRequest, ranks: Ranks) -> None:
        self.path, self.every, self.evaluate_every, self.stop = path, every, evaluate_every, stop
        self.ranks = ranks
        self._written, self._seconds = time.monotonic(), 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop.listen()  # Lightning has put a handler before ours, in which ranks would wait for each other

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop.listen()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if whole and step % self.evaluate_every:
            self._pause(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pause(trainer)

    def on_validation_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.state.fn != "fit":
            self._pause(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["trial"] = self.path.parent.parent.name  # one that was copied elsewhere is found out

    def _is_due(self, step: int) -> bool:
        if self.every is not None:
            return step % self.every == 0
        waited = time.monotonic() - self._written
        return self.ranks.any(waited >= max(self.SECONDS, self.SHARE * self._seconds))

    def _pause(self, trainer: Trainer) -> None:
        """Save what is due in training, and stop if asked."""
        stop = self.ranks.any(self.stop.requested is not None)
        step = trainer.global_step
        due = trainer.state.fn == "fit" and self._is_due(step)
        if trainer.state.fn == "fit" and (stop or due or step == trainer.max_steps):
            start = time.monotonic()
            write_checkpoint(trainer, self.path, self.ranks)
            self._written = time.monotonic()
            self._seconds = self._written - start
        if stop:
            raise Interrupted(f"stopped by {self.stop.requested or 'another rank'}")


class ProgressBar(TQDMProgressBar):
    """Lightning's progress bar with the newest losses."""

    def __init__(self, watch: TrainingMonitor) -> None:
        super().__init__(refresh_rate=10)
        self.watch = watch

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        shown: dict[str, int | str | float | dict[str, float]] = {"train/loss": f"{self.watch.last_loss:.3f}"}
        results: dict[str, float] = pl_module.results  # type: ignore[assignment]
        if "val/loss" in results:
            shown["val/loss"] = f"{results['val/loss']:.3f}"
        return shown


class ProgressLines(Callback):
    """Without a terminal: a line with the step and the newest losses, every half minute."""

    SECONDS = 30.0

    def __init__(self, watch: TrainingMonitor) -> None:
        self.watch, self._begun, self._said = watch, (time.monotonic(), 0), time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begun = (time.monotonic(), trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        now, step = time.monotonic(), trainer.global_step
        if now - self._said < self.SECONDS or step == self._begun[1]:
            return
        self._said = now
        left = (now - self._begun[0]) / (step - self._begun[1]) * (trainer.max_steps - step)
        losses = [f"train/loss {self.watch.last_loss:.4g}"]
        results: dict[str, float] = trainer.lightning_module.results  # type: ignore[assignment]
        if "val/loss" in results:
            losses.append(f"val/loss {results['val/loss']:.4g}")
        text = f"step {step} of {trainer.max_steps}, {', '.join(losses)}, about {left:.0f} s left"
        print(f"swapformer: {text}", file=sys.stderr, flush=True)
