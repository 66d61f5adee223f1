"""The costs of arms: `costs.json` of a study, counted, and `costs/<key>/<hardware>.json` of a store, measured.

A study's file names for each arm the trial whose settings were costed, what they were counted to cost, and the key of
what was measured. `swapformer cost` writes both, and measures in a pass that has the machine to itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from swapformer.results.arms import ArmCondition
from swapformer.results.files import write_atomic
from swapformer.results.manifest import Manifest
from swapformer.results.schema import read_json

SCHEMA_VERSION = 1
"""Of both files."""
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, ZeroDivisionError)
"""What files of another shape raise."""


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
class CostRounds:
    """The file of what one configuration cost on one machine.

    `key`: of what determines the cost of a step, whatever it runs on. `hardware`: as
    `swapformer.study.launch.machine.hardware` describes it, with its own `key` and `name`. `rounds`: what each process
    measured: seconds, bytes, tokens of a step. `apart` names the pass, by when it began; `load`: of the machine then.
    """

    key: str
    hardware: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]
    warm_up: int
    steps: int
    forced: bool
    load: float
    apart: str
    commit: str | None
    swapformer: str

    def write(self, runs_dir: Path) -> None:
        """Store it, replaced whole."""
        path = _measurements(runs_dir, self.key) / f"{self.hardware['key']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "schema_version": SCHEMA_VERSION, "key": self.key, "hardware": self.hardware, "rounds": self.rounds,
            "tokens_per_step": self.rounds[0]["tokens_per_step"], "warm_up": self.warm_up, "steps": self.steps,
            "forced": self.forced, "load": self.load, "pass": self.apart, "commit": self.commit,
            "swapformer": self.swapformer,
        }  # fmt: skip
        write_atomic(path, json.dumps(content, indent=1) + "\n")

    @property
    def summary(self) -> Measured:
        """The numbers that tables and figures show."""
        devices = [int(each["device_bytes"]) for each in self.rounds if each["device_bytes"] is not None]
        return Measured(
            seconds=tuple(float(each["step_seconds"]) for each in self.rounds),
            tokens=int(self.rounds[0]["tokens_per_step"]),
            memory=max(int(each["peak_bytes"]) for each in self.rounds),
            start=max(int(each["start_bytes"]) for each in self.rounds),
            device=max(devices, default=None),
            steps=self.steps,
            apart=self.apart,
            forced=self.forced,
        )


def is_measured(runs_dir: Path, key: str, hardware: str) -> bool:
    """Whether a configuration was measured on a machine, and its file can be read."""
    try:
        return bool(_read_measurement(_measurements(runs_dir, key) / f"{hardware}.json").rounds)
    except _UNREADABLE:
        return False


@dataclass(frozen=True)
class CostedArm:
    """One arm in a study's file: the trial whose settings were costed, and the key of what was measured."""

    arm: str
    condition: str
    trial: str
    key: str
    counted: Counted | None


def write_counted(study: Path, arms: Sequence[CostedArm]) -> None:
    """Put the costs of a study's arms into its folder, replaced whole."""
    content = {"schema_version": SCHEMA_VERSION, "arms": [asdict(each) for each in arms]}
    write_atomic(_counted(study), json.dumps(content, indent=1) + "\n")


@dataclass(frozen=True)
class Costs:
    """The known costs of a study; `measured` by hardware, that with the most arms first."""

    counted: Mapping[ArmCondition, Counted] = field(default_factory=dict)
    measured: Mapping[str, Mapping[ArmCondition, Measured]] = field(default_factory=dict)

    def passes(self, hardware: str) -> int:
        """In how many passes the arms were measured; only within one were they measured in turn."""
        return len({each.apart for each in self.measured[hardware].values()})

    def forced(self, hardware: str) -> bool:
        """Whether some were measured while other work ran."""
        return any(each.forced for each in self.measured[hardware].values())

    @property
    def machine(self) -> str:
        """The hardware that knows most of the arms; empty where nothing was timed."""
        return next(iter(self.measured), "")

    def timed(self, condition: str) -> Mapping[str, Measured]:
        """The arms of a condition as the hardware that knows most of them timed them."""
        first = next(iter(self.measured.values()), {})
        return {arm: each for (arm, where), each in first.items() if where == condition}


def read_costs(manifest: Manifest, study: Path, runs_dir: Path, problems: list[str]) -> Costs:
    """The costs of the arms as they are now: what was costed with other settings (another trial) is left out."""
    path = _counted(study)
    if not path.exists():
        return Costs()
    trials = {(cell.arm, cell.condition, cell.trial) for cell in manifest.cells}
    counted: dict[ArmCondition, Counted] = {}
    measured: dict[str, dict[ArmCondition, Measured]] = {}
    try:
        for arm in _read_counted(path):
            if (arm.arm, arm.condition, arm.trial) not in trials:
                continue
            if arm.counted is not None:
                counted[arm.arm, arm.condition] = arm.counted
            for found in map(_read_measurement, sorted(_measurements(runs_dir, arm.key).glob("*.json"))):
                measured.setdefault(str(found.hardware["name"]), {})[arm.arm, arm.condition] = found.summary
    except _UNREADABLE as error:
        problems.append(f"{path}: what arms cost cannot be read ({type(error).__name__}: {error})")
        return Costs()
    order = sorted(measured, key=lambda name: (-len(measured[name]), name))
    return Costs(counted, {name: measured[name] for name in order})


def _counted(study: Path) -> Path:
    return study / "costs.json"


def _measurements(runs_dir: Path, key: str) -> Path:
    return runs_dir / "costs" / key


def _read(path: Path) -> dict[str, Any]:
    """Raises ValueError for a file of another version."""
    raw: dict[str, Any] = read_json(path)
    if (version := raw["schema_version"]) != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {version!r}, but this swapformer reads {SCHEMA_VERSION}")
    return raw


def _read_counted(path: Path) -> list[CostedArm]:
    return [
        CostedArm(
            str(each["arm"]), str(each["condition"]), str(each["trial"]), str(each["key"]),
            None if each["counted"] is None else Counted(**each["counted"]),
        )
        for each in _read(path)["arms"]
    ]  # fmt: skip


def _read_measurement(path: Path) -> CostRounds:
    raw = _read(path)
    return CostRounds(
        key=str(raw["key"]), hardware=raw["hardware"], rounds=raw["rounds"], warm_up=int(raw["warm_up"]),
        steps=int(raw["steps"]), forced=bool(raw["forced"]), load=float(raw["load"]), apart=str(raw["pass"]),
        commit=raw["commit"], swapformer=str(raw["swapformer"]),
    )  # fmt: skip
