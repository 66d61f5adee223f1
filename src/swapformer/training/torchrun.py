"""Trains a trial on several devices: starts torchrun for it, and watches its ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer.paths import python_environment
from swapformer.training import heartbeat
from swapformer.training.signals import StopRequest, stop_on_signals

POLL = 0.1
"""Seconds between looks at the ranks."""
START = 600.0
"""Seconds that a rank has for its first batch (imports, the process group, weights), and for one that is compiled."""
SILENT = 45.0
"""Seconds that a rank may be silent while it starts: an import may keep the thread that speaks from running."""
LAST = 10.0
"""Seconds that the other ranks have once the first has come to an end, or to an error."""

Report = dict[str, Any]


def run_ranks(task: Mapping[str, Any], directory: Path, trainer: Mapping[str, Any]) -> Report:
    """Train with one process for each device; return rank 0's report: an `outcome`, or an `error` and its `reason`.

    A rank that dies without a word, or that has been through no batch for `trainer.heartbeat` seconds, ends all of
    them; the outcome is then `killed`, and what the last checkpoint holds is not lost. A stop is handed on to the
    ranks; before all of them have started it ends them, since they have no outcome yet. No process and no file
    but the trial's own is left behind.
    """
    with (
        tempfile.TemporaryDirectory(prefix="swapformer-ranks-", ignore_cleanup_errors=True) as name,
        stop_on_signals() as stop,
        _launch(task, Path(name), directory, trainer) as process,
    ):
        ranks = [_Rank(Path(name), number) for number in range(trainer["devices"])]
        return _watch(process, ranks, stop, trainer)


@contextmanager
def _launch(
    task: Mapping[str, Any], folder: Path, directory: Path, trainer: Mapping[str, Any]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start torchrun and its ranks; all of them are ended afterwards."""
    heartbeat.write(folder / heartbeat.CONFIG, task)
    os.mkfifo(folder / heartbeat.PIPE)
    pipe = os.open(folder / heartbeat.PIPE, os.O_RDWR)  # for both ways, since it waits for a reader otherwise
    command = [
        *(sys.executable, "-m", "swapformer.training.torchrun_agent", str(folder)),
        *("--standalone", "--local-addr=127.0.0.1", "--nnodes=1", f"--nproc-per-node={trainer['devices']}"),
        *("--max-restarts=0", f"--log-dir={folder / 'log'}"),
        *("-m", "swapformer.training.rank", str(folder), str(directory.absolute())),
    ]
    try:
        # In a session of its own: a Ctrl-C reaches this process alone, which hands it on.
        with subprocess.Popen(command, env=_environment(trainer["threads"]), start_new_session=True) as process:
            try:
                yield process
            finally:
                _kill(process, folder, trainer["devices"])
    finally:
        os.close(pipe)  # what still starts will find it closed, and end


def _environment(threads: int) -> dict[str, str]:
    """The environment of the ranks: this process's modules, so many threads, and talk within this machine.

    What the user has set for a torchrun of their own is not for this one.
    """
    inherited = {name: value for name, value in python_environment().items() if not name.startswith("PET_")}
    found = {**inherited, "OMP_NUM_THREADS": str(threads)}
    found.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # ddp warns of every model without unused parameters
    if Path("/sys/class/net/lo").exists():
        found.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return found


def _kill(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """End torchrun and then its ranks, which have sessions of their own."""
    process.kill()
    for number in range(count):
        if (found := heartbeat.read(heartbeat.heartbeat_file(folder, number))) is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(found["pid"], signal.SIGKILL)


@dataclass
class _Rank:
    """The state of a rank, as its files tell.

    Attributes:
        pid: of its process; None before its first sign of life.
        report: its outcome or its error; None while it runs.
        last_beat, last_batch: when it last gave a sign of life, and when it had last been through a batch.
    """

    folder: Path
    number: int
    pid: int | None = None
    report: Report | None = None
    beats: int = -1
    batches: int = 0
    last_beat: float = field(default_factory=time.monotonic)
    last_batch: float = field(default_factory=time.monotonic)

    def update(self) -> None:
        """Read what it has written. What it came to is read last, so that it is known of one that is found gone."""
        found = heartbeat.read(heartbeat.heartbeat_file(self.folder, self.number))
        if found is not None:
            self.pid, now = found["pid"], time.monotonic()
            if found["beats"] != self.beats:
                self.beats, self.last_beat = found["beats"], now
            if found["batches"] != self.batches:
                self.batches, self.last_batch = found["batches"], now

    @property
    def is_alive(self) -> bool:
        """Whether its process is there; not known before its first sign of life."""
        if self.pid is None:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def failure(self, limit: float, compiles: bool = False, begun: bool = False) -> str | None:
        """Why it is taken for dead or hung by a limit in seconds; None if it is not.

        `begun` says that some rank has been through a batch, and so all have.
        """
        if self.report is not None:
            return None
        gone = self.pid is not None and not self.is_alive
        self.report = heartbeat.read(heartbeat.report_file(self.folder, self.number))
        if self.report is not None:
            return None
        now = time.monotonic()
        if gone:
            return f"rank {self.number} (process {self.pid}) died without a word"
        silent = limit if self.batches or begun else max(limit, SILENT)
        if self.pid is not None and now - self.last_beat > silent:
            return f"rank {self.number} (process {self.pid}) gave no sign of life for {silent:g} seconds"
        patience = limit if self.batches and not compiles else max(limit, START)
        # A rank that stopped stops the others: it is named first.
        if now - self.last_batch > patience + 2 * heartbeat.PERIOD:
            return f"rank {self.number} was through no batch for {now - self.last_batch:.0f} seconds"
        return None


def _watch(
    process: subprocess.Popen[bytes], ranks: Sequence[_Rank], stop: StopRequest, trainer: Mapping[str, Any]
) -> Report:
    """Wait for the ranks; return their joint report, or the outcome after one of them had to be ended."""
    limit, compiles = trainer["heartbeat"], trainer["compile"]
    handed_on = False
    ending: float | None = None
    while True:
        ended = process.poll()
        for rank in ranks:
            rank.update()
        alive = [rank for rank in ranks if rank.is_alive]
        begun = any(rank.batches for rank in ranks)
        found = [rank.failure(limit, compiles, begun) for rank in ranks]
        failures = [failure for failure in found if failure is not None]
        reports = [rank.report for rank in ranks if rank.report is not None]
        if failures or (ended is not None and len(reports) < len(ranks)):
            return _abandon(stop, "; ".join(failures) or f"torchrun ended with exit status {ended}")
        if len(reports) == len(ranks) and not alive:
            return _joint_report(reports)
        if reports:
            ending = time.monotonic() if ending is None else ending
            if time.monotonic() - ending > LAST and (
                ranks[0].report is not None or any("error" in one for one in reports)
            ):
                return _joint_report(reports)  # rank 0 alone writes files: while it may still do so, its limits decide
        if stop.requested and not handed_on:
            started = [rank.pid for rank in ranks if rank.pid is not None]
            if len(started) < len(ranks):
                return _abandon(stop, "some rank had not started")
            handed_on = True
            for pid in started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.Signals[stop.requested])
        time.sleep(POLL)


def _abandon(stop: StopRequest, why: str) -> Report:
    """The outcome of a training whose ranks were ended: interrupted if it was asked to stop."""
    if stop.requested is not None:
        return {"outcome": {"status": "interrupted", "reason": f"stopped by {stop.requested}", "notes": []}}
    return {"outcome": {"status": "killed", "reason": f"{why}; all were ended", "notes": []}}


def _joint_report(reports: Sequence[Report]) -> Report:
    """The first error of any rank, which the others' may follow from; else rank 0's report."""
    errors = [one for one in reports if "error" in one]
    return min(errors, key=lambda one: (one["error"] == "failed", one["at"])) if errors else reports[0]
