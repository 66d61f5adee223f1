"""What the local launcher saves: many trials through it, against each trial as a command of its own, in sequence."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.trials import one_of_each_seed
from swapformer.results.store import Store
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Trial
from swapformer.tools.cost.ratio import Ratio, compare, in_turn

_NANO = ["model/size=nano", "task=text", "eval.every=200", "eval.batches=2", "eval.final_batches=8"]


def _launch(trials: list[Trial], slots: int | None = None) -> float:
    """Seconds that the launcher takes for all of them in an empty store.

    Raises:
        RuntimeError: if one of them did not finish.
    """
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        store.prepare()
        since = time.perf_counter()
        LocalLauncher(store, current_provenance(), slots)(trials)
        seconds = time.perf_counter() - since
        _require_finished(store, trials)
    return seconds


def _cold(trials: list[Trial], *overrides: str) -> float:
    """Seconds that `swapformer train` takes for all of them, one after the other, each with every core.

    Raises:
        RuntimeError: if one of them did not finish.
    """
    with tempfile.TemporaryDirectory() as directory:
        since = time.perf_counter()
        for trial in trials:
            own = [f"seed={trial.config['seed']}", f"trainer.threads={os.cpu_count()}", f"runs_dir={directory}"]
            command = [sys.executable, "-m", "swapformer.cli", "train", *_NANO, *overrides, *own]
            subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - since
        if sum(record.status == "finished" for record in Store(Path(directory)).records()) != len(trials):
            raise RuntimeError("not every trial of the cold side finished; nothing was measured")
    return seconds


def _require_finished(store: Store, trials: list[Trial]) -> None:
    if any((record := store.read(trial.id)) is None or record.status != "finished" for trial in trials):
        raise RuntimeError("not every trial of the launcher's side finished; nothing was measured")


def throughput(count: int, steps: int, rounds: int) -> Ratio:
    """Trials per second through the launcher over trials per second of cold commands in sequence."""
    length = [f"budget.steps={steps}", f"schedule.warmup_steps={min(50, steps // 4)}"]
    trials = one_of_each_seed([*_NANO, *length], count)
    pairs = in_turn(lambda: count / _launch(trials), lambda: count / _cold(trials, *length), rounds)
    each = 2 / median(ours for ours, _ in pairs)
    goal = 2.3 if each < 6 else 1.5
    name = f"launcher / cold starts in sequence, {count} trials of about {each:.0f} s, trials per second"
    return compare(name, "1/s", pairs, f"≥ {goal}", lambda ratio: ratio >= goal)


def fixed_cost(rounds: int) -> Ratio:
    """What a trial costs beside its steps, after the first, against the first: trials of one step, one at a time."""
    few, many = 1, 11
    short = ["budget.steps=1", "schedule.warmup_steps=0", "eval.final_batches=1"]
    trials = one_of_each_seed([*_NANO, *short], many)
    _launch(trials[:few], slots=1)  # the fork server starts once
    pairs = []
    for _ in range(rounds):
        one = _launch(trials[:few], slots=1)
        pairs.append(((_launch(trials, slots=1) - one) / (many - few), _cold(trials[:few], *short)))
    target = "≤ 0.5 s a trial"
    return compare(
        "fixed cost of a trial after the first / a cold command", "s", pairs, target, lambda _: _under(pairs, 0.5)
    )


def help_time(rounds: int) -> Ratio:
    """`swapformer --help` against starting Python alone."""

    def seconds(*arguments: str) -> float:
        since = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - since

    pairs = in_turn(lambda: seconds("-m", "swapformer.cli", "--help"), lambda: seconds("-c", ""), rounds)
    return compare("swapformer --help / python -c ''", "s", pairs, "< 1 s", lambda _: _under(pairs, 1.0))


def _under(pairs: list[tuple[float, float]], bound: float) -> bool:
    return median(ours for ours, _ in pairs) <= bound
