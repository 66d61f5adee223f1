"""Time and memory of tokenising a text, and of starting on it again; of starting on ids that need no tokeniser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.measurement import Figure, peak_memory
from swapformer.paths import conf_dir
from swapformer.targets import make
from swapformer.task.shards import Shards
from swapformer.task.source import Files
from swapformer.task.text import Text
from swapformer.task.tokeniser import Numbers, Tokeniser
from swapformer.yaml_reader import read_yaml

_BATCHES = 2000
_WORDS = 50_000


def costs(megabytes: int, tokenisers: Sequence[str]) -> list[Figure]:
    """Seconds and memory of a generated text, for each tokeniser, in processes of their own."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        write_text(path, megabytes)
        for name in tokenisers:
            if name == "shards":
                found += _shards(Path(folder), megabytes)
                continue
            first, again = (_in_own_process(path, name, Path(folder)) for _ in range(2))
            what = f"{megabytes} MB as {name}"
            speed = megabytes / first["seconds"]
            made = f"{what}, tokenised, learning included ({first['processor']:.1f} s of processors)"
            found += [
                Figure(made, speed, "MB/s", "≥ 1 (10 MB in 10 s)", speed >= 1),
                Figure(f"{what}, started again", again["seconds"], "s", "≤ 0.3", again["seconds"] <= 0.3),
            ]
            for run, seen in (("tokenised", first), ("started again", again)):
                name_of = f"{what}, {run} and {_BATCHES} batches, resident memory added at most"
                found.append(Figure(name_of, seen["megabytes"], "MB", "≤ 200", seen["megabytes"] <= 200))
    return found


def _shards(folder: Path, megabytes: int) -> list[Figure]:
    """What ids of this size cost that lie in two files, first read and read again."""
    ids = np.random.default_rng(0).integers(0, _WORDS, 10**7).astype("<u2").tobytes()
    for name in ("train_1", "train_2", "val"):
        size = 20 * 10**6 if name == "val" else megabytes * 10**6 // 2
        with (folder / f"{name}.bin").open("wb") as file:
            for rest in range(size, 0, -len(ids)):
                file.write(ids[:rest])
    found = []
    for run in ("first", "again"):
        seen = _in_own_process(folder, "shards", folder)
        what = f"{megabytes} MB of ids, {run}"
        memory = f"{what}, {_BATCHES} batches of 32 × 1024, memory added beside what is mapped"
        found += [
            Figure(f"{what}, until the first batch", seen["seconds"], "s", "≤ 10", seen["seconds"] <= 10),
            Figure(memory, seen["megabytes"], "MB", "≤ 300", seen["megabytes"] <= 300),
            Figure(f"{what}, a batch", 1e3 * seen["batch"], "ms", "≤ 2", seen["batch"] <= 0.002),
            Figure(
                f"{what}, the part of one of eight devices",
                1e3 * seen["part"],
                "ms",
                "≤ half of a batch",
                seen["part"] <= seen["batch"] / 2,
            ),
        ]
    return found


def write_text(path: Path, megabytes: int) -> None:
    """Write lines of invented words with frequencies by Zipf's law; ten megabytes of them are repeated."""
    once = min(megabytes, 10) * 10**6
    generator = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(generator.choice(letters, 2 + rank % 9)) for rank in range(_WORDS)])
    chances = 1 / np.arange(1, _WORDS + 1)
    chances /= chances.sum()
    chosen = words[generator.choice(_WORDS, once // 50 * 10, p=chances)].reshape(-1, 10)
    block = "".join(" ".join(line) + "\n" for line in chosen).encode()[:once]
    with path.open("wb") as file:
        for rest in range(megabytes, 0, -10):
            file.write(block[: rest * 10**6])


def _in_own_process(path: Path, tokeniser: str, cache: Path) -> dict[str, float]:
    environment = os.environ | {"SWAPFORMER_CACHE": str(cache)}
    command = [sys.executable, "-m", "benchmarks.corpus", str(path), tokeniser]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(path: str, tokeniser: str) -> dict[str, float]:
    """Seconds of making a task, and the megabytes that it and its batches add to this process."""
    if tokeniser == "shards":
        return _measure_shards(path)
    node = read_yaml(conf_dir() / "task" / "tokeniser" / f"{tokeniser}.yaml")
    before, since, used = peak_memory(), time.perf_counter(), time.process_time()
    task = Text(source=Files(path=path), tokeniser=make(node, Tokeniser))
    seconds, processor = time.perf_counter() - since, time.process_time() - used
    for step in range(_BATCHES):
        task.train_batch(0, step)
    return {"seconds": seconds, "processor": processor, "megabytes": peak_memory() - before}


def _measure_shards(path: str) -> dict[str, float]:
    before, since = _own_memory(), time.perf_counter()
    numbers = Numbers(vocab_size=_WORDS)
    task = Text(source=Shards(path=path), tokeniser=numbers, block=1024, batch_size=32, eval_batch_size=32)
    task.train_batch(0, 0)
    seconds, since, most = time.perf_counter() - since, time.perf_counter(), 0.0
    for step in range(_BATCHES):
        task.train_batch(0, step)
        if step % 100 == 0:
            most = max(most, _own_memory())
    batch, since = (time.perf_counter() - since) / _BATCHES, time.perf_counter()
    for step in range(_BATCHES):
        task.train_rows(0, step, 28, 32)
    part = (time.perf_counter() - since) / _BATCHES
    return {"seconds": seconds, "megabytes": most - before, "batch": batch, "part": part}


def _own_memory() -> float:
    """Megabytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(_measure(*sys.argv[1:3])))
