"""A clock that jumps: trials run while each look at the time of day is up to a day wrong."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from unittest.mock import patch

from benchmarks.measurement import Figure
from benchmarks.reliability.tiny_trials import differing, none_of, silence, trials, undisturbed
from swapformer.results.record import FAILED, Record
from swapformer.results.store import Store
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Trial, execute

STEPS = 10
DAY = 86400.0


def measure_clock(seeds: int) -> list[Figure]:
    """Run trials while each look at the clock finds it up to a day off.

    One of them has failed before, and one was left by another machine, both a day ahead of now.
    """
    wanted = trials(seeds, f"budget.steps={STEPS}")
    with undisturbed(wanted) as expected, tempfile.TemporaryDirectory() as folder, silence():
        store = Store(folder)
        store.prepare()

        def launch(missing: Sequence[Trial]) -> None:
            for trial in missing:
                execute(trial, store, current_provenance())

        ahead = datetime.fromtimestamp(time.time() + DAY, UTC).isoformat(timespec="milliseconds")
        failed, beating = wanted[:2]
        store.directory(failed.id).mkdir()
        store.write(Record(failed.id, FAILED, started=ahead, attempts=1))
        store.directory(beating.id).mkdir()
        pulse = json.dumps({"host": "one that died", "pid": 1, "time": time.time() + DAY})
        (store.directory(beating.id) / "lock").touch()
        (store.directory(beating.id) / "heartbeat").write_text(pulse, encoding="utf-8")
        kept = [failed.id] if store.locked(beating.id) else []
        with _random_clock(random.Random(0)):
            launch_missing(wanted, store, launch)
            claims = [trial for trial in wanted if store.locked(trial.id)]
        return [
            none_of(f"{seeds} trials under a clock that jumps: other results", differing(store, expected), ""),
            none_of("claims of a dead host whose clock was ahead that are believed", kept, "claims"),
            none_of("claims that seem to be held when all is over", claims, "claims"),
            none_of("negative durations", [each.id for each in store.records() if each.seconds < 0], "records"),
        ]


@contextmanager
def _random_clock(generator: random.Random) -> Iterator[None]:
    """Make the time of day random; clocks that measure durations stay right."""
    true = time.time

    def now() -> str:
        return datetime.fromtimestamp(wrong(), UTC).isoformat(timespec="milliseconds")

    def wrong() -> float:
        return true() + generator.uniform(-DAY, DAY)

    with patch("time.time", wrong), patch("swapformer.results.record.now", now):
        yield
