"""What keeping a trial costs: lock, heartbeat, record, history and probes, against a training that leaves nothing."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from swapformer.results.record import FINISHED
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.expand import make_trial
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Config, execute
from swapformer.tools.cost.ratio import Ratio, compare, in_turn
from swapformer.training.fit import fit

NEVER = 1_000_000_000


def overhead(overrides: Sequence[str], steps: int, rounds: int) -> Ratio:
    """A kept trial's time for a step, all that comes before and after its steps included, over a bare training's.

    Both train and evaluate alike. The bare one has no record, lock, heartbeat, row of the history or probe.
    """
    config = compose([*overrides, f"budget.steps={steps}"])
    bare = {**config, "log_every": NEVER, "probes": {}}
    pairs = in_turn(lambda: _kept(config) / steps, lambda: _bare(bare) / steps, rounds)
    name = f"step of a trial with record, history and probes ({', '.join(config['probes']) or 'none'}) / without"
    return compare(name, "ms", pairs, "≤ 1.02", lambda ratio: ratio <= 1.02)


def _kept(config: Config) -> float:
    """Milliseconds of a trial in an empty store.

    Raises:
        RuntimeError: if it did not finish.
    """
    with tempfile.TemporaryDirectory() as folder:
        store, trial = Store(folder), make_trial(config)
        store.prepare()
        since = time.perf_counter()
        record = execute(trial, store, current_provenance())
        if record is None or record.status != FINISHED:
            raise RuntimeError("the trial did not finish; nothing was measured")
        return 1000 * (time.perf_counter() - since)


def _bare(config: Config) -> float:
    with tempfile.TemporaryDirectory() as folder:
        since = time.perf_counter()
        fit(config, Path(folder))
        return 1000 * (time.perf_counter() - since)
