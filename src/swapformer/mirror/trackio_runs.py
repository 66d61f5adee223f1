"""Trials in Trackio: one run for each, in a database of files. `trackio` is imported when the first one is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import Context
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.mirror.base import Destination, ReportProblem, Run, RunInfo, StudyResults, summary_of
from swapformer.mirror.lightning_loggers import ALONE, markdown_of, note_of, numbers_in, tables_of
from swapformer.ranges import Positive
from swapformer.results.arms import arm_name
from swapformer.results.record import Record

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID")
"""Variables by which Trackio would send what is to be kept here."""
_RESULTS = "results"
"""The run of a project that holds the study's verdicts."""


class Trackio(Destination):
    """A run of Trackio for each trial; the project is the study, the group is the arm. Nothing leaves the machine.

    What an earlier attempt of a trial has left is replaced.

    Args:
        folder: where Trackio keeps its databases; null: a folder of the mirror's, in the store.
        patience: seconds that the command waits for the mirror at its end.
    """

    def __init__(self, *, folder: str | None, patience: Positive) -> None:
        self.folder, self.patience = folder, patience

    @property
    def name(self) -> str:
        return f"trackio/{self.folder or ''}"

    def require(self) -> None:
        if find_spec("trackio") is None:
            raise UsageError(
                "logger=trackio needs the package trackio, which is not installed; pip install 'swapformer[trackio]'"
            )

    def place(self, folder: Path) -> Path:
        """Where the databases lie, given the mirror's own folder."""
        return Path(self.folder).absolute() if self.folder else folder.absolute() / "trackio"

    def upload_hint(self, folder: Path) -> str | None:
        return f"to see it in Trackio: TRACKIO_DIR={self.place(folder)} trackio show"

    def open(self, info: RunInfo, folder: Path, report_problem: ReportProblem) -> Run:
        config = {key: value for key, value in info.config.items() if key != "logger"}
        facts = {"trial": info.trial, "study": info.study, "arm": info.arm, "condition": info.condition}
        named = f"{arm_name(info.arm, info.condition)} seed {info.record.seed} {info.trial[:8]}".strip()
        run = self._start(folder, info.study or ALONE, named, info.arm or None, {**config, "swapformer": facts})
        return _TrackioRun(run)

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        run = self._start(folder, results.study, _RESULTS, None, {"question": results.question})
        texts = {"summary": note_of(results)}
        texts |= {name: markdown_of(rows) for name, rows in tables_of(results).items()}
        run.log({name: import_module("trackio").Markdown(text) for name, text in texts.items()}, step=0)
        run.finish()

    def close(self) -> None:
        return

    def _start(self, folder: Path, study: str, named: str, group: str | None, config: Mapping[str, Any]) -> Any:
        """A new run in place of one of this name."""
        for variable in _ELSEWHERE:
            os.environ.pop(variable, None)
        os.environ["TRACKIO_DIR"] = str(self.place(folder))  # read when the package is imported
        trackio = import_module("trackio")
        project = study.replace("/", "--")  # of other marks it makes no difference between names
        try:
            earlier = [run for run in trackio.Api().runs(project) if run.name == named]
        except ValueError:  # no such project
            earlier = []
        for run in earlier:
            run.delete()
        # In a context of its own: `init` ends the run that it finds in the present one, and several are open at a time.
        return Context().run(
            trackio.init, project, name=named, group=group, config=dict(config), resume="never", embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip


class _TrackioRun(Run):
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        trackio = import_module("trackio")
        ends = {f"end/{name}": value for name, value in {**numbers_in(summary_of(record)), **numbers}.items()}
        said = f"{record.status} {record.reason or ''}".strip()
        drawn = {name: trackio.Image(str(path)) for name, path in pictures.items()}
        self._run.log({**ends, "end/status": trackio.Markdown(said), **drawn}, step=record.steps)
        self._run.finish()

    def abandon(self) -> None:
        try:
            self._run.finish()
        except Exception:  # it is being given up because of one already
            return
