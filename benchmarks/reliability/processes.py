"""Processes of a study: SIGKILLs of trials, fork server and parent at random moments, and two parents at once."""

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

from benchmarks.measurement import Figure
from benchmarks.reliability.tiny_trials import SMALL, differing, leftovers, none_of, trials, undisturbed
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.plan import make_trial

ARMS = {"one": ["model.num_heads=1"], "two": ["model.num_heads=2"]}
STEPS = 300
SEEDS = 10
"""Seeds of each arm at the start; as many are added when all are finished before the last kill."""
MAX_STARTS = 5
"""Starts of the parent without a kill in between, after which the study is taken for one that cannot go on."""
WEIGHTS = {"trial": 7, "server": 2, "parent": 1}
"""Weights by which a victim is drawn: a parent takes as long to start as a few trials take."""
PAUSE = (0.05, 1.2)
"""Shortest and longest pause between kills, in seconds."""
SHARED_STEPS = 100
"""Steps of the trials that two parents share."""


def measure_kills(kills: int, seed: int) -> list[Figure]:
    """Compare a study after `kills` kills with the same study undisturbed."""
    generator, victims = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        study, store = _write_study(Path(folder)), Store(Path(folder) / "runs")
        seeds, parent, starts = SEEDS, None, 0
        while victims.total() < kills and starts < MAX_STARTS:
            if parent is None or parent.poll() is not None:
                seeds += SEEDS if parent is not None and parent.returncode == 0 else 0
                starts += 1
                parent = _start(study, store, seeds)
            kind = generator.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            while not _holders(store) and parent.poll() is None:
                time.sleep(0.02)  # else it would always be the parent, which takes seconds to start a trial
            time.sleep(generator.uniform(*PAUSE))
            if _kill(kind, parent, store, generator):
                victims[kind] += 1
                starts = 0
        if parent is not None:
            parent.wait()
        status = 1
        for _ in range(3):  # a trial that was killed twice in one run is given up until the next
            status = _start(study, store, seeds).wait()
            if status == 0:
                break
        parts, number = ", ".join(f"{victims[kind]} of a {kind}" for kind in WEIGHTS), victims.total()
        name = f"SIGKILLs delivered with --seed {seed}: {parts}"
        return [Figure(name, number, "kills", f"{kills}", number >= kills), *_end_state(study, store, seeds, status)]


def _end_state(study: Path, store: Store, seeds: int, status: int) -> list[Figure]:
    shared = [*SMALL, f"budget.steps={STEPS}"]
    wanted = [make_trial(compose([*shared, *ARMS[arm], f"seed={seed}"])) for arm in ARMS for seed in range(seeds)]
    report = store.studies / study.stem / "report" / "results.csv"
    rows = []
    if report.is_file():
        with report.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["metric"] == "val/loss"]
    cells = Counter((row["arm"], row["seed"]) for row in rows)
    lost = [(arm, str(seed)) for arm in ARMS for seed in range(seeds) if not cells[arm, str(seed)]]
    with undisturbed(wanted) as expected:
        wrong = differing(store, expected)
    again = [trial for trial in wanted if (record := store.read(trial.id)) is not None and record.attempts > 1]
    name = f"of {len(wanted)} trials of {STEPS} steps ({len(again)} of them begun more than once)"
    return [
        Figure(f"exit status of the study in the end, {name}", status, "", "0", status == 0),
        none_of("trials that are lost in results.csv", lost, "trials"),
        none_of("trials that are counted twice", [cell for cell, n in cells.items() if n > 1], "trials"),
        none_of("trials whose numbers or curves are not bit-equal to undisturbed ones", wrong, "trials"),
        none_of("trials beyond those asked for", set(store.ids()) - {each.id for each in wanted}, "trials"),
        none_of("files half-written in the end", leftovers(store), "files"),
    ]


def _write_study(folder: Path) -> Path:
    path = folder / "kills.yaml"
    shared = [*SMALL, f"budget.steps={STEPS}"]
    plain = {"question": "", "baseline": "one", "arms": ARMS, "overrides": shared, "seeds": SEEDS}
    path.write_text(yaml.safe_dump(plain | {"metrics": ["val/loss"]}), encoding="utf-8")
    return path


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
    """The processes that hold a trial's lock, by its heartbeat."""
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


def measure_parents(seeds: int) -> list[Figure]:
    """Run one study by two parents in one store at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        study, store = Path(folder) / "shared.yaml", Store(Path(folder) / "runs")
        plain = {"question": "", "baseline": "only", "arms": {"only": []}, "seeds": seeds, "metrics": ["val/loss"]}
        study.write_text(
            yaml.safe_dump(plain | {"overrides": [*SMALL, f"budget.steps={SHARED_STEPS}"]}), encoding="utf-8"
        )
        command = [sys.executable, "-m", "swapformer.cli", "study", str(study), f"runs_dir={store.runs_dir}"]
        parents = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        statuses = [parent.wait() for parent in parents]
        wanted = trials(seeds, f"budget.steps={SHARED_STEPS}")
        twice = [trial for trial in wanted if (found := store.read(trial.id)) is None or found.attempts != 1]
        with undisturbed(wanted) as expected:
            wrong = differing(store, expected)
        return [
            none_of("two parents on one store: exit statuses other than 0", filter(None, statuses), "parents"),
            none_of(f"two parents on one store: of {seeds} trials, not begun just once", twice, "trials"),
            none_of("two parents on one store: trials that differ from undisturbed ones", wrong, "trials"),
        ]
