"""Slots: the cores and GPUs of this machine, shared out among the trials that run side by side.

The GPUs are asked of the driver's own tool: no torch is needed, and CUDA is left to the trials.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from swapformer.errors import UsageError
from swapformer.paths import environment
from swapformer.study.launch.machine import cores
from swapformer.study.launch.trial import Trial

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
VISIBLE = "CUDA_VISIBLE_DEVICES"
_NOTHING = ("", "-1", "NoDevFiles")  # the last is SLURM's
_GPU = re.compile(r"GPU (\d+): ")
_PARTITION = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Slot:
    """The threads or devices on which one trial runs at a time."""

    devices: str | None = None
    """The value of CUDA_VISIBLE_DEVICES; None where there is none to choose."""

    def occupy(self) -> None:
        """Show this process only the slot's devices; before it starts CUDA."""
        if self.devices is not None:
            if VISIBLE not in os.environ:  # the names are nvidia-smi's, which counts along the bus
                os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            os.environ[VISIBLE] = self.devices


def make_slots(
    trials: Sequence[Trial],
    slots: int | None = None,
    slots_per_gpu: int | None = None,
    gpus: Sequence[int | str] | None = None,
) -> list[Slot]:
    """One slot per cores that a trial keeps busy, or `slots_per_gpu` (1) per devices that it uses.

    With `slots` given there are that many, which share the devices in turn; with `slots_per_gpu` too it is a limit.

    Raises:
        UsageError: for GPUs that there are not, or settings of GPUs for trials that use none.
    """
    trainers = [trial.config.get("trainer", {}) for trial in trials]
    if trials and not any(_on_gpu(trainer) for trainer in trainers):
        given = {"slots_per_gpu": slots_per_gpu, "gpus": gpus}
        if idle := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"settings of GPUs ({', '.join(idle)}) need trials that run on them; give trainer=gpu too")
    groups = _device_groups(trainers, gpus) if any(map(_on_gpu, trainers)) else []
    if groups:
        shared = len(groups) * (slots_per_gpu or 1)
        count = shared if slots is None else slots if slots_per_gpu is None else min(slots, shared)
        return [Slot(groups[i % len(groups)]) for i in range(count)]
    if any(map(_on_gpu, trainers)):  # a driver without nvidia-smi, or no GPU at all: the trial will say which
        return [Slot()] * (slots or slots_per_gpu or 1)
    return [Slot()] * (slots or max(1, cores() // cores_of(trials)))


def require_room(trials: Sequence[Trial], together: int) -> None:
    """Refuse more trials on a GPU than its memory holds; a step that cannot be counted is left to torch.

    Raises:
        UsageError
    """
    from swapformer.study.config.cost import bytes_of_a_step  # late: a trial on a CPU needs no count
    from swapformer.study.config.sizes import gigabytes, memory

    configs = {json.dumps([t.config["model"], t.config["task"], t.config["trainer"]]): t.config for t in trials}
    room, peaks = memory("gpu"), []
    for config in configs.values():
        try:
            peaks.append(bytes_of_a_step(config))
        except UsageError:
            continue
    if peaks and together * max(peaks) > room:
        raise UsageError(
            f"{together} trials on a GPU take {gigabytes(together * max(peaks))} at a time, but it has "
            f"{gigabytes(room)}; give --slots-per-gpu {max(1, int(room // max(peaks)))}, or smaller batches"
        )


def _on_gpu(trainer: Mapping[str, Any]) -> bool:
    return bool(trainer.get("accelerator", "cpu") != "cpu")


def _device_groups(trainers: Sequence[Mapping[str, Any]], gpus: Sequence[int | str] | None) -> list[str]:
    """The devices of each slot as CUDA_VISIBLE_DEVICES spells them; empty when no GPU is found."""
    names = chosen_gpus(gpus)
    size = max(map(_devices, trainers), default=1)
    if size > 1 and any(name.startswith("MIG-") for name in names):
        raise UsageError(
            f"trainer.devices={size} needs whole GPUs, since CUDA shows a process only one part of a partitioned one "
            f"(MIG), but there are {', '.join(names)}; choose others with hydra.launcher.gpus, or use trainer.devices=1"
        )
    if names and size > len(names):
        raise UsageError(f"trainer.devices={size} needs {size} GPUs, but there are {len(names)}: {', '.join(names)}")
    return [",".join(names[start : start + size]) for start in range(0, len(names) - size + 1, size)]


def _devices(trainer: Mapping[str, Any]) -> int:
    devices = trainer.get("devices", 1)
    return devices if isinstance(devices, int) and devices > 0 else 1


def visible_gpus() -> list[str]:
    """The GPUs that a process started here would see, as CUDA_VISIBLE_DEVICES spells them; none where none is found."""
    given = os.environ.get(VISIBLE)
    if given is None:
        return _from_driver()
    names = [name.strip() for name in given.split(",")]  # CUDA ignores what stands behind the first entry that is none
    return names[: next((index for index, name in enumerate(names) if name in _NOTHING), len(names))]


def chosen_gpus(wanted: Sequence[int | str] | None) -> list[str]:
    """The GPUs that trials may use: those named by `wanted`, or all that are visible.

    A machine whose driver has no tool says nothing of its GPUs: there, what is named is believed.

    Raises:
        UsageError: if one of `wanted` is not visible, or is named twice.
    """
    found = visible_gpus()
    if wanted is None:
        return found
    names = [str(name) for name in wanted]
    known = found or VISIBLE in os.environ
    strangers = [name for name in names if known and name not in found]
    if strangers or not names or len(set(names)) < len(names):
        raise UsageError(
            f"gpus must name GPUs that are visible here ({', '.join(found) or 'none'}), each once, but {names} is given"
        )
    return names


def _from_driver() -> list[str]:
    """Indices in the order of the bus; of a GPU that is partitioned, its partitions."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if gpu := _GPU.match(line):
            found[gpu[1]] = []
        elif (part := _PARTITION.match(line)) and found:
            found[next(reversed(found))].append(part[1])
    return [name for gpu, parts in found.items() for name in parts or [gpu]]


def devices_of(trials: Sequence[Trial]) -> int:
    """The number of GPUs that the largest of the trials uses; 0 where none uses any."""
    return max((_devices(trial.config["trainer"]) for trial in trials if _on_gpu(trial.config["trainer"])), default=0)


def threads_of(trial: Trial) -> int:
    """The number of threads of a trial, on each of its devices."""
    return int(trial.config.get("trainer", {}).get("threads") or 1)


def cores_of(trials: Sequence[Trial]) -> int:
    """The number of cores that the largest of the trials keeps busy."""
    return max((threads_of(trial) * _devices(trial.config.get("trainer", {})) for trial in trials), default=1)


def pinned_threads(threads: int) -> AbstractContextManager[None]:
    """Start processes within: their numeric libraries make this many threads."""
    return environment(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
