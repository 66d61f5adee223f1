"""Probes: measurements on a trained model, replayed from its checkpoint and kept as artifacts of the trial."""

from __future__ import annotations

from pathlib import Path

import torch

from swapformer.probes.base import Probe
from swapformer.results.artifacts import Artifact, has_artifact, write_artifact
from swapformer.targets import make
from swapformer.training.assemble import Config
from swapformer.training.weights import restore


def replay(config: Config, directory: Path) -> None:
    """Run the probes that `config` asks for and that the trial in `directory` has no artifact of yet.

    What a probe left that was asked with other settings stays beside it.
    """
    wanted = {name: node for name, node in config["probes"].items() if not has_artifact(directory, name, dict(node))}
    if not wanted:
        return
    task, model = restore(config, directory)
    for name, node in wanted.items():
        probe: Probe = make(node, Probe)
        probe.attach(config)
        with torch.no_grad():
            finding = probe.measure(model, task)
        write_artifact(directory, name, Artifact(dict(node), finding.metrics, finding.shapes))
