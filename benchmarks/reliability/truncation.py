"""Records and checkpoints that end too early: found, set aside, and the trial comes to the same result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.reliability.tiny_trials import Result, count, differing, result, silence, trials
from swapformer.results import record as records
from swapformer.results.store import Store
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Trial, execute

STEPS = 10


def truncated(offsets: int) -> list[Figure]:
    """Cut the record, and the checkpoint of a killed trial, at `offsets` places each: from nothing to a byte short.

    The last character of a record is a line's end, without which it is still whole.
    """
    (trial,) = trials(1, f"budget.steps={STEPS}")
    with tempfile.TemporaryDirectory() as folder, silence():
        whole = Store(Path(folder) / "whole")
        whole.prepare()
        execute(trial, whole, current_provenance())
        expected = result(whole, trial.id)
        if expected is None:
            raise RuntimeError("a trial that nothing disturbed did not finish; nothing was measured")
        return [*_of(whole, trial, expected, "record.json", offsets), *_of(whole, trial, expected, _LAST, offsets)]


_LAST = "checkpoints/last.ckpt"


def _of(whole: Store, trial: Trial, expected: Result, name: str, offsets: int) -> Iterator[Figure]:
    believed, differ, kept = [], [], []
    size = len((whole.directory(trial.id) / name).read_bytes().rstrip(b"\n"))
    cuts = sorted({index * (size - 1) // max(offsets - 1, 1) for index in range(offsets)})
    for cut in cuts:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            shutil.copytree(whole.directory(trial.id), store.directory(trial.id))
            path = store.directory(trial.id) / name
            if name == _LAST:  # as a kill leaves it: with a checkpoint, and without a result
                store.write(records.Record(trial.id, records.RUNNING, attempts=1))
            with path.open("r+b") as file:
                file.truncate(cut)
            if name != _LAST and store.peek(trial.id) is not None:
                believed.append(cut)
            execute(trial, store, current_provenance())
            differ += differing(store, {trial.id: expected})
            aside = list(store.directory(trial.id).glob("*.corrupt-*"))
            if len(aside) != 1:
                kept.append(cut)
    what = f"{name} cut at {len(cuts)} places"
    if name != _LAST:
        yield Figure(*count(f"{what}: taken for whole", believed, "times"))
    yield Figure(*count(f"{what}: not set aside", kept, "times"))
    yield Figure(*count(f"{what}: the trial, redone, differs from an undisturbed one", differ, "times"))
