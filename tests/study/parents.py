"""Other processes that run trials, and waiting for what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.missing_trials import trial_status
from swapformer.study.launch.trial import Trial

HERE = Path(__file__).parent
PATH = f"{HERE.parents[1] / 'src'}{os.pathsep}{HERE.parent}"
"""PYTHONPATH of a process that is to know these tests."""


def parent(
    store: Store, trials: Sequence[dict[str, Any]], slots: int = 2, kind: str = "local", cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Another process that runs `trials` in the same store, in a process group of its own."""
    file = store.runs_dir / "trials.json"
    file.write_text(json.dumps(trials))
    command = [sys.executable, str(HERE / "parent.py"), str(store.runs_dir), str(slots), str(file), kind]
    with (store.runs_dir / "stderr").open("ab") as errors:
        environment = {**os.environ, "PYTHONPATH": PATH}
        return subprocess.Popen(command, env=environment, cwd=cwd, start_new_session=True, stderr=errors)


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def read(store: Store, trial: str) -> Record:
    found = store.read(trial)
    assert found is not None
    return found


def statuses(trials: Sequence[Trial], store: Store) -> list[str]:
    return [trial_status(trial, store) for trial in trials]
