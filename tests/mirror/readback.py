"""What an offline run holds, as wandb's own reader says."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Curves = dict[tuple[int, str], float]


@dataclass
class Held:
    """One run: what it began with, what it says of its metrics, its curves without wandb's own columns, its end."""

    began: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    curves: Curves = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    exit: int | None = None


def read_run(folder: Path) -> Held:
    """The run in an `offline-run-…` folder."""
    from wandb.util import get_core_path

    (path,) = folder.glob("*.wandb")
    # What `wandb leet inspect --json` runs, without the second that its Python part takes.
    command = [get_core_path(), "leet", "inspect", "--json", "--run-file", str(path), str(folder.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return held(json.loads(line) for line in done.stdout.splitlines())


def held(entries: Iterable[dict[str, Any]]) -> Held:
    found = Held()
    for entry in entries:
        match entry["type"]:
            case "run":
                found.began = entry["run"]
            case "metric":
                found.metrics.append(entry["metric"])
            case "history":
                step = entry["history"]["item"]["_step"]
                found.curves |= {
                    (step, name): value
                    for name, value in entry["history"]["item"].items()
                    if name.startswith(("train/", "val/"))
                }
            case "summary":
                found.summary |= entry["summary"].get("update", {})
            case "exit":
                found.exit = entry["exit"].get("exit_code", 0)
    return found


def curves_of(history: Path) -> Curves:
    """What `metrics.csv` says."""
    with history.open(newline="") as file:
        return {(int(row["step"]), row["name"]): float(row["value"]) for row in csv.DictReader(file)}
