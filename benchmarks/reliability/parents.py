"""Two commands that run one study in one store at the same time."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from benchmarks.figure import Figure
from benchmarks.reliability.tiny_trials import SMALL, count, differing, trials, undisturbed
from swapformer.results.store import Store

STEPS = 100


def shared(seeds: int) -> list[Figure]:
    """What becomes of a study that two parents run together."""
    with tempfile.TemporaryDirectory() as folder:
        study, store = Path(folder) / "shared.yaml", Store(Path(folder) / "runs")
        plain = {"question": "", "baseline": "only", "arms": {"only": []}, "seeds": seeds, "metrics": ["val/loss"]}
        study.write_text(yaml.safe_dump(plain | {"overrides": [*SMALL, f"budget.steps={STEPS}"]}), encoding="utf-8")
        command = [sys.executable, "-m", "swapformer.cli", "study", str(study), f"runs_dir={store.runs_dir}"]
        parents = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        statuses = [parent.wait() for parent in parents]
        wanted = trials(seeds, f"budget.steps={STEPS}")
        twice = [trial for trial in wanted if (found := store.read(trial.id)) is None or found.attempts != 1]
        with undisturbed(wanted) as expected:
            wrong = differing(store, expected)
        return [
            Figure(*count("two parents on one store: exit statuses other than 0", filter(None, statuses), "parents")),
            Figure(*count(f"two parents on one store: of {seeds} trials, not begun just once", twice, "trials")),
            Figure(*count("two parents on one store: trials that differ from undisturbed ones", wrong, "trials")),
        ]
