"""Measurements: what a model costs or holds, found by a separate trial without training."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from swapformer.measure.base import MeasuredModel, Measurement
from swapformer.measure.clock import Clock, OtherWork
from swapformer.results.artifacts import MEASURED, Artifact, write_artifact
from swapformer.targets import find, make
from swapformer.training.assemble import Config, build_model, count_parameters, rebuild_task
from swapformer.training.warm_start import load_initial_weights

if TYPE_CHECKING:
    from swapformer.training.fit import Outcome

_PRECISIONS = {"64-true": torch.float64, "bf16-true": torch.bfloat16}
_CASTS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def is_timed(config: Mapping[str, Any]) -> bool:
    """Whether a trial's numbers depend on the machine."""
    node = config.get("measure") or {}
    return "_target_" in node and bool(find(node["_target_"]).timed)


def measure(config: Config, directory: Path) -> Outcome:
    """Measure what a trial's configuration asks for, and leave what figures are drawn from in `directory`.

    Raises:
        UsageError: if the trial asks for a GPU that is not there, or its data are no longer what they were.
    """
    from swapformer.training.fit import Outcome, require_devices  # late: it brings Lightning

    trainer = config["trainer"]
    require_devices(trainer)
    measurement: Measurement = make(config["measure"], Measurement)
    if (outcome := measurement.run(config, directory)) is not None:
        return outcome
    torch.set_num_threads(trainer["threads"])
    device = torch.device("cuda" if trainer["accelerator"] == "gpu" else "cpu")
    task = rebuild_task(config)
    model = build_model(config, task.interface)
    parameters, notes = count_parameters(model), []
    if config["init_from"] is not None:
        notes.append(f"init_from={config['init_from']['source']}: {load_initial_weights(model, task, config).text}")
    model = model.to(device, _PRECISIONS.get(trainer["precision"], torch.float32)).eval()
    subject, others = MeasuredModel(config, task, model, Clock(device)), OtherWork()
    with as_trained(trainer, device):
        finding = measurement.measure(subject)
    if measurement.timed:
        notes += [note for note in (subject.clock.note, others.note) if note is not None]
    shapes = {**finding.shapes, **subject.clock.shapes}
    write_artifact(
        directory, MEASURED, Artifact(dict(config["measure"]), finding.metrics, shapes, exact=tuple(finding.exact))
    )
    directions = measurement.directions()
    lost = [f"{name} is {value}: it counts as lost" for name, value in finding.metrics.items() if not isfinite(value)]
    return Outcome(
        "finished",
        metrics=dict(finding.metrics),
        directions={name: directions[name] for name in finding.metrics},
        exact=tuple(finding.exact),
        parameters=parameters,
        notes=(*notes, *lost),
    )


@contextmanager
def as_trained(trainer: Mapping[str, Any], device: torch.device) -> Iterator[None]:
    """Compute as a training does: deterministic algorithms and TensorFloat-32 if asked, and under mixed precision
    weights that are cast in every step.

    A cache of casts would keep those of the first step, which measures no step of a training.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    products = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if trainer.get("tf32") else "highest")
    precision = trainer["precision"]
    if trainer["deterministic"]:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as Lightning does
    torch.use_deterministic_algorithms(bool(trainer["deterministic"]))
    # Memory that is overwritten need not be filled before.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    cast = torch.autocast(device.type, _CASTS[precision], cache_enabled=False) if precision in _CASTS else nullcontext()
    try:
        with cast:
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.set_float32_matmul_precision(products)
