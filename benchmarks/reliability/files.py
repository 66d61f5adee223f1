"""Files of trials: a disk that is full while they are written, and records and checkpoints that end too early.

The disk is a small tmpfs in a mount namespace of its own (Linux, `unshare`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.measurement import Figure
from benchmarks.reliability.tiny_trials import (
    TrialResult,
    differing,
    launch,
    leftovers,
    none_of,
    result,
    silence,
    trials,
    undisturbed,
)
from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.store import Store
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Trial, execute

STEPS, CUT_STEPS = 20, 10
"""Steps of the trial on a full disk, and of the one whose files are cut."""
LAST = "checkpoints/last.ckpt"
SIZE = 4 * 2**20
"""Bytes of the disk."""
UNMOUNTED = 77
"""Exit status where the disk cannot be mounted."""
MAX_ROOM = 3
"""Largest room, in sizes of a trial's files: a checkpoint is written beside the one that it replaces."""


def measure_full_disk(fillings: int) -> list[Figure]:
    """Run a trial with less and less room: `fillings` times, from none at all to a little more than it needs.

    Raises UsageError where no disk of one's own can be mounted, RuntimeError if the store did not get over it.
    """
    if shutil.which("unshare") is None:
        raise UsageError("a full disk is tried out in a mount namespace of its own, which needs Linux's `unshare`")
    with tempfile.TemporaryDirectory() as folder:
        inner = [sys.executable, "-m", "benchmarks.reliability.files", folder, str(fillings)]
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


def _measure_here(disk: Path, fillings: int) -> list[Figure]:
    wanted = trials(1, f"budget.steps={STEPS}")
    with undisturbed(wanted) as expected:
        store = Store(disk / "runs")
        launch(wanted, store)
        needed = sum(path.stat().st_blocks * 512 for path in store.runs_dir.rglob("*"))
        ended, wrong, unread, left = [], [], [], []
        for index in range(fillings):
            shutil.rmtree(store.runs_dir)
            store.prepare()
            room = index * MAX_ROOM * needed // max(fillings - 1, 1)
            _fill(disk / "ballast", room)
            try:
                launch(wanted, store)
            except (OSError, UsageError) as error:
                print(error, file=sys.stderr)
            found = store.read(wanted[0].id)
            if found is not None and found.final and differing(store, expected):
                unread.append(room)
            ended += [room] if found is not None and found.final else []
            (disk / "ballast").unlink()
            launch(wanted, store)
            wrong += differing(store, expected)
            left += leftovers(store)
    what = f"{fillings} times a disk with 0 to {MAX_ROOM * needed // 1024} KiB left"
    return [
        Figure(f"{what}: the trial finished all the same", len(ended), "times", "some, not all",
               0 < len(ended) < fillings),
        none_of(f"{what}: a result that is not the undisturbed one", unread, "times"),
        none_of(f"{what}: with room again, the trial differs from an undisturbed one", wrong, "times"),
        none_of(f"{what}: files half-written in the end", left, "files"),
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


def measure_cut_files(offsets: int) -> list[Figure]:
    """Cut the record, and the checkpoint of a killed trial, at `offsets` offsets each: from nothing to a byte short.

    The last character of a record is a line's end, without which it is still whole.
    """
    (trial,) = trials(1, f"budget.steps={CUT_STEPS}")
    with tempfile.TemporaryDirectory() as folder, silence():
        whole = Store(Path(folder) / "whole")
        whole.prepare()
        execute(trial, whole, current_provenance())
        expected = result(whole, trial.id)
        if expected is None:
            raise RuntimeError("a trial that nothing disturbed did not finish; nothing was measured")
        return [*_cut(whole, trial, expected, "record.json", offsets), *_cut(whole, trial, expected, LAST, offsets)]


def _cut(whole: Store, trial: Trial, expected: TrialResult, name: str, offsets: int) -> Iterator[Figure]:
    believed, differ, kept = [], [], []
    size = len((whole.directory(trial.id) / name).read_bytes().rstrip(b"\n"))
    cuts = sorted({index * (size - 1) // max(offsets - 1, 1) for index in range(offsets)})
    for cut in cuts:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            shutil.copytree(whole.directory(trial.id), store.directory(trial.id))
            path = store.directory(trial.id) / name
            if name == LAST:  # as a kill leaves it: with a checkpoint, and without a result
                store.write(records.Record(trial.id, records.RUNNING, attempts=1))
            with path.open("r+b") as file:
                file.truncate(cut)
            if name != LAST and (found := store.peek(trial.id)) is not None and found.status != records.CORRUPT:
                believed.append(cut)
            execute(trial, store, current_provenance())
            differ += differing(store, {trial.id: expected})
            aside = list(store.directory(trial.id).glob("*.corrupt-*"))
            if len(aside) != 1:
                kept.append(cut)
    what = f"{name} cut at {len(cuts)} offsets"
    if name != LAST:
        yield none_of(f"{what}: taken for whole", believed, "times")
    yield none_of(f"{what}: not set aside", kept, "times")
    yield none_of(f"{what}: the trial, redone, differs from an undisturbed one", differ, "times")


if __name__ == "__main__":
    print(json.dumps([asdict(figure) for figure in _measure_here(Path(sys.argv[1]), int(sys.argv[2]))]))
