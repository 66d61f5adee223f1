"""What a study says of trials without a result, and how a command ends on a disk without room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from study import fakes
from swapformer.console import FAILED, guarded
from swapformer.results import record
from swapformer.results.files import write_atomic
from swapformer.results.record import FINISHED, KILLED, Record
from swapformer.results.store import Store
from swapformer.study.messages import resume_line
from swapformer.study.run_study import StudyFailed, StudyResult, _arm_names

UNUSED: Any = None


def complaint(**statuses: str) -> str:
    with pytest.raises(StudyFailed) as raised:
        StudyResult(UNUSED, statuses, UNUSED).require_complete()
    return str(raised.value)


def test_the_trial_to_look_at_is_one_that_has_a_record() -> None:
    assert complaint(aa="missing", bb="failed", cc="finished") == (
        "2 of 3 trials have no result (1 missing, 1 failed); `swapformer trials bb` says why, "
        "the same command tries again"
    )
    assert complaint(aa="missing") == (
        "1 of 1 trials have no result (1 missing); none of them has left a record; the same command tries again"
    )


def test_a_command_on_a_full_disk_ends_with_one_line_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(number: int) -> Any:
        def sync(descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("swapformer.results.files.os.fsync", sync)
        return lambda: write_atomic(tmp_path / "manifest.json", "{}")

    assert guarded(full(errno.ENOSPC)) == FAILED
    assert capsys.readouterr().err == (
        f"swapformer: {tmp_path / 'manifest.json'} cannot be written: No space left on device; "
        "make room for it, and the same command continues from here\n"
    )
    with pytest.raises(OSError, match="No space left"):
        guarded(full(errno.ENOSPC), debug=True)
    with pytest.raises(OSError, match="Input/output"):
        guarded(full(errno.EIO))


def test_arms_of_a_sweep_have_a_name_each() -> None:
    assert _arm_names([["x=a"], ["x=b"]]) == ["a", "b"]
    assert _arm_names([["x=a/b"], ["x=a.b"], ["x=c"]]) == ["a.b 1", "a.b 2", "c"]


def test_trials_that_go_on_are_named_by_their_steps(tmp_path: Path, journal: Path) -> None:
    store = Store(tmp_path / "runs")
    store.prepare()
    trials = [fakes.trial(journal, seed=seed) for seed in range(5)]
    assert resume_line(trials, store) is None
    steps, statuses = (150, 300, 450, None, 700), (KILLED, KILLED, FINISHED, KILLED, record.FAILED)
    for trial, step, status in zip(trials, steps, statuses, strict=True):
        folder = store.directory(trial.id) / "checkpoints"
        folder.mkdir(parents=True)
        store.write(Record(trial.id, status))
        if step is not None:
            torch.save({"global_step": step}, folder / "last.ckpt")
    assert resume_line(trials[1:], store) == "1 trial resumes, at step 300"
    assert resume_line(trials, store) == "2 trials resume, at steps 150 and 300"
