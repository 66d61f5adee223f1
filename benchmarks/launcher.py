"""Whole trials: the launcher against cold commands, the fixed cost of a trial, and the cost of recording it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.answers import answer_times
from benchmarks.measurement import Ratio, compare, in_turn
from swapformer.errors import UsageError
from swapformer.results.record import FINISHED
from swapformer.results.store import Store
from swapformer.study.config.compose import check, compose
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.machine import cores
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Config, Trial, execute
from swapformer.study.plan import make_trial
from swapformer.training.fit import fit

NEVER = 1_000_000_000
_NANO = ["model/size=nano", "task=text", "eval.every=200", "eval.batches=2", "eval.final_batches=8"]


def trial_of_each_seed(overrides: Sequence[str], count: int) -> list[Trial]:
    """A trial for each of the first `count` seeds."""
    made = []
    for seed in range(count):
        config = compose([*overrides, f"seed={seed}"])
        check(config)
        made.append(make_trial(config))
    return made


def _launch(trials: list[Trial], slots: int | None = None) -> float:
    """Seconds that the launcher takes for all of them in an empty store.

    Raises RuntimeError if one of them did not finish.
    """
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        store.prepare()
        since = time.perf_counter()
        LocalLauncher(store, current_provenance(), slots)(trials)
        seconds = time.perf_counter() - since
        if any((record := store.read(trial.id)) is None or record.status != "finished" for trial in trials):
            raise RuntimeError("not every trial of the launcher's side finished; nothing was measured")
    return seconds


def fold_throughput(overrides: Sequence[str], trials: int, steps: int, rounds: int) -> list[Ratio]:
    """Seconds of the local launcher for the same seeds: as one batch for each core, over one trial at a time for each.

    Raises UsageError for fewer than two trials for each core.
    """
    together = trials // cores()
    if together < 2:
        raise UsageError(
            f"--trials must be at least {2 * cores()}, two for each of {cores()} cores, but it is {trials}"
        )
    made = [*overrides, f"budget.steps={steps}", f"eval.every={steps}", "eval.batches=2", "eval.final_batches=8"]
    folded = trial_of_each_seed([*made, f"trainer.fold={together}"], trials)
    single = trial_of_each_seed(made, trials)
    pairs = in_turn(lambda: _launch(folded), lambda: _launch(single), rounds)
    name = f"{trials} trials of {steps} steps, folded by {together} / alone, {cores()} at a time"
    return [compare(name, "s", pairs)]


def _cold(trials: list[Trial], *overrides: str) -> float:
    """Seconds that `swapformer train` takes for all of them, one after the other, each with every core.

    Raises RuntimeError if one of them did not finish.
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


def throughput(trials: int, steps: int, rounds: int) -> list[Ratio]:
    """Trials per second of the launcher over trials per second of cold commands in sequence."""
    length = [f"budget.steps={steps}", f"schedule.warmup_steps={min(50, steps // 4)}"]
    made = trial_of_each_seed([*_NANO, *length], trials)
    pairs = in_turn(lambda: trials / _launch(made), lambda: trials / _cold(made, *length), rounds)
    each = 2 / median(ours for ours, _ in pairs)
    goal = 2.3 if each < 6 else 1.5
    name = f"launcher / cold starts in sequence, {trials} trials of about {each:.0f} s, trials per second"
    return [compare(name, "1/s", pairs, f"≥ {goal}", lambda ratio: ratio >= goal)]


def start_times(what: Sequence[str], rounds: int) -> Iterator[Ratio]:
    """The fixed cost of a trial, the time of the command's help, and the time that other commands take to answer."""
    chosen = what or ("trial", "help", "answers")
    if "trial" in chosen:
        yield _fixed_cost(rounds)
    if "help" in chosen:
        yield _help_time(rounds)
    if "answers" in chosen:
        yield from answer_times(rounds)


def _fixed_cost(rounds: int) -> Ratio:
    """The time of a trial of one step after the first, over that of a cold command, one trial at a time."""
    few, many = 1, 11
    short = ["budget.steps=1", "schedule.warmup_steps=0", "eval.every=100", "eval.final_batches=1"]
    trials = trial_of_each_seed([*_NANO, *short], many)
    _launch(trials[:few], slots=1)  # the fork server starts once
    pairs = []
    for _ in range(rounds):
        one = _launch(trials[:few], slots=1)
        pairs.append(((_launch(trials, slots=1) - one) / (many - few), _cold(trials[:few], *short)))
    target = "≤ 0.5 s a trial"
    return compare(
        "fixed cost of a trial after the first / a cold command", "s", pairs, target, lambda _: _under(pairs, 0.5)
    )


def _help_time(rounds: int) -> Ratio:
    """The time of `swapformer --help` over that of starting Python."""

    def seconds(*arguments: str) -> float:
        since = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - since

    pairs = in_turn(lambda: seconds("-m", "swapformer.cli", "--help"), lambda: seconds("-c", ""), rounds)
    return compare("swapformer --help / python -c ''", "s", pairs, "< 1 s", lambda _: _under(pairs, 1.0))


def _under(pairs: list[tuple[float, float]], bound: float) -> bool:
    return median(ours for ours, _ in pairs) <= bound


def record_overhead(overrides: Sequence[str], steps: int, rounds: int) -> list[Ratio]:
    """The time of a trial for each of its steps, start and end included, over that of a training that stores nothing.

    Both train and evaluate alike. The second has no record, lock, heartbeat, history or probe.
    """
    config = compose([*overrides, f"budget.steps={steps}"])
    bare = {**config, "log_every": NEVER, "probes": {}}
    pairs = in_turn(lambda: _recorded_trial(config) / steps, lambda: _bare_training(bare) / steps, rounds)
    name = f"step of a trial with record, history and probes ({', '.join(config['probes']) or 'none'}) / without"
    return [compare(name, "ms", pairs, "≤ 1.02", lambda ratio: ratio <= 1.02)]


PROBES = ("head_similarity", "gradient_norms", "activation_moments")
"""The probes whose cost is measured."""


def probe_overhead(overrides: Sequence[str], steps: int, rounds: int) -> list[Ratio]:
    """The time of a trial with three probes at five moments, start and end included, over that of one without."""
    places = [10, steps // 10, steps // 2]
    moments = f"[init,{','.join(map(str, places))},end]"
    asked = [f"probes=[{','.join(PROBES)}]", *(f"probes.{name}.at={moments}" for name in PROBES)]
    budget = f"budget.steps={steps}"
    watched, plain = compose([*overrides, budget, *asked]), compose([*overrides, budget])
    check(watched)
    pairs = in_turn(lambda: _recorded_trial(watched) / steps, lambda: _recorded_trial(plain) / steps, rounds)
    name = f"step of a trial with {', '.join(PROBES)} at {moments} / without"
    return [compare(name, "ms", pairs, "≤ 1.10", lambda ratio: ratio <= 1.10)]


def _recorded_trial(config: Config) -> float:
    """Milliseconds of a trial in an empty store. Raises RuntimeError if it did not finish."""
    with tempfile.TemporaryDirectory() as folder:
        store, trial = Store(folder), make_trial(config)
        store.prepare()
        since = time.perf_counter()
        record = execute(trial, store, current_provenance())
        if record is None or record.status != FINISHED:
            raise RuntimeError("the trial did not finish; nothing was measured")
        return 1000 * (time.perf_counter() - since)


def _bare_training(config: Config) -> float:
    with tempfile.TemporaryDirectory() as folder:
        since = time.perf_counter()
        fit(config, Path(folder))
        return 1000 * (time.perf_counter() - since)
