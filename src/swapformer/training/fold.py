"""Folded trials: several trainings of one process whose steps are computed as one batch.

Each training runs in a thread of its own, as it would run alone: with its weights, optimiser, clipping, batches,
history, evaluation and checkpoints. One thread runs at a time. Where a training needs losses and gradients it waits
for the others, and one of them computes those of all. A training that ends, or diverges, leaves the others to go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from swapformer.training.data import BatchShare
from swapformer.training.folded_step import Step, folded_step
from swapformer.training.signals import StopRequest
from swapformer.training.step_inputs import signature
from swapformer.training.trainer import suppress_advice

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Seat:
    """The place of one training among those that are folded.

    Attributes:
        fold: all of them.
        notes: what the trial's record shall say of its folding.
    """

    fold: Fold
    notes: list[str] = field(default_factory=list)

    @property
    def stop(self) -> StopRequest:
        """Whether the process was asked to stop."""
        return self.fold.stop

    def step(self, module: Any, share: BatchShare, seed: int) -> tuple[Tensor, Tensor] | None:
        """What `TrialModule.objective` gives for a part of a batch; `backward` of the loss gives the gradients.

        None where the trial has to compute it alone.
        """
        found = self.fold.join(self, Call(module, share, seed))
        if found is None:
            return None
        trained = [held for held in module.model.parameters() if held.requires_grad]
        loss: Tensor = _Computed.apply(found.loss, found.gradients, *trained)  # type: ignore[no-untyped-call]
        return found.part, loss


@dataclass(frozen=True, eq=False)
class Call:
    """A trial that waits for the losses of a part of its batch."""

    module: Any
    share: BatchShare
    seed: int


class _Computed(torch.autograd.Function):
    """A loss whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> Any:
        return None, None, *(None if held is None else held * factor for held in ctx.gradients)


class Fold:
    """The trainings that are folded, of which one runs at a time.

    Args:
        count: how many there are.
        stop: whether the process was asked to stop.
        most: how many are computed at once at most; where memory does not suffice for so many, half as many.
    """

    def __init__(self, count: int, stop: StopRequest | None = None, most: int | None = None) -> None:
        self.stop = stop or StopRequest()
        self.seats = [Seat(self) for _ in range(count)]
        self.most = count if most is None else max(1, most)
        self._turn = threading.Condition()
        self._training = set(self.seats)
        self._waiting: dict[Seat, Call] = {}
        self._found: dict[Seat, Step | None] = {}
        self._folds, self._precision = True, torch.get_default_dtype()

    @contextmanager
    def training(self, seat: Seat) -> Iterator[None]:
        """A training runs within; the others wait for it at each of their steps until it has ended."""
        try:
            yield
        finally:
            self._training.discard(seat)
            self._turn.notify_all()

    def run(self, work: Sequence[Callable[[Seat], None]]) -> None:
        """Call each of `work` in a thread of its own, with a seat; one runs at a time. Returns when all have ended."""

        def alone(seat: Seat, call: Callable[[Seat], None]) -> None:
            with self._turn:
                try:
                    call(seat)
                except BaseException:
                    log.exception("a folded trial ended")
                finally:
                    self._training.discard(seat)
                    self._turn.notify_all()

        threads = [
            threading.Thread(target=alone, args=pair, name=f"fold-{number}")
            for number, pair in enumerate(zip(self.seats, work, strict=True))
        ]
        with suppress_advice():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def join(self, seat: Seat, call: Call) -> Step | None:
        """What a trial's step gives, once those of all others are there too; None where it cannot be folded."""
        if not self._folds:
            return None
        precision = torch.get_default_dtype()  # a training in float64 sets it for the time of a step
        torch.set_default_dtype(self._precision)
        self._waiting[seat] = call
        self._turn.notify_all()
        self._turn.wait_for(lambda: seat in self._found or self._waiting.keys() == self._training)
        torch.set_default_dtype(precision)
        if seat not in self._found:
            self._compute()
            self._turn.notify_all()
        return self._found.pop(seat)

    def _compute(self) -> None:
        """The steps of all that wait, in as few batches as their shapes and the memory allow."""
        together: dict[object, list[Seat]] = {}
        for seat in self.seats:
            if seat in self._waiting:
                call = self._waiting[seat]
                together.setdefault(signature(call.module, call.share), []).append(seat)
        left = list(together.values())
        while left:
            seats = left.pop(0)
            if len(seats) > self.most:
                left[:0] = [seats[start : start + self.most] for start in range(0, len(seats), self.most)]
                continue
            try:
                self._found |= zip(seats, self._step(seats), strict=True)
            except Exception as error:
                if out_of_memory(error) and len(seats) > 1:
                    self._halve(len(seats))
                    left.insert(0, seats)
                    continue
                self._found |= dict.fromkeys(seats)
                self._give_up(error)
        self._waiting.clear()

    def _give_up(self, error: Exception) -> None:
        """From now on each trial computes its own steps, and meets its own errors."""
        self._folds = False
        said = str(error).strip().partition("\n")[0]
        self._note(f"its steps could not be folded, so it computed its own ({type(error).__name__}: {said})")

    def _halve(self, count: int) -> None:
        self.most = count // 2
        note = f"memory did not suffice for {count} folded trials at once: from then on {self.most} were"
        self._note(note)

    def _note(self, note: str) -> None:
        log.warning("%s", note)
        for seat in self.seats:
            seat.notes.append(note)

    def _step(self, seats: Sequence[Seat]) -> list[Step]:
        calls = [self._waiting[seat] for seat in seats]
        return folded_step(
            [call.module for call in calls], [call.share for call in calls], [call.seed for call in calls]
        )


def out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, on a device or on the machine."""
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in said
