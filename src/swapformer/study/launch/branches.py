"""Trials that begin with the state that a shorter training had before its decay, as if they had been resumed there.

With `schedule=wsd` the rate does not depend on the length of the training until it decays, and batches and dropout are
functions of the seed and the step. So trainings that differ in length alone are the same, bit by bit, up to the decay
of the shorter one: the longer one computes what it would have computed by itself, and its id is its own.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeVar
from zipfile import BadZipFile, ZipFile

from swapformer.results.branch_points import BranchPoint, announce, branch_points, stable_path
from swapformer.results.files import move, write_atomic
from swapformer.results.history import history_path
from swapformer.results.record import Record, TakenOver
from swapformer.results.store import Store

log = logging.getLogger(__name__)


class Configured(Protocol):
    """A trial, as far as it matters here: its id and its resolved configuration."""

    @property
    def id(self) -> str: ...
    @property
    def config(self) -> dict[str, Any]: ...


TrialType = TypeVar("TrialType", bound=Configured)


def last_path(folder: Path) -> Path:
    """The newest checkpoint of the trial in `folder`."""
    return folder / "checkpoints" / "last.ckpt"


@dataclass(frozen=True)
class Branch:
    """The state of another trial that a longer one begins with.

    Attributes:
        source: the trial that it is of, and after how many steps.
        content: the checkpoint as it is stored.
        history: the rows of `metrics.csv` up to that step.
        seconds: what the steps took.
    """

    source: BranchPoint
    content: bytes
    history: str
    seconds: float

    def noted(self, record: Record) -> Record:
        """The record of a trial that begins so."""
        found = TakenOver(self.source.trial, self.source.step, round(self.seconds, 3))
        return record.but(taken_over=found, seconds=record.seconds + found.seconds)

    def place(self, folder: Path) -> None:
        """Make it the state from which the trial in `folder` resumes; without the checkpoint the history counts not."""
        path = last_path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(history_path(folder), self.history)
        draft = path.with_suffix(".tmp")
        draft.write_bytes(self.content)
        move(draft, path)


def without_branch(record: Record) -> Record:
    """The record of a trial that begins by itself."""
    if record.taken_over is None:
        return record
    return record.but(taken_over=None, seconds=max(0.0, record.seconds - record.taken_over.seconds))


def announce_branch(trial: Configured, store: Store) -> None:
    """Say that a trial keeps the state before its decay, if it does."""
    if step := _branch_step(trial):
        try:
            announce(store, _trajectory(trial), BranchPoint(step, trial.id))
        except OSError as error:
            log.warning("longer trials cannot begin from trial %s: %s", trial.id, error)


def find_branch(trial: Configured, store: Store) -> Branch | None:
    """The state of the trial's trajectory that is nearest to its own decay; None where there is none that can be read.

    One that cannot be read is told, and left as it is: it is another trial's.
    """
    if not (latest := _branch_step(trial)):
        return None
    for point in branch_points(store, _trajectory(trial), latest):
        if point.trial == trial.id:
            continue
        try:
            return _read(point, stable_path(store.directory(point.trial)))
        except (OSError, ValueError, LookupError, RuntimeError, EOFError, BadZipFile, zlib.error) as error:
            log.warning(
                "trial %s cannot begin with the state of trial %s after step %d (%s)",
                *(trial.id, point.trial, point.step, error),
            )
    return None


def _read(point: BranchPoint, path: Path) -> Branch:
    """Raises what torch and zipfile raise where the state cannot be read, ValueError where it is damaged or another."""
    from swapformer.training.weights import read_checkpoint  # late: it brings torch

    content = path.read_bytes()
    held = read_checkpoint(path, content)
    with ZipFile(BytesIO(content)) as archive:  # torch does not look at the sums that it has written
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"{path.name} is damaged: {damaged} does not have the sum that it was written with")
    branch = held.get("branch")
    if not isinstance(branch, dict) or held.get("global_step") != point.step:
        raise ValueError(f"{path.name} does not hold the state after step {point.step}")
    return Branch(point, content, str(branch["history"]), float(branch["seconds"]))


def shorter_first(trials: Sequence[TrialType]) -> list[TrialType]:
    """The trials, those of one trajectory by their length: first the shortest of each and all that have none."""
    lengths: dict[str, set[int]] = {}
    place: dict[str, tuple[str, int]] = {}
    for trial in trials:
        if step := _branch_step(trial):
            place[trial.id] = _trajectory(trial), step
            lengths.setdefault(place[trial.id][0], set()).add(step)
    ranks = {name: sorted(steps) for name, steps in lengths.items()}

    def rank(trial: TrialType) -> int:
        name, step = place.get(trial.id, ("", 0))
        return ranks[name].index(step) if name else 0

    return sorted(trials, key=rank)


def taken_over_line(trials: Iterable[Configured], store: Store) -> str | None:
    """How many of the steps of trials were not computed again; None where all were."""
    records = [record for record in map(store.peek, {trial.id for trial in trials}) if record is not None]
    ended = [record for record in records if record.final]
    saved = sum(record.taken_over.steps for record in ended if record.taken_over is not None)
    whole = sum(record.steps for record in ended)
    return f"{saved:,} of {whole:,} steps were taken over from shorter trials" if saved else None


def _branch_step(trial: Configured) -> int:
    if not trial.config.get("budget", {}).get("branch"):
        return 0
    from swapformer.training.schedule import branch_step

    return branch_step(trial.config)


def _trajectory(trial: Configured) -> str:
    from swapformer.study.config.identity import trajectory_id  # late: it brings torch

    return trajectory_id(trial.config)
