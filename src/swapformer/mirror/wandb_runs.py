"""Weights & Biases: one run for each trial, under the trial's id. `wandb` is imported when the first one is opened."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError, suggest
from swapformer.mirror.base import Destination, ReportProblem, Run, RunInfo, StudyResults, filled, summary_of
from swapformer.ranges import Positive
from swapformer.results.arms import arm_name
from swapformer.results.history import SECONDS, TOKENS
from swapformer.results.record import RUNNING, Record

EXIT = {"finished": 0, "diverged": 1, "failed": 1, "interrupted": 130, "killed": 137}
"""The exit status of a trial's run: not 0 is shown as failed; 130 and 137 are a shell's, of SIGINT and SIGKILL."""

AXES: Mapping[str, str | None] = {"step": None, "tokens": TOKENS, "seconds": SECONDS}
"""What curves may be drawn over; the steps are W&B's own."""
_MODES = ("offline", "online")
_OF_ONE_RUN = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_NAME", "WANDB_RUN_GROUP", "WANDB_JOB_TYPE", "WANDB_TAGS")
"""Variables that would give all runs what only one should have."""
_NAME = 100
"""Characters of a study's name that go into an id, which may have 128."""
_TAG = 64
"""Characters that a tag may have."""


class WandB(Destination):
    """Runs in a project of Weights & Biases: group = study, job type = arm, id = the trial's.

    An offline run holds the whole history each time it is opened, and replaces one of an earlier attempt; an online one
    goes on where the server says that it ends. Where a server cannot be reached, the runs are kept offline instead.
    Raises ValueError for another mode or axis.

    Args:
        mode: offline or online.
        project, entity: where the runs belong; without an entity the user's default.
        tags: in addition to the study and the arm.
        name, group, notes: of a run; `{study}`, `{arm}`, `{seed}` and `{trial}` stand for the trial's.
        x_axis: what curves are drawn over unless a panel says otherwise: step, tokens or seconds.
        patience: seconds to wait for a server.
    """

    def __init__(
        self,
        *,
        mode: str,
        project: str,
        entity: str | None,
        tags: Sequence[str],
        name: str = "{arm} seed {seed}",
        group: str = "{study}",
        notes: str | None = None,
        x_axis: str,
        patience: Positive,
    ) -> None:
        for key, given, known in (("mode", mode, _MODES), ("x_axis", x_axis, tuple(AXES))):
            if given not in known:
                words = f"{', '.join(known[:-1])} or {known[-1]}"
                raise ValueError(f"`logger.wandb.{key}` must be {words}, but it is {given!r}{suggest(given, known)}")
        self.mode, self.project, self.entity, self.x_axis = mode, project, entity, x_axis
        self.tags, self.patience = tuple(tags), patience
        self.run_name, self.group, self.notes = name, group, notes
        self._reachable = mode == "online"

    @property
    def name(self) -> str:
        axis = "" if self.x_axis == "step" else f"/over {self.x_axis}"
        words = (self.run_name, self.group, self.notes, self.tags)  # other ones show trials again
        own = "" if words == ("{arm} seed {seed}", "{study}", None, ()) else f"/{words}"
        return f"wandb/{self.mode}/{self.entity or ''}/{self.project}{axis}{own}"

    def require(self) -> None:
        if find_spec("wandb") is None:
            raise UsageError("logger=wandb needs the package wandb, which is not installed: pip install wandb")

    def upload_hint(self, folder: Path) -> str | None:
        runs = "wandb/offline-run-*"
        if self.mode == "online" or not any(folder.glob(runs)):
            return None
        return f"W&B runs are kept offline; to send them: wandb sync {folder}/{runs}"

    def open(self, info: RunInfo, folder: Path, report_problem: ReportProblem) -> Run:
        config = {**info.config, "swapformer": _origin(info)}
        config.pop("logger", None)
        again = info.record.attempts > 1
        run = self._init(
            folder, report_problem, again, watched=info.record.status == RUNNING, id=info.trial,
            name=filled(self.run_name, info.facts).strip(), group=filled(self.group, info.facts) or None,
            notes=filled(self.notes, info.facts), job_type=info.arm or None, config=config,
            tags=_tags(info.study, info.arm, info.condition, *self.tags),
        )  # fmt: skip
        for name in (TOKENS, SECONDS):
            run.define_metric(name, hidden=True)  # an axis, which gets no panel of its own
        if (axis := AXES[self.x_axis]) is not None:
            run.define_metric("*", step_metric=axis)
        return _WandBRun(run, again, self)

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        run = self._init(
            folder, report_problem, False, id=study_run(results.study), name=results.study, group=results.study,
            job_type="study", config={"swapformer": {"study": results.study, "baseline": results.baseline}},
            tags=_tags(results.study, *self.tags), notes=results.question,
        )  # fmt: skip
        shown: dict[str, Any] = {name: _table(rows) for name, rows in results.tables.items()}
        if results.report is not None:
            shown["report"] = _wandb().Html(results.report.read_text(encoding="utf-8"), inject=False)
        run.log(shown)
        run.summary.update({f"trials/{status}": count for status, count in results.counts.items()})
        for row in results.tables.get("verdicts", ()):
            run.summary[f"verdict/{arm_name(row['claim'], row.get('condition', ''))}"] = row["verdict"]
        self.end(run, 0)

    def end(self, run: Any, status: int) -> None:
        """Close a run. Raises TimeoutError when a server does not take it in time; then it is taken for lost."""
        try:
            run.finish(exit_code=status)
        except TimeoutError:
            self._reachable = False
            raise

    def close(self) -> None:
        _wandb().teardown()

    def _init(
        self, folder: Path, report_problem: ReportProblem, again: bool, watched: bool = False, **facts: Any
    ) -> Any:
        """Starts a run; offline where the server does not answer. `watched`: with the machine's load while it lasts."""
        if self._reachable:
            try:
                return self._start("online", folder, watched, resume="allow" if again else None, **facts)
            except Exception as error:
                self._reachable = False
                self.close()  # its service takes the id to be in use for as long as it lives
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                report_problem(
                    f"W&B cannot be reached ({reason}); runs are kept offline: wandb sync {folder}/wandb/offline-run-*"
                )
        for earlier in folder.glob(f"wandb/offline-run-*/run-{facts['id']}.wandb"):  # folders end in any letters
            shutil.rmtree(earlier.parent, ignore_errors=True)  # what it holds is in the new one
        return self._start("offline", folder, watched, **facts)

    def _start(self, mode: str, folder: Path, watched: bool, **facts: Any) -> Any:
        os.environ.setdefault("WANDB_DATA_DIR", str(folder / "wandb" / "data"))  # what tables wait in to be sent
        for name in _OF_ONE_RUN:
            os.environ.pop(name, None)
        quiet = _wandb().Settings(
            console="off", silent=True, disable_code=True, disable_git=True, save_code=False, x_disable_meta=True,
            x_disable_stats=not watched, x_save_requirements=False, init_timeout=self.patience,
            finish_timeout=self.patience, finish_timeout_raises=True,
        )  # fmt: skip
        return _wandb().init(
            mode=mode, dir=str(folder), project=self.project, entity=self.entity, reinit="create_new",
            settings=quiet, **facts,
        )  # fmt: skip


class _WandBRun(Run):
    def __init__(self, run: Any, again: bool, destination: WandB) -> None:
        self._run, self._destination = run, destination
        if again and not run.offline:
            self.first_step = run.starting_step

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        # W&B keeps the newest row back, in case more comes for its step; sent after the summary, it would put the
        # history's values where the final ones belong. What is logged without a step sends it first.
        self._run.log({name: _wandb().Image(str(path)) for name, path in pictures.items()}, commit=True)
        self._run.summary.update({**summary_of(record), **numbers})
        self._destination.end(self._run, EXIT.get(record.status, 1))

    def abandon(self) -> None:
        try:
            self._run.finish(exit_code=1)
        except Exception:  # it is being given up because of one already
            return


def _wandb() -> Any:
    return import_module("wandb")


def study_run(study: str) -> str:
    """The id of a study's own run, which shows its results: its name, or made from it where an id is stricter."""
    held = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in study)[:_NAME]
    return f"study-{held}" if held == study else f"study-{held}-{sha256(study.encode()).hexdigest()[:8]}"


def _origin(info: RunInfo) -> dict[str, Any]:
    record = info.record
    return {
        "trial": info.trial,
        "study": info.study,
        "arm": info.arm,
        "condition": info.condition,
        "cells": list(info.cells),
        "commit": record.git.get("commit"),
        "command": record.command,
        "environment": dict(record.environment),
        "machine": dict(record.machine),
    }


def _tags(*texts: str) -> list[str]:
    """Each once, cut to what a tag may hold."""
    return list(dict.fromkeys(text if len(text) <= _TAG else f"{text[: _TAG - 1]}…" for text in texts if text))


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Columns in the order in which rows first name them; a cell that a row lacks is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return _wandb().Table(
        columns=columns, data=[[row.get(name) for name in columns] for row in rows], allow_mixed_types=True
    )
