"""Trials in Trackio: what is written is read back with the package itself where it is installed, or from a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.mirror import Trackio, trackio_runs
from swapformer.mirror.base import RunInfo, StudyResults
from swapformer.results.record import Record

IDS = "a" * 16, "b" * 16
CURVES = [(10, {"train/loss": 0.5, "val/loss@64": 1e-09}), (20, {"train/loss": 0.25})]
READ = """
import json, sys, trackio
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps([
    [run.name, run.config, SQLiteStorage.get_logs("my--heads", run.name, run_id=run.id)]
    for run in trackio.Api().runs("my--heads")
], default=str))
"""


def write(folder: Path) -> None:
    """Two trials side by side, each a second time as a resumed one is, and the study's verdicts twice."""
    place = Trackio(folder=None, patience=1.0)
    for _ in range(2):
        open_runs = []
        for seed, trial in enumerate(IDS):
            record = Record(trial, "running", seed=seed, attempts=1)
            config = {"model": {"d_model": 16}, "logger": {"x": {"token": "secret"}}}
            open_runs.append(place.open(RunInfo(trial, "my/heads", "h8", "", [], config, record), folder, print))
        for step, values in CURVES:
            for run in open_runs:
                run.log(step, values)
        for trial, run, status in zip(IDS, open_runs, ("finished", "failed"), strict=True):
            run.finish(Record(trial, status, steps=20, metrics={"val/loss": 0.125}, attempts=1), {"probe/x": 3.0}, {})
    rows = [{"claim": "a | b", "verdict": "supported"}]
    for _ in range(2):
        place.show(StudyResults("my/heads", "Does it?", "h8", {}, rows, [{"arm": "h8"}], []), folder, print)
    place.close()


def check(found: list[tuple[str, Mapping[str, Any], list[dict[str, Any]]]]) -> None:
    runs = {name: (config, logs) for name, config, logs in found}
    assert len(found) == 3, "what is written again replaces"
    for seed, (trial, status) in enumerate(zip(IDS, ("finished", "failed"), strict=True)):
        config, logs = runs[f"h8 seed {seed} {trial[:8]}"]
        assert config["swapformer"]["trial"] == trial and config["model"] == {"d_model": 16} and "logger" not in config
        values = [(row["step"], name, row[name]) for row in logs for name in row if name.startswith(("train/", "val/"))]
        assert values == [(step, name, value) for step, row in CURVES for name, value in row.items()]
        end = logs[-1]
        assert (end["end/val/loss"], end["end/probe/x"], end["step"]) == (0.125, 3.0, 20)
        assert end["end/status"]["_value"] == status
    (told,) = runs["results"][1]
    assert "supported" in told["verdicts"]["_value"] and "Does it?" in told["summary"]["_value"]


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed: pip install 'swapformer[trackio]'")
def test_trackio_reads_the_runs_that_were_written(tmp_path: Path) -> None:
    """In processes of their own: Trackio asks where its files lie when it is imported."""
    script = f"import sys; sys.path[:0] = {sys.path!r}\nfrom mirror.test_trackio_runs import write\n"
    script += f"from pathlib import Path\nwrite(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240, capture_output=True)
    place = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    done = subprocess.run(
        [sys.executable, "-c", READ], check=True, timeout=240, capture_output=True, text=True, env=place
    )
    check(json.loads(done.stdout.splitlines()[-1]))


class Package:
    """As much of Trackio as is used, in memory; `init` ends the run of its context, as the real one does."""

    def __init__(self) -> None:
        self.projects: dict[str, list[Any]] = {}
        self.current: ContextVar[Any] = ContextVar("current", default=None)
        self.environment: dict[str, str] = {}

    def Api(self) -> Any:  # noqa: N802
        return self

    def runs(self, project: str) -> list[Any]:
        if project not in self.projects:
            raise ValueError(f"Project '{project}' does not exist")
        return list(self.projects[project])

    def init(self, project: str, name: str, config: Mapping[str, Any], **more: Any) -> Any:
        self.environment = {key: text for key, text in os.environ.items() if key.startswith("TRACKIO")}
        if (previous := self.current.get()) is not None:
            previous.finish()
        runs = self.projects.setdefault(project, [])
        run = SimpleNamespace(name=name, config=config, logs=[], ended=False)

        def log(values: Mapping[str, Any], step: int) -> None:
            assert not run.ended, "another run's `init` has ended it"
            run.logs.append({**values, "step": step})

        def finish() -> None:
            run.ended = True

        run.log, run.finish, run.delete = log, finish, lambda: runs.remove(run)
        runs.append(run)
        self.current.set(run)
        return run

    def Markdown(self, text: str) -> dict[str, str]:  # noqa: N802
        return {"_value": text}


def test_runs_side_by_side_are_written_once_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package()
    monkeypatch.setitem(sys.modules, "trackio", package)  # type: ignore[arg-type]
    monkeypatch.setenv("TRACKIO_DIR", "elsewhere")
    monkeypatch.setenv("TRACKIO_SPACE_ID", "someone/space")
    write(tmp_path)
    runs = package.projects["my--heads"]
    check([(run.name, run.config, run.logs) for run in runs])
    assert all(run.ended for run in runs)
    assert package.environment == {"TRACKIO_DIR": str(tmp_path / "trackio")}


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackio_runs, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"logger=trackio needs the package trackio.*swapformer\[trackio\]"):
        Trackio(folder=None, patience=1.0).require()
