"""The watch over the ranks of a trial: what it takes for dead or hung, and what it believes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swapformer.training import heartbeat, torchrun
from swapformer.training.signals import StopRequest

FOLLOWER = """
import sys, time
from pathlib import Path
from swapformer.training.heartbeat import RankHeartbeat
RankHeartbeat(Path(sys.argv[1]), 0).start()
print("started", flush=True)
time.sleep(60)
"""


CRAMPED = """
import resource, signal, sys, time
from pathlib import Path
from swapformer.training.heartbeat import RankHeartbeat
life = RankHeartbeat(Path(sys.argv[1]), 0)
life.start()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # no further file
resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))  # and none that grows
print("full", flush=True)
life.batches = 7
time.sleep(1.2)
life.report({"outcome": {"notes": ["x" * 30_000]}})
print("said", flush=True)
time.sleep(60)
"""


class Torchrun:
    """A process that has ended, or will have after so many looks at it."""

    def __init__(self, status: int | None = None, looks: int = 0) -> None:
        self.status, self.looks = status, looks

    def poll(self) -> int | None:
        self.looks -= 1
        return self.status if self.looks < 0 else None


def signs(place: Path, rank: int, beats: int, batches: int, pid: int | None = None) -> None:
    heartbeat.write(
        heartbeat.heartbeat_file(place, rank), {"pid": pid or os.getpid(), "beats": beats, "batches": batches}
    )


def says(place: Path, rank: int, **values: Any) -> None:
    heartbeat.write(heartbeat.report_file(place, rank), values)


def watched(place: Path, status: int | None, limit: float = 60, stop: StopRequest | None = None) -> dict[str, Any]:
    ranks = [torchrun._Rank(place, number) for number in range(2)]
    return torchrun._watch(Torchrun(status), ranks, stop or StopRequest(), {"heartbeat": limit, "compile": False})  # type: ignore[arg-type]


def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_rank_that_lives_but_gets_through_no_batch_is_hung(tmp_path: Path) -> None:
    rank, complaint, beats = torchrun._Rank(tmp_path, 0), None, 0
    while complaint is None and beats < 120:
        signs(tmp_path, 0, beats := beats + 1, 3)
        rank.update()
        complaint = rank.failure(0.3)
        time.sleep(0.02)
    assert complaint == "rank 0 was through no batch for 1 seconds"
    assert beats > 10


def test_a_rank_that_is_still_starting_has_longer(tmp_path: Path) -> None:
    rank = torchrun._Rank(tmp_path, 0)
    signs(tmp_path, 0, 1, 0)
    rank.update()
    time.sleep(0.05)
    assert rank.failure(0.01) is None
    signs(tmp_path, 0, 1, 1)
    rank.update()
    time.sleep(0.05)
    assert "gave no sign of life for 0.01 seconds" in (rank.failure(0.01) or "")


def test_a_rank_that_is_gone_without_a_word_ends_the_others(tmp_path: Path) -> None:
    signs(tmp_path, 0, 1, 1)
    signs(tmp_path, 1, 1, 1, pid=(lost := gone()))
    said = watched(tmp_path, None)
    assert said["outcome"]["status"] == "killed"
    assert said["outcome"]["reason"] == f"rank 1 (process {lost}) died without a word; all were ended"


def test_ranks_that_die_after_a_stop_were_interrupted(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.requested = "SIGTERM"
    signs(tmp_path, 0, 1, 1, pid=gone())
    assert watched(tmp_path, None, stop=stop)["outcome"]["status"] == "interrupted"


def test_a_stop_before_all_ranks_have_started_waits_for_none_of_them(tmp_path: Path) -> None:
    stop, process = StopRequest(), Torchrun(1, looks=20)
    stop.requested = "SIGTERM"
    signs(tmp_path, 0, 1, 0)
    ranks = [torchrun._Rank(tmp_path, number) for number in range(2)]
    said = torchrun._watch(process, ranks, stop, {"heartbeat": 60, "compile": False})  # type: ignore[arg-type]
    assert said["outcome"]["status"] == "interrupted" and said["outcome"]["reason"] == "stopped by SIGTERM"
    assert process.looks == 19, "at the first look"


def test_what_the_user_has_set_for_another_torchrun_is_not_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "2")
    found = torchrun._environment(3)
    assert not [name for name in found if name.startswith("PET_")]
    assert (found["OMP_NUM_THREADS"], found["PATH"]) == ("3", os.environ["PATH"])


def test_torchrun_that_ends_before_its_ranks_have_said_anything_is_a_killed_trial(tmp_path: Path) -> None:
    said = watched(tmp_path, 1)
    assert (said["outcome"]["status"], "torchrun ended with exit status 1" in said["outcome"]["reason"]) == (
        "killed",
        True,
    )


def test_the_first_error_is_believed_since_others_follow_from_it(tmp_path: Path) -> None:
    says(tmp_path, 0, error="failed", reason="connection closed by peer", at=2.0)
    says(tmp_path, 1, error="failed", reason="out of memory", at=1.0)
    assert watched(tmp_path, 0)["reason"] == "out of memory"
    says(tmp_path, 0, error="usage", reason="the data have changed", at=3.0)
    assert watched(tmp_path, 0)["reason"] == "the data have changed"


def test_an_outcome_counts_though_another_rank_does_not_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchrun, "LAST", 0.2)
    signs(tmp_path, 1, 1, 1)
    says(tmp_path, 0, outcome={"status": "finished"}, at=1.0)
    assert watched(tmp_path, None) == {"outcome": {"status": "finished"}, "at": 1.0}


def test_rank_0_may_write_its_files_for_longer_than_another_rank_takes_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchrun, "LAST", 0.2)
    signs(tmp_path, 0, 1, 1)
    says(tmp_path, 1, outcome={"status": "interrupted"}, at=1.0)
    late = threading.Timer(0.8, lambda: says(tmp_path, 0, outcome={"status": "finished"}, at=2.0))
    late.start()
    assert watched(tmp_path, None)["outcome"]["status"] == "finished"
    (tmp_path / "report-0").unlink()
    said = watched(tmp_path, None, limit=0.5)
    assert said["outcome"]["status"] == "killed" and "rank 0" in said["outcome"]["reason"]


@contextmanager
def started(place: Path, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process of Python that is given `place`, and the end of the pipe in it that its parent holds open."""
    place.mkdir()
    os.mkfifo(place / heartbeat.PIPE)
    pipe = os.open(place / heartbeat.PIPE, os.O_RDWR)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, env=environment) as process:
        try:
            yield process, pipe
        finally:
            process.kill()


def test_a_disk_that_fills_up_silences_no_rank(tmp_path: Path) -> None:
    """The limit on the size of files stands for the disk: nothing new can be written, and nothing longer."""
    with started(tmp_path / "place", "-c", CRAMPED, str(tmp_path / "place")) as (process, pipe):
        assert process.stdout is not None
        assert process.stdout.readline() == b"full\n"
        first = heartbeat.read(heartbeat.heartbeat_file(tmp_path / "place", 0))
        assert first is not None and first["pid"] == process.pid
        files = [heartbeat.heartbeat_file(tmp_path / "place", 0), heartbeat.report_file(tmp_path / "place", 0)]
        assert [file.stat().st_size for file in files] == [heartbeat.HEARTBEAT_SIZE, heartbeat.REPORT_SIZE]
        assert heartbeat.read(heartbeat.report_file(tmp_path / "place", 0)) is None, "it has come to nothing yet"
        assert process.stdout.readline() == b"said\n"
        last = heartbeat.read(heartbeat.heartbeat_file(tmp_path / "place", 0))
        assert last is not None and last["beats"] > first["beats"] and last["batches"] == 7
        said = heartbeat.read(heartbeat.report_file(tmp_path / "place", 0))
        assert said is not None and len(said["outcome"]["notes"][0]) == 30_000
        assert [file.stat().st_size for file in files] == [heartbeat.HEARTBEAT_SIZE, heartbeat.REPORT_SIZE], (
            "no room was asked for"
        )
        os.close(pipe)


def test_what_is_read_while_it_is_written_counts_for_nothing(tmp_path: Path) -> None:
    sheet, states = heartbeat.FixedFile(tmp_path / "sheet", 64), []
    for beats in (9, 10):
        sheet.write({"pid": 12, "beats": beats})
        states.append((tmp_path / "sheet").read_bytes())
    sheet.close()
    old, new = states
    assert len(old) == len(new) == 64
    found = []
    for cut in range(65):
        (tmp_path / "torn").write_bytes(new[:cut] + old[cut:])
        found.append(heartbeat.read(tmp_path / "torn"))
    told = [value for value, before in zip(found, [None, *found], strict=False) if value != before]
    assert told == [{"pid": 12, "beats": 9}, None, {"pid": 12, "beats": 10}]


def test_a_rank_ends_when_the_process_that_started_it_does(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with started(place, "-c", FOLLOWER, str(place)) as (process, pipe):
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        found = heartbeat.read(heartbeat.heartbeat_file(place, 0))
        assert found is not None and found["pid"] == process.pid
        os.close(pipe)
        assert process.wait(20) == 1
    assert not place.exists()


def test_torchrun_ends_with_the_process_that_started_it_though_no_rank_has_begun(tmp_path: Path) -> None:
    place = tmp_path / "place"
    waiting = ("--standalone", "--no-python", sys.executable, "-c", "import time; time.sleep(60)")
    with started(place, "-m", "swapformer.training.torchrun_agent", str(place), *waiting) as (process, pipe):
        os.close(pipe)
        assert process.wait(8) == 1
    assert not place.exists()
