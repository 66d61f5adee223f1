"""Progress over the trials of a study, with an estimate of the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Self

from swapformer.console import terminal
from swapformer.results.history import TRAINING_LOSS, newest_step, newest_value
from swapformer.results.store import Store
from swapformer.study.launch.trial import Trial, is_complete

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress as Bar

INTERVAL, QUIET = 30.0, 300.0
"""Seconds between plain lines where there is no terminal: after a trial has ended, and while none does."""
LOOK = 1.0
"""Seconds between looks at the store."""
SHOWN = 4
"""Running trials that the bar names."""


class StudyProgress:
    """Shows how many of `trials` (called `what`) are done; a context manager whose `tick` the launcher calls.

    Below the bar stand the trials that run, called by `names` (id → name), with their step and newest training loss.

    Time left = mean time of the study's finished trials (of earlier runs too) × those that are missing / slots.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        store: Store,
        quiet: bool = False,
        what: str = "trials",
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._names = names or {}
        self._now: Sequence[str] = ()
        self._pending = {trial.id: trial for trial in trials}
        self._total, self._store, self._quiet, self._what = len(trials), store, quiet, what
        self._seconds: list[float] = []
        self._bar: Bar | None = None
        self._last = (0, time.monotonic())
        self._look()

    def __enter__(self) -> Self:
        if self._pending and not self._quiet and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar
            from rich.text import Text

            class WithTrials(Bar):
                def get_renderables(bar) -> Iterator[RenderableType]:  # noqa: N805
                    yield from super().get_renderables()
                    yield from (Text(f"  {line}", no_wrap=True, overflow="ellipsis") for line in self._now)

            columns = (TextColumn(self._what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = WithTrials(*columns, TextColumn("{task.fields[left]}"), console=terminal(stderr=True))
            self._bar.start()
            self._bar.add_task("trials", total=self._total, completed=self.done, left="")
        elif self._pending:
            self._say(f"{self.done} of {self._total} {self._what} are in the store, {len(self._pending)} to run")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._look()
            self._now = ()
            self.tick(())
            self._bar.stop()

    @property
    def done(self) -> int:
        """The number of trials that have their result."""
        return self._total - len(self._pending)

    def tick(self, running: Sequence[Trial]) -> None:
        """Look at the store and show what has changed."""
        if time.monotonic() - self._looked >= LOOK:
            self._look()
            self._now = self.now(running)
        left = self.time_left(len(running))
        text = f"{len(running)} running" + (f", about {human(left)} left" if left is not None else "")
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, left=text)
        elif time.monotonic() - self._last[1] >= (INTERVAL if self.done > self._last[0] else QUIET):
            self._last = (self.done, time.monotonic())
            self._say(
                f"{self.done} of {self._total} {self._what} done, {text}" + (f"; {self._now[0]}" if self._now else "")
            )

    def now(self, running: Sequence[Trial]) -> list[str]:
        """The first of the trials that run: `h8 seed 3: step 40, train/loss 2.31`."""
        lines = []
        for trial in running[:SHOWN]:
            folder = self._store.directory(trial.id)
            loss = newest_value(folder, TRAINING_LOSS)
            text = f"{self._names.get(trial.id, trial.id)}: step {newest_step(folder)}"
            lines.append(text + (f", {TRAINING_LOSS} {loss:.4g}" if loss is not None else ""))
        more = len(running) - SHOWN
        return [*lines, *([f"and {more} more"] if more > 0 else [])]

    def time_left(self, running: int) -> float | None:
        """Seconds until all trials are done, as far as one can say; None before the first has ended."""
        if not self._seconds or not running or not self._pending:
            return None
        return fmean(self._seconds) * len(self._pending) / running

    def _look(self) -> None:
        self._looked = time.monotonic()
        for trial in list(self._pending.values()):
            record = self._store.peek(trial.id)
            if record is not None and is_complete(trial, self._store, record):
                del self._pending[trial.id]
                self._seconds.append(record.seconds)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(f"swapformer: {text}", file=sys.stderr, flush=True)


def human(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
