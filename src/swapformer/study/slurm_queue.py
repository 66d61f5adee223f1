"""Which SLURM job has a trial, and which jobs there are."""

from __future__ import annotations

import json
import logging
import subprocess
from pathlib import Path

from swapformer.study.files import write_atomic

log = logging.getLogger(__name__)

MARK = "job.json"
"""In a trial's folder: which job has it."""


def mark(folder: Path, job: str) -> None:
    """Note in a trial's folder which job was submitted for it."""
    write_atomic(folder / MARK, json.dumps({"slurm": job}))


def job_of(folder: Path) -> str | None:
    """The job that was submitted last for the trial in `folder`, whether it is over or not."""
    try:
        return str(json.loads((folder / MARK).read_bytes())["slurm"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def queue() -> set[str] | None:
    """The user's jobs that wait or run, tasks of arrays one by one; None where SLURM does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("squeue does not answer (%s); asking again", error)
        return None
    return set(done.stdout.split())
