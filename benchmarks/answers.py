"""How long commands take to answer, over `import torch` on the same machine: they take turns."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measurement import Ratio, compare, in_turn

STUDY = ("07_position_encodings/copy", "scale=smoke")
"""A study of seven arms and two seeds that takes a minute to train."""
_ARMS = "baseline: a\narms: {a: [], b: [model/position=alibi]}\nseeds: 1\n"
_ONE_STEP = ["task=copy", "budget.steps=1", "schedule.warmup_steps=0", "eval.batches=1", "eval.final_batches=1"]


@dataclass(frozen=True)
class _Command:
    """A command, what the project asks of it as a multiple of `import torch`, and how it must end.

    `status`: of its exit. `says`: what it must say among its errors.
    """

    name: str
    words: Sequence[str]
    most: float
    status: int = 0
    fresh: bool = False
    says: str = ""


def answer_times(rounds: int) -> Iterator[Ratio]:
    """The time of each command over that of `import torch`.

    Raises:
        RuntimeError: if a command does not end as it should.
    """
    with tempfile.TemporaryDirectory() as place:
        for _ in range(2):  # the first trains; what nothing more follows from is kept by the second at the latest
            _seconds(_Command("", ["study", *STUDY], 0), place)
            time.sleep(3)  # files that changed a moment ago are not trusted
        for command in _commands(Path(place)):
            pairs = in_turn(partial(_seconds, command, place), _import_torch, rounds)
            name, target = f"{command.name} / import torch", f"≤ {command.most}"
            yield compare(name, "s", pairs, target, command.most.__ge__)


def _commands(place: Path) -> Iterator[_Command]:
    (place / "typo.yaml").write_text(f"{_ARMS}overrides: [task=copy]\nmetrics: [val/los]\n")
    (place / "key.yaml").write_text(f"{_ARMS}metric: [val/loss]\n")
    (place / "one_step.yaml").write_text(f"{_ARMS.replace(', b: [model/position=alibi]', '')}overrides: {_ONE_STEP}\n")
    yield _Command("a finished study with its report", ["study", *STUDY], 1.5)
    yield _Command("a finished study with --no-report", ["study", *STUDY, "--no-report"], 1.0)
    yield _Command("report --json", ["report", ".".join((STUDY[0], "smoke")), "--json"], 0.5)
    yield _Command("status", ["status", ".".join((STUDY[0], "smoke"))], 0.5)
    yield _Command("trials", ["trials"], 0.5)
    yield _Command("a wrong scale", ["study", STUDY[0], "scale=none"], 0.5, 2, says="none")
    yield _Command("a wrong override", ["study", *STUDY, "optim.lrr=1"], 0.5, 2, says="optim.lrr")
    yield _Command("a wrong override of a trial", ["train", "optim.lrr=1"], 0.5, 2, says="optim.lrr")
    yield _Command("a wrong key of a study file", ["study", "key.yaml"], 0.5, 2, says="metric")
    yield _Command("a metric's typo", ["study", "typo.yaml"], 0.5, 2, says="no metric 'val/los'")
    name = "a study of one trial of one step, from the command to its end, which is beyond its first step"
    yield _Command(name, ["study", "one_step.yaml", "--no-report"], 2.5, fresh=True)


def _seconds(command: _Command, place: str) -> float:
    """Seconds that a command takes in a folder, or where it is to be `fresh`, in a store of its own."""
    with tempfile.TemporaryDirectory(dir=place) as empty:
        runs = f"runs_dir={empty if command.fresh else Path(place, 'runs')}"
        since = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "swapformer", *command.words, runs], cwd=place, capture_output=True, text=True
        )
        seconds = time.perf_counter() - since
    if done.returncode != command.status or command.says not in done.stderr:
        raise RuntimeError(f"swapformer {' '.join(command.words)} ended with {done.returncode}: {done.stderr[-500:]}")
    return seconds


def _import_torch() -> float:
    since = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - since
