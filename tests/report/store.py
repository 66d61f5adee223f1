"""A fake store with known effects: what the study and training rooms would have written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from swapformer.results.record import SCHEMA_VERSION

ENVIRONMENT = {"device": "cpu", "torch": "2.13.0", "threads": 1, "deterministic": True}
MACHINE = {"python": "3.11.7", "lightning": "2.6.6", "platform": "Linux", "processor": "one · AVX2"}


@dataclass
class Store:
    """A study under construction; `write` puts it on disk and returns (study_dir, runs_dir)."""

    root: Path
    arms: dict[str, list[str]]
    baseline: str
    metrics: list[str]
    seeds: Sequence[int] = range(8)
    claims: list[dict[str, Any]] = field(default_factory=list)
    directions: dict[str, str] = field(default_factory=lambda: {"val/loss": "lower", "val/accuracy": "higher"})
    manifest: dict[str, Any] = field(default_factory=dict)
    name: str = "99_fake"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def study(self) -> Path:
        return self.runs / "studies" / self.name

    def trial(self, arm: str, seed: int) -> str:
        return f"{list(self.arms).index(arm):08x}{seed:08x}"

    def directory(self, arm: str, seed: int) -> Path:
        return self.runs / "trials" / self.trial(arm, seed)

    def write_manifest(self) -> None:
        self.study.mkdir(parents=True, exist_ok=True)
        impossible = {entry["arm"] for entry in self.manifest.get("impossible", [])}
        cells = [
            {"arm": arm, "seed": seed, "trial": self.trial(arm, seed)}
            for arm in self.arms if arm not in impossible for seed in self.seeds
        ]  # fmt: skip
        manifest = {
            "schema_version": 1, "name": self.name, "scale": "cpu", "question": "Does it matter?",
            "baseline": self.baseline, "metrics": self.metrics, "arms": self.arms, "axis": None,
            "seeds": list(self.seeds), "claims": self.claims, "cells": cells, "impossible": [],
            "commit": "0123456789abcdef", "command": f"swapformer study {self.name}",
            "shared_config": {"budget": {"steps": 2000}},
        }  # fmt: skip
        (self.study / "manifest.json").write_text(json.dumps(manifest | self.manifest))

    def write_trial(
        self, arm: str, seed: int, metrics: Mapping[str, float], status: str = "finished",
        history: Mapping[str, Sequence[tuple[int, float]]] | None = None, probes: Mapping[str, float] | None = None,
        place: int | None = None, **record: Any,
    ) -> Path:  # fmt: skip
        """A trial of a seed; `place` stands for the seed in its id, where an arm has several trials of one seed."""
        number = seed if place is None else place
        directory = self.directory(arm, number)
        directory.mkdir(parents=True, exist_ok=True)
        content = {
            "schema_version": SCHEMA_VERSION, "id": self.trial(arm, number),
            "status": status, "reason": None, "seed": seed,
            "metrics": dict(metrics), "standard_errors": dict.fromkeys(metrics, 0.004),
            "directions": self.directions,
            "steps": 2000, "tokens": 1536000, "parameters": {"total": 804096, "non_position": 795904},
            "environment": ENVIRONMENT, "machine": MACHINE, "git": {"commit": "0123456789abcdef", "dirty": False},
            "data": {"fingerprint": "ab" * 32}, "command": "swapformer train", "started": "2025-01-01T00:00:00+00:00",
            "ended": "2025-01-01T00:00:20+00:00", "seconds": 20.5, "attempts": 1, "results_epoch": 1,
        }  # fmt: skip
        (directory / "record.json").write_text(json.dumps(content | record))
        rows = [f"{step},{name},{value}\n" for name, values in (history or {}).items() for step, value in values]
        if rows:
            (directory / "metrics.csv").write_text("step,name,value\n" + "".join(rows))
        if probes:
            (directory / "artifacts").mkdir(exist_ok=True)
            (directory / "artifacts" / "probe.json").write_text(json.dumps({"metrics": probes, "data": {}}))
        return directory

    def fill(self, means: Mapping[str, float], spread: float = 0.02, paired: float = 0.05, steps: int = 20) -> None:
        """Finished trials everywhere: loss = mean + common to the seed + own, with a falling learning curve."""
        generator = np.random.default_rng(7)
        common = generator.normal(0, paired, len(self.seeds))
        for arm, mean in means.items():
            for index, seed in enumerate(self.seeds):
                loss = mean + common[index] + generator.normal(0, spread)
                curve = falling(loss, steps, generator.normal(0, 0.004, steps))
                self.write_trial(arm, seed, {"val/loss": loss}, history={"val/loss": curve})
        self.write_manifest()

    def write(self, value: Callable[[str, int], Mapping[str, float]]) -> tuple[Path, Path]:
        """Finished trials everywhere with the metrics that `value(arm, seed)` gives; then the manifest."""
        for arm in self.arms:
            for seed in self.seeds:
                self.write_trial(arm, seed, value(arm, seed))
        self.write_manifest()
        return self.study, self.runs


def falling(end: float, steps: int, noise: Sequence[float]) -> list[tuple[int, float]]:
    """A learning curve that falls from 4.5 to `end`, exactly at its last step."""
    places = np.arange(1, steps + 1)
    values = end + (4.5 - end) * (np.exp(-5 * places / steps) - np.exp(-5)) + np.asarray(noise) * (places < steps)
    return [(int(100 * place), float(value)) for place, value in zip(places, values, strict=True)]
