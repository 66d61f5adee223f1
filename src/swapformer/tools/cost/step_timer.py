"""Times the steps of one trial: `python -m swapformer.tools.cost.step_timer`, its configuration on standard input.

The trial has a process of its own, since the peak memory of a process never falls.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from swapformer.training import fit as training
from swapformer.training.assemble import Config

_NEVER = 10**9


def peak_memory() -> float:
    """The largest resident memory of this process so far, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's getrusage starts from the parent's peak
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes


class StepTimer(Callback):
    """Notes when each optimiser step ended, its batch, history and callbacks included."""

    def __init__(self, cuda: bool) -> None:
        self.ends: list[float] = []
        self._cuda = cuda

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step > len(self.ends):
            if self._cuda:
                torch.cuda.synchronize()
            self.ends.append(time.perf_counter())


def measure(config: Config, warm_up: int, steps: int) -> dict[str, Any]:
    """Median seconds of a training step over `steps` after `warm_up`, and peak memory.

    Evaluations, checkpoints and starting weights are left out. Raises RuntimeError if training did not finish.
    """
    cuda = config["trainer"]["accelerator"] == "gpu"
    quiet = {
        "budget": {**config["budget"], "steps": warm_up + steps},
        "eval": {**config["eval"], "every": _NEVER},
        "checkpoint_every": _NEVER,
        "init_from": None,
        "probes": {},
    }
    clock, start = StepTimer(cuda), peak_memory()
    with tempfile.TemporaryDirectory() as folder:
        outcome = training.fit({**config, **quiet}, Path(folder), callbacks=[clock], final=False)
    if outcome.status != "finished":
        raise RuntimeError(f"its steps ended as {outcome.status}: {outcome.reason}")
    ends = clock.ends[warm_up - 1 :]
    return {
        "step_seconds": median(after - before for before, after in pairwise(ends)),
        "peak_bytes": round(1e6 * peak_memory()),
        "start_bytes": round(1e6 * start),
        "device_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "tokens_per_step": outcome.tokens // outcome.steps,
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(measure(asked["config"], asked["warm_up"], asked["steps"])))
