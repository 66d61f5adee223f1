"""Runs one trial in this process, from its lock to its final record."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swapformer.console import few_collections, unwritable
from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.artifacts import has_artifact
from swapformer.results.config import write_config
from swapformer.results.files import quarantine
from swapformer.results.history import history_path
from swapformer.results.moments import END, INIT, at_moment, moments_of, without_moments
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.machine import alone, computing, hardware
from swapformer.study.launch.provenance import Provenance, machine_info
from swapformer.study.launch.signals import ORPHANED, deferred_signals, sigterm_raises
from swapformer.targets import NOT_IN_ID, targets, unseen_code
from swapformer.training.signals import SigtermReceived

if TYPE_CHECKING:
    from swapformer.training.fit import Outcome

log = logging.getLogger(__name__)

Config = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One run of one resolved config with one seed, known by its id.

    `environment`, `data` (fingerprint) and `results_epoch` are what the id was made from beside the config; `overrides`
    are what the config was composed from, for Hydra launchers, where that is known.
    """

    id: str
    config: Config
    environment: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    results_epoch: int = 0
    overrides: tuple[str, ...] = ()

    @property
    def probes(self) -> Mapping[str, Any]:
        """The probes that are asked of the finished trial, by name."""
        return self.config.get("probes") or {}


def _never(config: Config) -> bool:
    return False


def _nothing(trial: Trial) -> None:
    return


@dataclass(frozen=True)
class Work:
    """The work of a trial: train or measure, then replay probes. Picklable, so that a child process can be told.

    `timed`: whether the numbers of a configuration depend on the machine. `require`: raises UsageError where a trial is
    no longer what it was named as.
    """

    fit: Callable[[Config, Path], Outcome]
    replay: Callable[[Config, Path], object]
    corrupt_checkpoint: type[Exception]
    timed: Callable[[Config], bool] = _never
    require: Callable[[Trial], None] = _nothing


def real_work() -> Work:
    """The real work: to train or measure, and to replay probes. Imported when a trial runs: it brings torch."""
    with few_collections():
        from swapformer.measure import is_timed
        from swapformer.probes import replay
        from swapformer.training.fit import CorruptCheckpoint

    return Work(_fit_or_measure, replay, CorruptCheckpoint, is_timed, require_as_named)


def _fit_or_measure(config: Config, folder: Path) -> Outcome:
    from swapformer.measure import measure
    from swapformer.probes import fit_watched

    outcome = measure(config, folder) if config.get("measure") else fit_watched(config, folder)
    return replace(outcome, notes=(*outcome.notes, *(f"{NOT_IN_ID}{each}" for each in unseen_code(config))))


def require_as_named(trial: Trial) -> None:
    """Raise UsageError for a trial of times on another machine, or whose own parts have changed since it was named."""
    named = trial.environment.get("hardware")
    if named is not None and named != (here := hardware(trial.config["trainer"]["accelerator"])):
        raise UsageError(
            f"times are of one machine, but this is {here} and the trial was named on {named}; start it here"
        )
    if any(name.split(".")[0] not in ("swapformer", "torch") for name in targets(trial.config)):
        from swapformer.study.config.identity import require_same_source  # late: it brings torch

        require_same_source(trial.config, trial.id)


def missing_probes(trial: Trial, store: Store, status: str) -> set[str]:
    """The names of the asked probes that have not been replayed yet with these settings, and can be.

    Every trial that has ended has a beginning, one that finished has an end, and moments within a training are over.
    """
    folder = store.directory(trial.id)
    moments = {records.FINISHED: (INIT, END), records.DIVERGED: (INIT,)}.get(status, ())
    return {
        name
        for name, settings in trial.probes.items()
        for moment in moments_of(settings)
        if moment in moments and not has_artifact(folder, at_moment(name, moment), without_moments(settings))
    }


def is_complete(trial: Trial, store: Store, record: Record | None) -> bool:
    """Whether nothing is left to do: finished or diverged, with every asked probe replayed that can be."""
    return record is not None and record.final and not missing_probes(trial, store, record.status)


def execute(trial: Trial, store: Store, provenance: Provenance, work: Work | None = None) -> Record | None:
    """Run, resume or reuse a trial and return its record; None when another process is running it.

    A final record is reused. A killed or interrupted trial is resumed from its checkpoint, a failed one starts again.
    An exception of the training ends in a `failed` record, not in an exception, except for UsageError, which is
    recorded and raised: the user has to change something.
    """
    with store.lock(trial.id) as mine:
        if not mine:
            return None
        with sigterm_raises():
            store.repair(trial.id)
            record = store.read(trial.id)
            if record is None or not record.final:
                work = work or real_work()
                with alone() if work.timed(trial.config) else computing():
                    record = _train(trial, store, provenance, record, work)
            if missing_probes(trial, store, record.status):
                with computing():
                    record = _replay(trial, store, record, work or real_work())
            return record


def _train(trial: Trial, store: Store, provenance: Provenance, before: Record | None, work: Work) -> Record:
    folder = store.directory(trial.id)
    if before is not None and before.status == records.FAILED:
        for path in (folder / "checkpoints", history_path(folder)):  # what made it fail may be in its checkpoint
            if path.exists():
                quarantine(path)
        before = None
    if before is not None and before.status == records.RUNNING:  # it was killed, and nobody has said so
        before = before.but(seconds=before.seconds + store.unrecorded_seconds(trial.id))
    running = _running(trial, provenance, before)
    write_config(folder, trial.config)
    store.write(running)
    start = time.monotonic()

    def end(status: str, reason: str | None, **values: Any) -> Record:
        if status == records.INTERRUPTED and ORPHANED.is_set():
            status, reason = records.KILLED, "the process that had started it was killed"
        seconds = running.seconds + time.monotonic() - start
        ended = running.but(status=status, reason=reason, ended=records.now(), seconds=round(seconds, 3), **values)
        with deferred_signals():
            store.write(ended)
        return ended

    try:
        try:
            work.require(trial)
            result = work.fit(trial.config, folder)
        except work.corrupt_checkpoint as error:
            running = running.but(notes=(*running.notes, _discard_checkpoints(folder, error)))
            result = work.fit(trial.config, folder)
    except (KeyboardInterrupt, SystemExit, SigtermReceived) as stop:
        if not _was_stopped(stop):
            return end(records.FAILED, f"{_error_text(stop)}: something in the trial called sys.exit; raise an error")
        return end(records.INTERRUPTED, "Interrupted" if isinstance(stop, SigtermReceived) else type(stop).__name__)
    except UsageError as error:
        end(records.FAILED, str(error))
        raise
    except Exception as error:
        if (why := unwritable(error)) is not None:
            log.error("trial %s failed: %s", trial.id, why)
            return end(records.FAILED, why)
        log.exception("trial %s failed", trial.id)
        return end(records.FAILED, _error_text(error))
    except BaseException as error:  # of a part that raises one which is not an Exception
        end(records.FAILED, _error_text(error))
        raise
    return end(
        result.status,
        result.reason,
        metrics=records.finite(result.metrics),
        standard_errors=records.finite(result.standard_errors),
        directions=dict(result.directions),
        evaluation=dict(result.evaluation),
        exact=tuple(result.exact),
        baselines={name: records.finite(found) for name, found in result.baselines.items()},
        steps=result.steps,
        tokens=result.tokens,
        parameters=dict(result.parameters),
        notes=(*running.notes, *result.notes),
    )


def _replay(trial: Trial, store: Store, record: Record, work: Work) -> Record:
    """Replay what is missing; a probe that fails is noted, the training stays as it ended."""
    wanted = {name: trial.probes[name] for name in sorted(missing_probes(trial, store, record.status))}
    try:
        work.replay({**trial.config, "probes": wanted}, store.directory(trial.id))
    except (Exception, KeyboardInterrupt, SystemExit, SigtermReceived) as error:
        if _was_stopped(error):
            return record  # the artifacts are missing, which says it: they are made when asked for again
        log.error("a probe of trial %s failed: %s", trial.id, error, exc_info=not isinstance(error, UsageError))
        failed = [f"probes {', '.join(wanted)}: {_error_text(error)}"]
    else:
        failed = []
    notes = (*(note for note in record.notes if not _tells_of(note, wanted)), *failed)
    if notes != record.notes:
        record = record.but(notes=notes)
        store.write(record)
    return record


def _tells_of(note: str, probes: Collection[str]) -> bool:
    """Whether a note says that these probes failed before."""
    what, names = note.partition(":")[0], set(probes)
    return what == "probes" or (what.startswith("probes ") and set(what.removeprefix("probes ").split(", ")) <= names)


def _was_stopped(error: BaseException) -> bool:
    """Whether somebody stopped the trial. Lightning answers Ctrl-C by sys.exit, which a part may call too."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt | SigtermReceived):
            return True
        if isinstance(cause, SystemExit) and type(cause) is not SystemExit:
            return True  # Lightning's own for SIGTERM
        cause = cause.__context__
    return False


def _running(trial: Trial, provenance: Provenance, before: Record | None) -> Record:
    notes: tuple[str, ...] = ()
    machine = machine_info(trial.config["trainer"]["accelerator"] if "trainer" in trial.config else "cpu")
    if before is not None:  # how the attempt ended that this one takes up: its record is about to be overwritten
        ended = records.KILLED if before.status == records.RUNNING else before.status
        notes = (*before.notes, before.ended_attempt(ended))
        first, now = (each.get("gpu", "") for each in (before.machine, machine))
        if first and first != now:
            notes += (f"begun on {first} and resumed on {now or 'another device'}: not equal bit by bit to either",)
    return Record(
        id=trial.id,
        status=records.RUNNING,
        seed=trial.config.get("seed"),
        environment=dict(trial.environment),
        trainer=dict(trial.config.get("trainer") or {}),
        machine=machine,
        git={"commit": provenance.commit, "dirty": provenance.dirty},
        data={"fingerprint": trial.data},
        command=provenance.command,
        results_epoch=trial.results_epoch,
        started=before.started if before else records.now(),
        seconds=before.seconds if before else 0.0,
        attempts=before.attempts + 1 if before else 1,
        notes=notes,
    )


def _discard_checkpoints(folder: Path, error: Exception) -> str:
    """Set the checkpoints aside together with the history that belongs to them; the note for the record."""
    moved = quarantine(folder / "checkpoints")
    history_path(folder).unlink(missing_ok=True)
    note = f"corrupt checkpoint set aside as {moved.name}, trained anew ({error})"
    log.warning("trial %s: %s", folder.name, note)
    return note


def _error_text(error: BaseException) -> str:
    """Type, message and the last frames: enough to know where to look. W&B's are left out: it wraps sys.exit."""
    whole = traceback.extract_tb(error.__traceback__)
    frames = ([frame for frame in whole if "wandb" not in Path(frame.filename).parts] or whole)[-3:]
    frames_text = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} [{frames_text}]"
