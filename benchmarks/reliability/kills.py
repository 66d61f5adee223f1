"""SIGKILL, again and again, at random moments, for whatever takes part in a study: trials, fork server, parent."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import yaml

from benchmarks.figure import Figure
from benchmarks.reliability.tiny_trials import SMALL, count, differing, leftovers, undisturbed
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.expand import make_trial
from swapformer.study.launch.trial import Trial

ARMS = {"one": ["model.num_heads=1"], "two": ["model.num_heads=2"]}
STEPS = 300
MORE = 10
"""Seeds of each arm to begin with, and that are added when all are finished before the last kill."""
VAIN = 5
"""How often the parent is started without any kill before the study is taken for one that cannot go on."""
WEIGHTS = {"trial": 7, "server": 2, "parent": 1}
"""How often each is the victim: a parent takes as long to start as a few trials take."""
PAUSE = (0.05, 1.2)
"""Seconds between kills, at the least and at the most."""


def survived(kills: int, seed: int) -> list[Figure]:
    """What a study comes to after `kills` kills, against the same study undisturbed."""
    generator, victims = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        study, store = _write(Path(folder)), Store(Path(folder) / "runs")
        seeds, parent, vain = MORE, None, 0
        while victims.total() < kills and vain < VAIN:
            if parent is None or parent.poll() is not None:
                seeds += MORE if parent is not None and parent.returncode == 0 else 0
                vain += 1
                parent = _start(study, store, seeds)
            kind = generator.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            while not _holders(store) and parent.poll() is None:
                time.sleep(0.02)  # else it would always be the parent, which takes seconds to start a trial
            time.sleep(generator.uniform(*PAUSE))
            if _kill(kind, parent, store, generator):
                victims[kind] += 1
                vain = 0
        if parent is not None:
            parent.wait()
        status = 1
        for _ in range(3):  # a trial that was killed twice in one run is given up until the next
            status = _start(study, store, seeds).wait()
            if status == 0:
                break
        return [_delivered(victims, kills, seed), *_state(study, store, seeds, status)]


def _delivered(victims: Counter[str], kills: int, seed: int) -> Figure:
    parts = ", ".join(f"{victims[kind]} of a {kind}" for kind in WEIGHTS)
    return Figure(
        f"SIGKILLs delivered with --seed {seed}: {parts}",
        victims.total(),
        "kills",
        f"{kills}",
        victims.total() >= kills,
    )


def _state(study: Path, store: Store, seeds: int, status: int) -> list[Figure]:
    wanted = [_trial(arm, seed) for arm in ARMS for seed in range(seeds)]
    report = store.studies / study.stem / "report" / "results.csv"
    rows = []
    if report.is_file():
        with report.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["metric"] == "val/loss"]
    places = Counter((row["arm"], row["seed"]) for row in rows)
    lost = [(arm, str(seed)) for arm in ARMS for seed in range(seeds) if not places[arm, str(seed)]]
    with undisturbed(wanted) as expected:
        wrong = differing(store, expected)
    again = [trial for trial in wanted if (record := store.read(trial.id)) is not None and record.attempts > 1]
    name = f"of {len(wanted)} trials of {STEPS} steps ({len(again)} of them begun more than once)"
    return [
        Figure(f"exit status of the study in the end, {name}", status, "", "0", status == 0),
        Figure(*count("trials that are lost in results.csv", lost, "trials")),
        Figure(*count("trials that are counted twice", [place for place, n in places.items() if n > 1], "trials")),
        Figure(*count("trials whose numbers or curves are not bit-equal to undisturbed ones", wrong, "trials")),
        Figure(*count("trials beyond those asked for", set(store.ids()) - {each.id for each in wanted}, "trials")),
        Figure(*count("files half-written in the end", leftovers(store), "files")),
    ]


def _write(folder: Path) -> Path:
    path = folder / "kills.yaml"
    shared = [*SMALL, f"budget.steps={STEPS}"]
    plain = {"question": "", "baseline": "one", "arms": ARMS, "overrides": shared, "seeds": MORE}
    path.write_text(yaml.safe_dump(plain | {"metrics": ["val/loss"]}), encoding="utf-8")
    return path


def _trial(arm: str, seed: int) -> Trial:
    return make_trial(compose([*SMALL, f"budget.steps={STEPS}", *ARMS[arm], f"seed={seed}"]))


def _start(study: Path, store: Store, seeds: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "swapformer.cli", "study", str(study), f"seeds={seeds}"]
    return subprocess.Popen(
        [*command, f"runs_dir={store.runs_dir}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill(kind: str, parent: subprocess.Popen[bytes], store: Store, generator: random.Random) -> bool:
    """Kill one process of a kind; False where there is none now."""
    if kind == "parent":
        found = [parent.pid] if parent.poll() is None else []
    elif kind == "trial":
        found = _holders(store)
    else:
        found = [pid for pid in {_parent_of(pid) for pid in _holders(store)} if pid not in (0, 1, parent.pid)]
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(generator.choice(sorted(found)), signal.SIGKILL)
        return True
    return False


def _holders(store: Store) -> list[int]:
    """The processes that hold a trial's lock, as its heartbeat says."""
    found = []
    for beat in store.trials.glob("*/heartbeat"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(json.loads(beat.read_bytes())["pid"])
            if store.locked(beat.parent.name) and _parent_of(pid):
                found.append(pid)
    return found


def _parent_of(pid: int) -> int:
    """The parent of a process; 0 where the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
