"""The cost pass: every arm of a study, in turn, one process at a time, with the machine to itself."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer import __version__
from swapformer.results import record as records
from swapformer.results.costs import Measurement, is_measured
from swapformer.study.config.identity import identity
from swapformer.study.launch.machine import hardware
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.slots import pinned_threads
from swapformer.training.assemble import Config

_ABOUT_COST = ("model", "task", "data", "optim", "trainer", "log_every", "foreign_parts")
"""What of a trial's identity determines what a step of it costs; not seeds, schedules, or how long it trains."""


def cost_key(config: Config) -> str:
    """16 hexadecimal digits of what determines the cost of a step, whatever it runs on; swapformer's version too."""
    found = {key: value for key, value in identity(config).items() if key in _ABOUT_COST}
    text = json.dumps([__version__, found], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Pass:
    """What is to be measured how, and what came of it, by key.

    Attributes:
        configs: the arms by cost key; arms that cost the same by definition are measured once.
        forced: whether it is measured although the machine is loaded, which is written down.
        said: called with a line for each round.
        wrong: why arms could not be measured.
    """

    configs: Mapping[str, Config]
    rounds: int
    warm_up: int
    steps: int
    forced: bool
    said: Callable[[str], None]
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def run(self) -> None:
        """All rounds; each begins with another arm, so that none is always the first."""
        keys = list(self.configs)
        for turn in range(self.rounds):
            shift = turn % max(len(keys), 1)
            for key in [*keys[shift:], *keys[:shift]]:
                if key not in self.wrong:
                    self._measure(key)
            self.said(f"round {turn + 1} of {self.rounds}: {len(keys) - len(self.wrong)} measured")

    def _measure(self, key: str) -> None:
        asked = {"config": self.configs[key], "warm_up": self.warm_up, "steps": self.steps}
        with pinned_threads(1):  # as the local launcher starts a trial, which then takes the threads of its config
            done = subprocess.run(
                [sys.executable, "-m", "swapformer.tools.cost.step_timer"],
                input=json.dumps(asked), capture_output=True, text=True, check=False,
            )  # fmt: skip
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            self.wrong[key] = lines[-1] if lines else f"exit status {done.returncode}"
            self.found.pop(key, None)
            return
        self.found.setdefault(key, []).append(json.loads(done.stdout.splitlines()[-1]))

    def keep(self, runs_dir: Path, provenance: Provenance) -> None:
        """Store what was found, for each key and this hardware."""
        began = records.now()
        for key, rounds in self.found.items():
            Measurement(
                key, hardware(self.configs[key]["trainer"]["accelerator"]), rounds, self.warm_up, self.steps,
                self.forced, self.load, began, provenance.commit, __version__,
            ).write(runs_dir)  # fmt: skip


def unmeasured(configs: Mapping[str, Config], runs_dir: Path) -> dict[str, Config]:
    """Those that were not measured on this hardware yet, or whose file cannot be read."""
    return {
        key: config
        for key, config in configs.items()
        if not is_measured(runs_dir, key, hardware(config["trainer"]["accelerator"])["key"])
    }
