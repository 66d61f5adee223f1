"""A training that takes milliseconds and does what its config says, and a composer that needs no Hydra."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from swapformer.errors import UsageError
from swapformer.results.artifacts import Artifact, write_artifact
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Trial, Work
from swapformer.targets import allowed

PROVENANCE = Provenance("swapformer test", "abc", False)


class CorruptCheckpoint(Exception):
    pass


@dataclass
class Outcome:
    status: str = "finished"
    reason: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)
    directions: dict[str, Any] = field(default_factory=lambda: {"val/loss": "lower"})
    evaluation: dict[str, Any] = field(default_factory=lambda: {"val": {"items": 4, "fingerprint": "e4"}})
    exact: tuple[str, ...] = ()
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    steps: int = 10
    tokens: int = 640
    parameters: dict[str, int] = field(default_factory=lambda: {"total": 7, "non_position": 7})
    notes: tuple[str, ...] = ()


def fit(config: dict[str, Any], directory: Path) -> Outcome:
    """Append one line to the journal (one atomic write: many processes share it), then behave."""
    checkpoint = directory / "checkpoints" / "last.ckpt"
    resumed = checkpoint.exists()
    if resumed and checkpoint.read_bytes() == b"garbage":
        raise CorruptCheckpoint("garbage")
    journal = os.open(config["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{directory.name} {os.getpid()} {'resumed' if resumed else 'new'}\n".encode())
    os.close(journal)
    checkpoint.parent.mkdir(exist_ok=True)
    checkpoint.write_text("step 5")
    time.sleep(config.get("sleep", 0.0))
    _behave(config["behaviour"], resumed, directory)
    if config["behaviour"] == "diverge" or config.get("lr", 0) > config.get("stable", math.inf):
        return Outcome("diverged", "loss is nan", {"val/loss": float("nan")})
    loss = 1.0 + config["seed"] + config.get("heads", 0) * noise(config) + off(config)
    outcome = Outcome(metrics={"val/loss": loss, "val/odd": float("inf")})
    if "lr" in config:
        outcome.metrics["val/solved"] = 0.0
        outcome.directions["val/solved"] = "higher"
    return outcome


def off(config: dict[str, Any]) -> float:
    """How far the learning rate is from the best one, in decades; a short training may have another best one."""
    best = config.get("best")
    if config.get("budget", {}).get("steps", 10) < 10:
        best = config.get("best_short", best)
    return abs(math.log10(config["lr"] / best)) if "lr" in config else 0.0


def noise(config: dict[str, Any]) -> float:
    """A number in [0, 1) that only the seed and the asked spread decide; 0 where none is asked for."""
    return float(np.random.default_rng(config["seed"]).random()) * config.get("spread", 0.0)


def _behave(behaviour: str, resumed: bool, directory: Path) -> None:
    match behaviour:
        case "finish" | "diverge":
            return
        case "fail":
            raise RuntimeError("no such luck")
        case "misuse":
            raise UsageError("the file is empty")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "killed once":
            if not resumed:
                os.kill(os.getpid(), signal.SIGKILL)
        case "exit":  # as Lightning answers Ctrl-C
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                sys.exit(1)
        case "quit":
            sys.exit(0)
        case "hang":
            time.sleep(60)
        case "hang once":
            if not resumed:
                time.sleep(60)
        case "stop slowly once":
            if not resumed:
                try:
                    time.sleep(60)
                finally:
                    time.sleep(3)  # the rest of a step, and the checkpoint; long enough to hear a second signal
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        case "show devices":
            shown = [os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")]
            (directory / "devices").write_text(" ".join(shown))
        case "show packages":
            (directory / "packages").write_text(allowed())
        case other:
            raise AssertionError(other)


def replay(config: dict[str, Any], directory: Path) -> None:
    for name, probe in config["probes"].items():
        if probe == "broken":
            raise RuntimeError("no checkpoint")
        if probe == "slow":
            time.sleep(60)
        value = float(probe) if isinstance(probe, int) else 0.5
        write_artifact(directory, name, Artifact(probe, {f"probe/{name}": value}))


WORK = Work(fit, replay, CorruptCheckpoint)


def config(journal: Path, seed: int = 0, behaviour: str = "finish", **more: Any) -> dict[str, Any]:
    trainer = {"accelerator": "cpu", "threads": 1}
    return {
        "seed": seed,
        "data_seed": seed,
        "journal": str(journal),
        "behaviour": behaviour,
        "trainer": trainer,
        **more,
    }


def trial(journal: Path, seed: int = 0, behaviour: str = "finish", **more: Any) -> Trial:
    resolved = config(journal, seed, behaviour, **more)
    return Trial(trial_id(resolved), resolved, environment={"device": "cpu"}, data="d4", results_epoch=1)


def trial_id(resolved: dict[str, Any]) -> str:
    known = {key: value for key, value in resolved.items() if key not in ("journal", "probes", "runs_dir", "sleep")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def runs(journal: Path) -> list[str]:
    """The trials that were trained, one entry per attempt, in order."""
    return [line.split()[0] for line in journal.read_text().splitlines()] if journal.exists() else []


class Composer:
    """Composes `key=value` into a flat config, and `node.key=value` into a node of it; counts how often."""

    RESULTS_EPOCH = 1

    def __init__(self, journal: Path, runs_dir: Path) -> None:
        self.journal, self.runs_dir, self.composed, self.counted, self.compared = journal, runs_dir, 0, 0, 0

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        self.composed += 1
        resolved = config(self.journal, runs_dir=str(self.runs_dir), probes={}, model={}, task={})
        resolved |= {"budget": {"steps": 10}, "eval": {"every": 5}, "log_every": 5, "checkpoint_every": 5}
        resolved["schedule"] = {"warmup_steps": 2}
        for override in overrides:
            key, _, value = override.partition("=")
            node, _, name = key.lstrip("+").rpartition(".")
            held = json.loads(value) if value[:1] in "-0123456789[{" else value
            (resolved[node] if node else resolved)[name] = held
        resolved["data_seed"] = resolved["seed"]
        resolved["data"] = "d4"
        resolved["label"] = f"run {resolved['seed']}"
        return resolved

    def check(self, resolved: dict[str, Any], *_: Any) -> None:
        if 7 in (resolved.get("heads"), resolved["model"].get("heads")):
            raise UsageError("heads must divide the width")

    def trial_id(self, resolved: dict[str, Any]) -> str:
        return trial_id(resolved)

    def environment_class(self, resolved: dict[str, Any]) -> dict[str, Any]:
        return {"device": "cpu"}

    def cost(self, resolved: dict[str, Any], what: str) -> int:
        """Twelve parameters for each unit of width, one for each head, a hundred for each of the task's symbols."""
        self.counted += 1
        model, symbols = resolved["model"], resolved["task"].get("symbols", 0)
        if model.get("width", 4) == 13:
            raise ValueError("13 brings bad luck")
        return 12 * int(model.get("width", 4)) + int(model.get("heads", 0)) + 100 * int(symbols)

    def flops_of_a_step(self, resolved: dict[str, Any]) -> int:
        return 100 * self.cost(resolved, "flops")

    def seconds_of_a_step(self, resolved: dict[str, Any]) -> float:
        return float("nan")

    def bytes_of_a_step(self, resolved: dict[str, Any]) -> int:
        return 16 * self.cost(resolved, "params")

    def shapes(self, resolved: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        return {f"layers.{layer}.up.weight": (12, int(resolved["model"].get("width", 4))) for layer in (0, 1)}

    def at_share(self, resolved: dict[str, Any], share: float) -> list[str]:
        from swapformer.study.config import (
            budget,
        )  # it brings torch, which children with a time limit must not wait for

        return budget.at_share(resolved, share)

    def measured_metrics(self, config: dict[str, Any]) -> dict[str, str]:
        return {}

    def same_training(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """A setting `dead` does nothing, unless `alive` is another number than 0."""
        self.compared += 1
        first, second = ({k: v for k, v in each.items() if k != "dead" or each.get("alive")} for each in (one, other))
        return first == second

    def task_of(self, resolved: dict[str, Any]) -> Any:
        return SimpleNamespace(
            longest_trained=resolved.get("longest", 64),
            unit="",
            directions={"loss": "lower", "solved": "higher"},
            summaries={"longest_90": "higher"},
            evaluation=lambda split: [SimpleNamespace(name="")],
        )
