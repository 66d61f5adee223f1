"""Trains a trial on several devices: torchrun starts its ranks, and ends all of them where one fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from swapformer.paths import python_environment
from swapformer.training.nodes import meeting
from swapformer.training.signals import StopRequest, stop_on_signals

POLL = 0.1
"""Seconds between looks at torchrun."""
CONFIG, FAILURES = "config.json", "failures.json"
PATIENCE = 25.0
"""Seconds: torchrun asks the other ranks to end by SIGTERM, and kills those that still run 30 seconds later."""

Report = dict[str, Any]


def pid_file(folder: Path, rank: int) -> Path:
    """The file that holds the process of a rank, by its number on this node."""
    return folder / f"pid-{rank}"


def report_file(folder: Path, rank: int) -> Path:
    """The file of a rank's report: its outcome or its error."""
    return folder / f"report-{rank}.json"


def read(path: Path) -> Any:
    """The values of a file of JSON; None where it is missing or was cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def run_ranks(task: Mapping[str, Any], directory: Path, trainer: Mapping[str, Any]) -> Report:
    """Train with one process for each device; return the first one's report: an `outcome`, or an `error` and `reason`.

    With several nodes these are the processes on this one, which join those on the others. A rank that dies ends all of
    them; the outcome is then `killed`, and the last checkpoint stays. A rank that hangs is ended by torch's own limits,
    or by that of the trial. A stop is handed on to the ranks. Before all of them have started it ends them, since they
    have no outcome yet. The ranks end when this process does, and leave no file but the trial's own.
    """
    with (
        tempfile.TemporaryDirectory(prefix="swapformer-ranks-", ignore_cleanup_errors=True) as name,
        stop_on_signals() as stop,
    ):
        folder, count, nodes = Path(name), int(trainer["devices"]), int(trainer.get("nodes", 1))
        place = meeting(nodes) if nodes > 1 else None
        (folder / CONFIG).write_text(json.dumps(task), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "swapformer.training.torchrun_agent", str(folder)),
            *(("--standalone", "--local-addr=127.0.0.1", "--nnodes=1") if place is None else place.arguments),
            *(f"--nproc-per-node={count}", "--max-restarts=0", f"--log-dir={folder / 'log'}"),
            *("-m", "swapformer.training.rank", str(folder), str(directory.absolute())),
        ]
        # torchrun and its ranks end when the pipe on their standard input is closed. They have a session of their own:
        # a Ctrl-C reaches this process only, which hands it on.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=_environment(trainer["threads"], place is None or place.local),
            start_new_session=True,
        )
        try:
            status = _wait(process, folder, count, stop)
        finally:
            process.kill()
            for pid in _pids(folder, count):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            process.communicate()
        return joint_report(folder, count, status, stop.requested)


def _environment(threads: int, local: bool) -> dict[str, str]:
    """The environment of the ranks: this process's modules, so many threads, and talk within this machine if `local`.

    Variables that the user has set for another torchrun are left out.
    """
    inherited = {name: value for name, value in python_environment().items() if not name.startswith("PET_")}
    found = {**inherited, "OMP_NUM_THREADS": str(threads)}
    if local and Path("/sys/class/net/lo").exists():
        found.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return found


def _pids(folder: Path, count: int) -> list[int]:
    """The processes of the ranks that have started."""
    return [pid for rank in range(count) if (pid := read(pid_file(folder, rank))) is not None]


def _wait(process: subprocess.Popen[bytes], folder: Path, count: int, stop: StopRequest) -> int | None:
    """Wait for torchrun, and hand a stop on to its ranks.

    Returns its exit status; None if a stop came before all ranks had started.
    """
    handed_on = False
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(POLL)
        if stop.requested and not handed_on:
            if len(pids := _pids(folder, count)) < count:
                return None
            handed_on = True
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.Signals[stop.requested])


def joint_report(folder: Path, count: int, status: int | None, stopped: str | None) -> Report:
    """The joint result of the ranks.

    A rank that died of a signal is the cause of what happened to the others, unless torchrun sent it; else the first
    error is, unless it only says that another rank was lost; else rank 0's report counts, if all ranks have one.
    """
    found = [report for rank in range(count) if (report := read(report_file(folder, rank))) is not None]
    lost = any(report.get("error") == "lost" for report in found)
    found = [report for report in found if report.get("error") != "lost"]
    errors = [report for report in found if "error" in report]
    ended = read(folder / FAILURES) or {"exits": {}, "at": 0.0}
    signals = {rank: signal.Signals(-code) for rank, code in sorted(ended["exits"].items()) if code < 0}
    dead = [f"rank {rank} died of {each.name}" for rank, each in signals.items() if each != signal.SIGTERM]
    if errors and (not dead or ended["at"] - min(one["at"] for one in errors) > PATIENCE):
        return min(errors, key=lambda one: (one["error"] == "failed", one["at"]))
    if len(found) == count and not dead:
        return dict(found[0])
    if stopped is not None:
        return {"outcome": {"status": "interrupted", "reason": f"stopped by {stopped}"}}
    why = ", ".join(dead) or ("another rank was lost" if lost else f"torchrun ended with exit status {status}")
    return {"outcome": {"status": "killed", "reason": f"{why}; all were ended"}}
