"""Studies side by side: every study is answered once, none is lost by another, and Ctrl-C ends them all."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.tools.side_by_side import side_by_side


def told(path: Path, number: int) -> None:
    """A study that says what it is; the names of some make it end otherwise."""
    print(f"printed {path}")
    print(f"said {path}", file=sys.stderr)
    if path.name == "wrong":
        raise UsageError("it must be right")
    if path.name == "bug":
        raise ZeroDivisionError
    if path.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if path.name == "interrupted":
        raise KeyboardInterrupt
    if path.name == "long":
        time.sleep(60)


def test_each_study_is_answered_once_with_what_it_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    studies = {name: Path(name) for name in ("a", "wrong", "bug", "b", "c")}
    found = {each.name: each for each in side_by_side(studies, told, 2, debug=False)}
    assert {name: each.status for name, each in found.items()} == {"a": 0, "wrong": 2, "bug": 1, "b": 0, "c": 0}
    for name, each in found.items():
        assert each.printed == f"printed {name}\n" and each.said.startswith(f"said {name}\n")
    assert "error: it must be right" in found["wrong"].said and "ZeroDivisionError" in found["bug"].said


def test_an_interrupted_study_ends_the_others() -> None:
    since = time.monotonic()
    found = list(side_by_side({name: Path(name) for name in ("long", "interrupted", "never")}, told, 2, debug=False))
    assert [each.name for each in found] == ["interrupted"] and found[0].interrupted
    assert time.monotonic() - since < 50, "the long one was stopped"


def test_a_worker_that_is_killed_is_said() -> None:
    with pytest.raises(UsageError, match="a worker of --studies was killed"):
        list(side_by_side({name: Path(name) for name in ("killed", "a")}, told, 2, debug=False))


def test_a_launcher_is_of_one_study_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "07_position_encodings", "--studies", "2", "--time-limit", "5"]) == 2
    assert "shares this machine out among studies by itself, but 'hydra.launcher.time_limit" in capsys.readouterr().err


def test_one_study_is_not_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "07_position_encodings/copy", "--studies", "2"]) == 2
    assert "--studies is of a folder with several studies" in capsys.readouterr().err
