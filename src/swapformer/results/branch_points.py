"""Which trials keep the state before their decay, for longer trainings to begin there: empty files under `branches`.

`branches/<trajectory>/<step>-<trial>` says that the trial keeps, or will keep, the state after so many steps in its own
folder. It may have gone since: whoever reads the state says so.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from swapformer.results.store import Store

_NAME = re.compile(r"(\d{1,18})-([0-9a-f]{16})")


class BranchPoint(NamedTuple):
    """The state of the trial after `step` optimiser steps, before its decay."""

    step: int
    trial: str


def stable_path(folder: Path) -> Path:
    """The state before the decay of the trial in `folder`."""
    return folder / "checkpoints" / "stable.ckpt"


def announce(store: Store, trajectory: str, point: BranchPoint) -> None:
    """Say that a trial keeps the state after a step of a trajectory. Raises OSError where that cannot be written."""
    folder = _branches(store) / trajectory
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{point.step}-{point.trial}").touch()


def branch_points(store: Store, trajectory: str, latest: int) -> list[BranchPoint]:
    """The points of a trajectory up to step `latest` whose states are there, the latest first."""
    try:
        names = [entry.name for entry in (_branches(store) / trajectory).iterdir()]
    except OSError:
        return []
    points = [BranchPoint(int(found[1]), found[2]) for found in map(_NAME.fullmatch, names) if found]
    there = [each for each in points if each.step <= latest and stable_path(store.directory(each.trial)).is_file()]
    return sorted(there, reverse=True)


def forget(store: Store, trial: str) -> None:
    """Take back what was said of a trial whose checkpoints are gone."""
    for path in _branches(store).glob(f"*/*-{trial}"):
        with suppress(OSError):
            path.unlink()


def _branches(store: Store) -> Path:
    return store.runs_dir / "branches"
