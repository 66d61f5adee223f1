"""The ranks of a trial: what they come to together, and that they end with the process that started them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.training import rank, torchrun
from swapformer.training.signals import StopRequest

RANK = """
import os, sys, time
from pathlib import Path
from swapformer.training.torchrun import pid_file
from swapformer.training.torchrun_agent import end_with_parent
folder = Path(sys.argv[1])
end_with_parent(folder)
pid_file(folder, int(os.environ["RANK"])).write_text(str(os.getpid()))
time.sleep(60)
"""


def says(place: Path, rank: int, **values: Any) -> None:
    torchrun.report_file(place, rank).write_text(json.dumps(values))


def failed(place: Path, exits: dict[int, int], at: float = 3.0) -> None:
    (place / torchrun.FAILURES).write_text(json.dumps({"exits": exits, "at": at}))


def outcome(place: Path, status: int = 1, stopped: str | None = None) -> tuple[str, str]:
    found = torchrun.joint_report(place, 2, status, stopped)["outcome"]
    return found["status"], found.get("reason", "")


def test_the_report_of_rank_0_is_the_trials(tmp_path: Path) -> None:
    says(tmp_path, 0, outcome={"status": "finished"}, at=2.0)
    says(tmp_path, 1, outcome={"status": "interrupted"}, at=1.0)
    assert outcome(tmp_path, 0) == ("finished", "")


def test_a_rank_that_died_of_a_signal_is_the_cause_of_the_others_errors(tmp_path: Path) -> None:
    says(tmp_path, 0, error="failed", reason="connection closed by peer", at=2.0)
    failed(tmp_path, {0: 1, 1: -9})
    assert outcome(tmp_path) == ("killed", "rank 1 died of SIGKILL; all were ended")


def test_the_first_error_is_believed_since_others_follow_from_it(tmp_path: Path) -> None:
    says(tmp_path, 0, error="failed", reason="connection closed by peer", at=2.0)
    says(tmp_path, 1, error="failed", reason="out of memory", at=1.0)
    failed(tmp_path, {0: 1, 1: 1})
    assert torchrun.joint_report(tmp_path, 2, 1, None)["reason"] == "out of memory"
    says(tmp_path, 0, error="usage", reason="the data have changed", at=3.0)
    assert torchrun.joint_report(tmp_path, 2, 1, None)["reason"] == "the data have changed"


def test_a_lost_node_is_a_death_and_no_error_of_the_trial(tmp_path: Path) -> None:
    says(tmp_path, 0, error="lost", reason="RuntimeError: [gloo/transport] Connection reset by peer", at=2.0)
    says(tmp_path, 1, error="lost", reason="RuntimeError: [gloo/transport] Connection reset by peer", at=2.0)
    failed(tmp_path, {0: 1, 1: 1})
    assert outcome(tmp_path) == ("killed", "another rank was lost; all were ended")
    says(tmp_path, 1, error="failed", reason="out of memory", at=3.0)
    assert torchrun.joint_report(tmp_path, 2, 1, None)["reason"] == "out of memory"


def test_an_error_is_told_though_torchrun_had_to_end_the_other_rank(tmp_path: Path) -> None:
    says(tmp_path, 0, error="failed", reason="out of memory", at=1.0)
    failed(tmp_path, {0: 1, 1: -15})
    assert torchrun.joint_report(tmp_path, 2, 1, None)["reason"] == "out of memory"
    failed(tmp_path, {0: 1, 1: -9}, at=31.5)
    assert torchrun.joint_report(tmp_path, 2, 1, None)["reason"] == "out of memory"


def test_ranks_that_left_no_report_were_killed_or_after_a_stop_interrupted(tmp_path: Path) -> None:
    assert outcome(tmp_path) == ("killed", "torchrun ended with exit status 1; all were ended")
    torchrun.report_file(tmp_path, 0).write_text('{"outcome": {"sta')  # cut off
    assert outcome(tmp_path)[0] == "killed"
    assert outcome(tmp_path, stopped="SIGTERM") == ("interrupted", "stopped by SIGTERM")


def test_what_the_user_has_set_for_another_torchrun_is_not_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "2")
    found = torchrun._environment(3, local=True)
    assert not [name for name in found if name.startswith("PET_")]
    assert (found["OMP_NUM_THREADS"], found["PATH"]) == ("3", os.environ["PATH"])


def test_a_stop_before_all_ranks_have_started_waits_for_none_of_them(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.requested = "SIGTERM"
    torchrun.pid_file(tmp_path, 0).write_text("1")
    with subprocess.Popen(["sleep", "60"]) as process:
        assert torchrun._wait(process, tmp_path, 2, stop) is None
        process.kill()


@contextmanager
def torchrun_of(place: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """torchrun of two processes as a trial starts it, in a folder of theirs."""
    place.mkdir()
    words = [sys.executable, "-m", "swapformer.training.torchrun_agent", str(place), "--standalone"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words += ["--nproc-per-node=2", "--no-python", sys.executable, "-c", *command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds ranks in /proc")
def test_torchrun_and_its_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with torchrun_of(place, RANK, str(place)) as process:
        until = time.monotonic() + 60
        while len(pids := torchrun._pids(place, 2)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(pids) == 2 and all(map(running, pids))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 1
        while any(map(running, pids)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(running, pids)) and not place.exists()


def test_torchrun_says_which_rank_died_of_what(tmp_path: Path) -> None:
    place = tmp_path / "place"
    kills = "import os, time; os.environ['RANK'] == '1' and os.kill(os.getpid(), 9); time.sleep(60)"
    with torchrun_of(place, kills) as process:
        assert process.wait(60) == 1
    assert outcome(place) == ("killed", "rank 1 died of SIGKILL; all were ended")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AssertionError(), "failed"),
        (RuntimeError("two\nlines"), "failed"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection reset by peer"), "lost"),
        (torch.distributed.DistNetworkError("closed"), "lost"),
    ],
)
def test_an_error_says_whether_another_rank_was_lost(
    error: Exception, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: object) -> None:
        raise error

    monkeypatch.setattr("swapformer.training.fit.train", raises)
    found = rank._train({"config": {}, "final": True}, tmp_path)
    assert found == {"error": kind, "reason": f"{type(error).__name__}: {error}"}
