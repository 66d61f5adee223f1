"""Where trials run on this machine: cores and devices, shared out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from swapformer.study.trial import Trial

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Slot:
    """A place where one trial runs at a time: some threads, or some devices."""

    devices: str | None = None
    """The value of CUDA_VISIBLE_DEVICES; None where there is none to choose."""


def make_slots(trials: Sequence[Trial], slots: int | None = None) -> list[Slot]:
    """One slot per cores that a trial computes with, or per devices that it uses.

    With `slots` given there are that many, which share the devices in turn.
    """
    trainers = [trial.config.get("trainer", {}) for trial in trials]
    groups = _device_groups(trainers)
    if groups:
        return [Slot(groups[i % len(groups)]) for i in range(slots or len(groups))]
    wanted = max((threads_of(trial) * trial.config.get("trainer", {}).get("devices", 1) for trial in trials), default=1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [Slot()] * (slots or max(1, cores // wanted))


def _device_groups(trainers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The devices of each slot as CUDA_VISIBLE_DEVICES spells them; empty when the trials run on the CPU."""
    if all(trainer.get("accelerator", "cpu") == "cpu" for trainer in trainers):
        return []
    import torch

    count = torch.cuda.device_count()  # asks the driver's library, without starting CUDA in this process
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",")[:count] if visible else [str(index) for index in range(count)]
    wanted = [trainer.get("devices", 1) for trainer in trainers]
    size = max((devices for devices in wanted if isinstance(devices, int) and devices > 0), default=1)
    return [",".join(names[start : start + size]) for start in range(0, len(names) - size + 1, size)]


def threads_of(trial: Trial) -> int:
    """How many threads a trial computes with, on each of its devices."""
    return int(trial.config.get("trainer", {}).get("threads") or 1)


@contextmanager
def pinned_threads(threads: int) -> Iterator[None]:
    """Start processes within: their numeric libraries make this many threads."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
