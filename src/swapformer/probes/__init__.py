"""Probes: measurements on a trained model, replayed from its checkpoint and kept as artifacts of the trial."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from swapformer.probes.base import Probe
from swapformer.targets import make
from swapformer.training.assemble import Config
from swapformer.training.weights import restore


def replay(config: Config, directory: Path) -> None:
    """Run the probes that `config` asks for and that `directory/artifacts` does not hold yet.

    Each leaves `artifacts/<probe>.json` with `metrics`, `data` and the `settings` it was measured with, replaced whole;
    a probe asked for with other settings is measured again.
    """
    wanted = {name: node for name, node in config["probes"].items() if not _have(_artifact(directory, name), node)}
    if not wanted:
        return
    task, model = restore(config, directory)
    for name, node in wanted.items():
        with torch.no_grad():
            finding = make(node, Probe).measure(model, task)
        path = _artifact(directory, name)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps({"settings": dict(node), "metrics": finding.metrics, "data": finding.data}))
        os.replace(draft, path)


def _artifact(directory: Path, name: str) -> Path:
    return directory / "artifacts" / f"{name}.json"


def _have(path: Path, settings: Config) -> bool:
    try:
        return bool(json.loads(path.read_text())["settings"] == dict(settings))
    except (OSError, ValueError, KeyError, TypeError):
        return False
