"""The bar of a study says which trials run, how far they are and what they lose."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from study import fakes
from swapformer.results.history import HistoryWriter
from swapformer.results.store import Store
from swapformer.study.launch import progress
from swapformer.study.launch.progress import SHOWN, StudyProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_running_trials_are_named_with_step_and_newest_loss(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    trials = [fakes.trial(tmp_path / "journal", seed=seed) for seed in range(SHOWN + 2)]
    names = {trial.id: f"h8 seed {seed}" for seed, trial in enumerate(trials)}
    for step, trial in enumerate(trials[:1]):
        folder = store.directory(trial.id)
        folder.mkdir(parents=True)
        writer = HistoryWriter(folder, step)
        writer.write(40, {"train/loss": 2.34567})
        writer.write(50, {"val/loss": 9.0})
    shown = StudyProgress(trials, store, quiet=True, names=names).now(trials)
    assert shown[0] == "h8 seed 0: step 50, train/loss 2.346"
    assert shown[1] == "h8 seed 1: step 0" and shown[-1] == "and 2 more" and len(shown) == SHOWN + 1
    assert StudyProgress(trials, store, quiet=True).now(trials[:1])[0].startswith(trials[0].id)


def test_a_log_says_how_far_trials_are_though_none_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = fakes.trial(tmp_path / "journal")
    with StudyProgress([trial], Store(tmp_path / "runs")) as shown:
        shown.tick([trial])
        assert "running" not in capsys.readouterr().err
        monkeypatch.setattr(progress, "QUIET", 0.0)
        monkeypatch.setattr(progress, "LOOK", 0.0)
        shown.tick([trial])
        assert "0 of 1 trials done, 1 running; " in capsys.readouterr().err


def test_a_terminal_shows_them_below_the_bar_and_no_wider_than_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, stream = Store(tmp_path / "runs"), Terminal()
    trial = fakes.trial(tmp_path / "journal")
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "LOOK", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    with StudyProgress([trial], store, names={trial.id: "h8 " + "long " * 20}) as bar:
        bar.tick([trial])
        assert bar._bar is not None
        bar._bar.refresh()
    assert "h8 long long" in stream.getvalue() and "…" in stream.getvalue()
    assert "long " * 8 not in stream.getvalue()
