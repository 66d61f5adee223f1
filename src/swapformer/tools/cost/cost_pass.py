"""The cost pass: times the arms of a study in turn, each in a process that has the machine to itself."""

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
from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.costs import CostRounds, is_measured
from swapformer.study.config.identity import identity
from swapformer.study.launch.machine import hardware
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.slots import pinned_threads
from swapformer.training.assemble import Config

_ABOUT_COST = ("model", "task", "data", "optim", "trainer", "log_every", "foreign_parts", "callbacks")
"""The keys of a trial's identity that determine what a step costs; no seeds, schedules or lengths of training."""


def cost_key(config: Config) -> str:
    """16 hexadecimal digits of all that determines the cost of a step but the hardware; swapformer's version too."""
    known = identity(config)
    found = {key: value for key, value in known.items() if key in _ABOUT_COST}
    text = json.dumps([__version__, found], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class CostPass:
    """Measures configurations in several rounds, and holds the rounds of each by its cost key.

    `configs`: the configurations by cost key; arms of the same key cost the same and are measured once. `forced`:
    whether the machine is loaded, which is stored with the costs. `say`: called with a line for each round. `wrong`: by
    key, why a configuration could not be measured.
    """

    configs: Mapping[str, Config]
    rounds: int
    warm_up: int
    steps: int
    forced: bool
    say: Callable[[str], None]
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def run(self) -> None:
        """Measure all rounds; each begins with another arm, so that none is always the first."""
        keys = list(self.configs)
        for turn in range(self.rounds):
            shift = turn % max(len(keys), 1)
            for key in [*keys[shift:], *keys[:shift]]:
                if key not in self.wrong:
                    self._measure(key)
            self.say(f"round {turn + 1} of {self.rounds}: {len(keys) - len(self.wrong)} measured")

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

    def store(self, runs_dir: Path, provenance: Provenance) -> None:
        """Store the rounds of each key for this hardware; they replace older ones."""
        began = records.now()
        for key, rounds in self.found.items():
            CostRounds(
                key, hardware(self.configs[key]["trainer"]["accelerator"]), rounds, self.warm_up, self.steps,
                self.forced, self.load, began, provenance.commit, __version__,
            ).write(runs_dir)  # fmt: skip


def unmeasured(configs: Mapping[str, Config], runs_dir: Path) -> dict[str, Config]:
    """The configurations whose costs on this hardware were not measured yet, or cannot be read."""
    return {
        key: config
        for key, config in configs.items()
        if not is_measured(runs_dir, key, hardware(config["trainer"]["accelerator"])["key"])
    }


def require_quiet_machine(force: bool) -> None:
    """Refuse to measure while other work runs.

    Raises UsageError if the load of the last minute exceeds half a core for each core.
    """
    if loaded() and not force:
        raise UsageError(
            f"a benchmark needs a quiet machine, but the load of the last minute is {os.getloadavg()[0]:.1f} on "
            f"{os.cpu_count()} cores; wait, or measure all the same with --force."
        )


def loaded() -> bool:
    """Whether the load of the last minute exceeds half a core for each core."""
    return os.getloadavg()[0] > (os.cpu_count() or 1) / 2
