"""Which SLURM job has a trial, and which jobs there are."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping
from pathlib import Path

from swapformer.results.files import write_atomic

log = logging.getLogger(__name__)


def note(folder: Path, jobs: Mapping[str, str]) -> None:
    """Write down an array that was submitted, in a file of its own: which trial each job (`100_0`, …) has."""
    number = next(iter(jobs)).partition("_")[0]
    write_atomic(folder / f"{number}.json", json.dumps(dict(jobs)))


def noted(folder: Path) -> dict[str, str]:
    """The trial of every job that was ever submitted, whether it is over or not."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found |= {str(job): str(trial) for job, trial in json.loads(path.read_bytes()).items()}
        except (OSError, ValueError, AttributeError) as error:
            log.warning("%s does not say which jobs were submitted (%s)", path, error)
    return found


def queue() -> set[str] | None:
    """The user's jobs that wait or run, tasks of arrays one by one; None where SLURM does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("squeue does not answer (%s); asking again", error)
        return None
    return set(done.stdout.split())
