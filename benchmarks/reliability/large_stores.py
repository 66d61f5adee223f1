"""Large stores: the time of a list of ten thousand trials, and of a report over a thousand."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from benchmarks.measurement import Figure
from benchmarks.reliability.tiny_trials import SMALL
from swapformer.results.record import FINISHED, Record
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.plan import make_trial

ARMS = 20
METRICS = ("val/loss", "val/accuracy", "val/exact_match")


def measure_large_stores(listed: int, reported: int, rounds: int) -> list[Figure]:
    """Seconds of both commands on a store with invented records, the fastest of `rounds`."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        store.prepare()
        cells = [(f"arm {index % ARMS}", index // ARMS) for index in range(max(listed, reported))]
        _write(store, cells)
        _study(store, cells[:reported])
        listing = min(_seconds(store, "trials") for _ in range(rounds))
        report = min(_seconds(store, "report", "grown") for _ in range(rounds))
    return [
        Figure(f"swapformer trials, {listed} trials", listing, "s", "< 3", listing < 3),
        Figure(f"swapformer report, {reported} trials with {len(METRICS)} metrics", report, "s", "< 30", report < 30),
    ]


def _write(store: Store, cells: Sequence[tuple[str, int]]) -> None:
    """A record, a configuration and a history for each trial, as a training leaves them."""
    generator = np.random.default_rng(0)
    real = make_trial(compose([*SMALL]))
    config = yaml.safe_dump(real.config, sort_keys=False)
    for index, (arm, seed) in enumerate(cells):
        values = 1 + 0.01 * int(arm.split()[1]) + 0.05 * generator.standard_normal(len(METRICS))
        directory = store.directory(_id(index))
        directory.mkdir()
        record = Record(
            _id(index), FINISHED, seed=seed, metrics=dict(zip(METRICS, map(float, values), strict=True)),
            directions={"val/loss": "lower", "val/accuracy": "higher", "val/exact_match": "higher"}, steps=100,
            tokens=10_000, parameters={"total": 1000, "non_position": 1000}, environment=dict(real.environment),
            started="2030-01-01T00:00:00.000+00:00", ended="2030-01-01T00:00:02.000+00:00", seconds=2.0, attempts=1,
            data={"fingerprint": real.data},
        )  # fmt: skip
        (directory / "record.json").write_text(record.to_json(), encoding="utf-8")
        (directory / "config.yaml").write_text(config, encoding="utf-8")
        rows = (f"{step},val/loss,{2 - step / 100}\n" for step in range(10, 101, 10))
        (directory / "metrics.csv").write_text("step,name,value\n" + "".join(rows), encoding="utf-8")


def _id(index: int) -> str:
    return f"{index:016x}"


def _study(store: Store, cells: Sequence[tuple[str, int]]) -> None:
    arms = list(dict.fromkeys(arm for arm, _ in cells))
    plain = {
        "schema_version": 1,
        "name": "grown",
        "question": "How long does a report over many trials take?",
        "baseline": arms[0],
        "arms": {arm: [] for arm in arms},
        "seeds": sorted({seed for _, seed in cells}),
        "metrics": list(METRICS),
        "cells": [{"arm": arm, "seed": seed, "trial": _id(index)} for index, (arm, seed) in enumerate(cells)],
        "claims": [
            {"text": f"{arm} is worse", "worse": {"arm": arm, "than": arms[0], "metric": "val/loss", "margin": 0.01}}
            for arm in arms[1:]
        ],
    }
    folder = store.studies / "grown"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(plain), encoding="utf-8")


def _seconds(store: Store, *command: str) -> float:
    arguments = [sys.executable, "-m", "swapformer.cli", *command, f"runs_dir={store.runs_dir}"]
    since = time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, cwd=Path(store.runs_dir))
    return time.perf_counter() - since
