"""A disk that is full while a trial writes: nothing is believed that is not whole, and with room the trial ends well.

The disk is a small tmpfs in a mount namespace of its own (Linux, `unshare`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.reliability.tiny_trials import count, differing, launch, leftovers, trials, undisturbed
from swapformer.errors import UsageError
from swapformer.results.store import Store

STEPS = 20
SIZE = 4 * 2**20
"""Bytes of the disk."""
UNMOUNTED = 77
"""Exit status where the disk cannot be mounted."""
MOST = 3
"""Room at the most, in sizes of what a trial leaves: a checkpoint is written beside the one that it replaces."""


def full(fillings: int) -> list[Figure]:
    """Run a trial with less and less room: `fillings` times, from none at all to a little more than it needs.

    Raises:
        UsageError: where no disk of one's own can be mounted.
        RuntimeError: if the store did not get over it.
    """
    if shutil.which("unshare") is None:
        raise UsageError("a full disk is tried out in a mount namespace of its own, which needs Linux's `unshare`")
    with tempfile.TemporaryDirectory() as folder:
        inner = [sys.executable, "-m", "benchmarks.reliability.disk", folder, str(fillings)]
        script = f'mount -t tmpfs -o size={SIZE} none "$0" || exit {UNMOUNTED}; exec "$@"'
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, folder, *inner],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)
        if done.returncode == UNMOUNTED or last.startswith("unshare:"):
            raise UsageError(f"a full disk is tried out on a tmpfs in a namespace of its own, but that failed: {last}")
        raise RuntimeError(f"the store did not get over a full disk: {last}")
    return [Figure(**figure) for figure in json.loads(done.stdout.splitlines()[-1])]


def _measure(disk: Path, fillings: int) -> list[Figure]:
    wanted = trials(1, f"budget.steps={STEPS}")
    with undisturbed(wanted) as expected:
        store = Store(disk / "runs")
        launch(wanted, store)
        needed = sum(path.stat().st_blocks * 512 for path in store.runs_dir.rglob("*"))
        ended, wrong, unread, left = [], [], [], []
        for index in range(fillings):
            shutil.rmtree(store.runs_dir)
            store.prepare()
            room = index * MOST * needed // max(fillings - 1, 1)
            _fill(disk / "ballast", room)
            try:
                launch(wanted, store)
            except (OSError, UsageError) as error:  # what a user would see
                print(error, file=sys.stderr)
            found = store.read(wanted[0].id)
            if found is not None and found.final and differing(store, expected):
                unread.append(room)
            ended += [room] if found is not None and found.final else []
            (disk / "ballast").unlink()
            launch(wanted, store)
            wrong += differing(store, expected)
            left += leftovers(store)
    what = f"{fillings} times a disk with 0 to {MOST * needed // 1024} KiB left"
    return [
        Figure(f"{what}: the trial finished all the same", len(ended), "times", "some, not all",
               0 < len(ended) < fillings),
        Figure(*count(f"{what}: a result that is not the undisturbed one", unread, "times")),
        Figure(*count(f"{what}: with room again, the trial differs from an undisturbed one", wrong, "times")),
        Figure(*count(f"{what}: files half-written in the end", left, "files")),
    ]  # fmt: skip


def _fill(ballast: Path, room: int) -> None:
    """Leave `room` bytes."""
    state = os.statvfs(ballast.parent)
    take = state.f_bavail * state.f_frsize - room
    with ballast.open("wb", buffering=0) as file:
        while take > 0:
            try:
                take -= file.write(bytes(min(take, 1 << 16)))
            except OSError:
                break


if __name__ == "__main__":
    figures = _measure(Path(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps([figure.as_dict() for figure in figures]))
