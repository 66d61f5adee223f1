"""What the mirror costs a training: a step beside a process that shows the trial, against a step without one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.step import WARM_UP, Clock
from swapformer.errors import UsageError
from swapformer.mirror.follower import Target
from swapformer.mirror.process import Config, mirror_trials
from swapformer.results.record import RUNNING, Record
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.tools.cost.ratio import Ratio, compare, in_turn
from swapformer.training import fit as training

_TRIAL = "0" * 16


def overhead(overrides: Sequence[str], steps: int, rounds: int) -> Ratio:
    """A step of a trial that is mirrored offline to W&B, over a step of one that is not."""
    length = [f"budget.steps={steps}", "eval.every=100", "eval.batches=1", "checkpoint_every=1000000"]
    plain, shown = (compose([*overrides, *length, f"logger={name}"]) for name in ("none", "wandb"))
    shown["logger"] |= {"mode": "offline", "tags": []}
    pairs = in_turn(lambda: _step(shown), lambda: _step(plain), rounds)
    return compare("training step mirrored offline / not", "ms", pairs, "≤ 1.02", lambda ratio: ratio <= 1.02)


def _step(config: Config) -> float:
    """Milliseconds of a step, evaluations included: with a mirror, from when it shows the trial to the last step."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        with _shown(store, config):
            training.fit(dict(config), store.directory(_TRIAL), callbacks=[clock], final=False)
    return 1000 * clock.seconds / (config["budget"]["steps"] - WARM_UP)


@contextmanager
def _shown(store: Store, config: Config) -> Iterator[None]:
    """The trial's claim is held while the block runs, so the mirror takes it to be running.

    Raises:
        UsageError: if the mirror did not show it.
    """
    store.prepare()
    with mirror_trials([(Target(_TRIAL), config)], store, quiet=True), store.lock(_TRIAL):
        store.write(Record(_TRIAL, RUNNING, attempts=1))
        if config["logger"]:
            _wait_for(Path(store.runs_dir) / "mirror" / "wandb")
        yield


def _wait_for(folder: Path, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not list(folder.glob(f"offline-run-*/*{_TRIAL}.wandb")):
        if time.monotonic() > until:
            raise UsageError(f"the mirror showed nothing within {seconds:.0f} seconds; nothing was measured")
        time.sleep(0.1)
