"""What arms cost: counted by analysis, and measured in a pass that had the machine to itself (`swapformer cost`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from swapformer.results.manifest import Manifest

INDEX = "costs.json"
"""In a study's folder: for each arm and condition the trial whose settings were costed, what they were counted to cost,
and the key of what was measured, which lies in `runs_dir/costs/<key>/<hardware>.json`."""

Place = tuple[str, str]
"""Arm and condition."""


@dataclass(frozen=True)
class Counted:
    """One training step by analysis, in operations and in bytes of float32; None where it cannot be counted."""

    flops: int | None
    activations: int | None
    kv_cache: int | None


@dataclass(frozen=True)
class Measured:
    """One training step as it was timed: a median of each of several rounds; memory is the most of all rounds.

    `memory`: peak resident bytes of the process; `start`: what it held before the model was built; `device`: peak bytes
    that the accelerator's allocator had given out, None without one. `apart` names the pass, `forced` one on a loaded
    machine.
    """

    seconds: tuple[float, ...]
    tokens: int
    memory: int
    start: int
    device: int | None
    steps: int
    apart: str
    forced: bool

    @property
    def step(self) -> float:
        """Seconds of a step, median over rounds."""
        return median(self.seconds)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.step


@dataclass(frozen=True)
class Costs:
    """What is known of a study's costs; `measured` by hardware, that with the most arms first."""

    counted: Mapping[Place, Counted] = field(default_factory=dict)
    measured: Mapping[str, Mapping[Place, Measured]] = field(default_factory=dict)

    def passes(self, hardware: str) -> int:
        """In how many passes the arms were measured; only within one were they measured in turn."""
        return len({each.apart for each in self.measured[hardware].values()})

    def forced(self, hardware: str) -> bool:
        """Whether some were measured beside other work."""
        return any(each.forced for each in self.measured[hardware].values())

    def timed(self, condition: str) -> Mapping[str, Measured]:
        """The arms of a condition as the hardware that knows most of them timed them."""
        first = next(iter(self.measured.values()), {})
        return {arm: each for (arm, where), each in first.items() if where == condition}


def read_costs(manifest: Manifest, study_dir: Path, runs_dir: Path, problems: list[str]) -> Costs:
    """The costs of the arms as they are now: what was costed with other settings (another trial) is left out."""
    path = study_dir / INDEX
    if not path.exists():
        return Costs()
    trials = {(cell.arm, cell.condition, cell.trial) for cell in manifest.cells}
    counted: dict[Place, Counted] = {}
    measured: dict[str, dict[Place, Measured]] = {}
    try:
        entries = [each for each in json.loads(path.read_text(encoding="utf-8"))["arms"] if _current(each, trials)]
        for each in entries:
            place = str(each["arm"]), str(each["condition"])
            if each["counted"] is not None:
                counted[place] = Counted(**each["counted"])
            for found in sorted((runs_dir / "costs" / str(each["key"])).glob("*.json")):
                hardware, one = _measured(json.loads(found.read_text(encoding="utf-8")))
                measured.setdefault(hardware, {})[place] = one
    except (OSError, ValueError, KeyError, TypeError) as error:
        problems.append(f"{path}: what arms cost cannot be read ({type(error).__name__}: {error})")
        return Costs()
    order = sorted(measured, key=lambda name: (-len(measured[name]), name))
    return Costs(counted, {name: measured[name] for name in order})


def _current(entry: Mapping[str, Any], trials: set[tuple[str, str, str]]) -> bool:
    return (str(entry["arm"]), str(entry["condition"]), str(entry["trial"])) in trials


def _measured(raw: Mapping[str, Any]) -> tuple[str, Measured]:
    rounds: Sequence[Mapping[str, Any]] = raw["rounds"]
    devices = [int(each["device_bytes"]) for each in rounds if each["device_bytes"] is not None]
    return str(raw["hardware"]["name"]), Measured(
        seconds=tuple(float(each["step_seconds"]) for each in rounds),
        tokens=int(raw["tokens_per_step"]),
        memory=max(int(each["peak_bytes"]) for each in rounds),
        start=max(int(each["start_bytes"]) for each in rounds),
        device=max(devices, default=None),
        steps=int(raw["steps"]),
        apart=str(raw["pass"]),
        forced=bool(raw["forced"]),
    )
