"""Model FLOPs utilisation: the share of its devices' peak that a training reaches, added by a callback."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from swapformer.results.history import UTILISATION
from swapformer.task.base import Task
from swapformer.training.callbacks import TrainingMonitor
from swapformer.training.nodes import ranks_of
from swapformer.training.operations import batch_cost, built, kind_of_device

PEAKS: Mapping[str, tuple[float, float, float]] = {
    "B200": (2250, 1125, 75),
    "H200": (989.4, 494.7, 66.9),
    "H100 PCIe": (756, 378, 51.2),
    "H100 NVL": (835, 417, 60),
    "H100": (989.4, 494.7, 66.9),
    "A100": (312, 156, 19.5),
    "V100 PCIE": (112, math.nan, 14),
    "V100": (125, math.nan, 15.7),
    "L40S": (362, 183, 91.6),
    "L4": (121, 60, 30.3),
    "A10": (125, 62.5, 31.2),
    "T4": (65, math.nan, 8.1),
    "RTX 4090": (165.2, 82.6, 82.6),
    "RTX 3090": (71, 35.6, 35.6),
}
"""Words of a device's name → its peak in TFLOP/s with 16-bit numbers, with TF32 and with float32, of dense products
summed in float32, as NVIDIA's data sheets have them. A name belongs to the first that it contains."""


def peak(device: str, precision: str) -> float:
    """The operations a second that a device could do at most, by its name and Lightning's precision.

    Not known (nan) are float64, a part of a device (MIG, GRID), another variant of one (Laptop, Ti, D, NVL) and what
    the table does not name. Float32 counts as TF32 where torch may use it.
    """
    words = set(device.replace("-", " ").split())
    name, found = next(((name, peaks) for name, peaks in PEAKS.items() if words.issuperset(name.split())), ("", None))
    variant = words & {"MIG", "GRID", "Laptop", "Ti", "D", "NVL"} - set(name.split())
    if found is None or variant or precision.startswith("64"):
        return math.nan
    half, tf32, single = found
    if precision.startswith("32"):
        return 1e12 * (tf32 if torch.get_float32_matmul_precision() != "highest" else single)
    return 1e12 * half


def device_name(device: torch.device) -> str:
    """The name of a GPU; empty for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def least_seconds(config: Mapping[str, Any], task: Task, rows: int, device: str) -> float:
    """The seconds that a step of `rows` sequences would take at the peak of its devices; nan where that is not known.

    Divided by the seconds that it took, that is the model FLOPs utilisation (Chowdhery et al. 2022, arXiv 2204.02311,
    appendix B). Operations are those of the model: what gradient checkpointing computes again is left out.
    """
    trainer = config["trainer"]
    most = peak(device, str(trainer["precision"])) * ranks_of(trainer)
    if math.isnan(most):
        return math.nan
    try:
        model, _ = built(config, task.interface, "float32")
        given, kind = model.example(rows, task.train_length, "meta"), kind_of_device(str(trainer["accelerator"]))
        found = batch_cost(model, given, task.train_length, None, kind)
    except Exception:  # what it does depends on the data, or a part of the user's own does not count on meta
        return math.nan
    return (int(found["forward"] or 0) + int(found["backward"] or 0)) / most


class Utilisation(Callback):
    """Adds the share of the devices' peak that training reached to each row of a loss, and to the final results.

    Args:
        watch: writes the rows, and has the seconds of training until each.
    """

    def __init__(self, watch: TrainingMonitor) -> None:
        self.watch, self.least, self.reached = watch, math.nan, math.nan
        self.since = (0, math.nan)  # the step and the seconds of the newest row

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.watch.folder is not None and (name := device_name(trainer.strategy.root_device)):
            module: Any = pl_module
            rows = module.task.train_batch(module.config["data_seed"], 0).inputs.shape[0]
            self.least = least_seconds(module.config, module.task, rows, name)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.since = (trainer.global_step, self.watch.watch.seconds)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        step = trainer.global_step
        if math.isnan(self.least) or step == self.since[0] or step % self.watch.log_every:
            return
        (before, seconds), self.since = self.since, (step, self.watch.watch.seconds)
        self.watch.write(step, {UTILISATION: self.least * (step - before) / max(self.since[1] - seconds, 1e-9)})

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reached = self.least * trainer.global_step / max(self.watch.watch.seconds, 1e-9)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit" and not math.isnan(self.reached):
            results: dict[str, float] = pl_module.results  # type: ignore[assignment]
            results[UTILISATION] = self.reached
