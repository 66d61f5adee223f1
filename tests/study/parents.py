"""Other processes that run trials as `swapformer study` does, and waiting for what they do.

`python parents.py RUNS_DIR SLOTS TRIALS.json [KIND]` is such a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from study import fakes
from swapformer.console import guarded
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.launcher import Launch
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing, trial_status
from swapformer.study.launch.ray import RayLauncher
from swapformer.study.launch.slurm import SlurmLauncher
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
    command = [sys.executable, __file__, str(store.runs_dir), str(slots), str(file), kind]
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


def main() -> None:
    runs_dir, slots, file, *kind = sys.argv[1:]
    trials = [
        fakes.trial(**{**entry, "journal": Path(entry["journal"])}) for entry in json.loads(Path(file).read_text())
    ]
    store = Store(runs_dir)
    launch_missing(trials, store, launcher(store, int(slots), *kind))


def launcher(store: Store, slots: int, kind: str = "local") -> Launch:
    match kind:
        case "local":
            return LocalLauncher(store, fakes.PROVENANCE, slots, fakes.WORK)
        case "ray":
            return RayLauncher(store, fakes.PROVENANCE, slots, num_cpus=1, work=fakes.WORK)
        case "slurm":
            return SlurmLauncher(store, fakes.PROVENANCE, slots, poll=0.2, work=fakes.WORK)
        case "slurm out of time":
            return SlurmLauncher(store, fakes.PROVENANCE, slots, poll=0.2, timeout=1, timeouts=0, work=fakes.WORK)
        case other:
            raise AssertionError(other)


if __name__ == "__main__":
    sys.exit(guarded(main))
