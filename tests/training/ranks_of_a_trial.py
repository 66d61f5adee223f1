"""CPU ranks for tests, forked where everything is imported: they train one configuration after the other.

What torchrun would tell them is told here; `study/launch/test_torchrun.py` tests the start of a trial through torchrun.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from lightning import Callback, Trainer
from torch import Tensor, nn

from swapformer.study.launch.signals import unblock_sigterm
from swapformer.training import module
from swapformer.training.data import BatchShare
from swapformer.training.fit import Outcome, train
from swapformer.training.module import TrialModule

SECONDS = 150
"""Until they are given up."""


@dataclass(frozen=True)
class Job:
    """One training.

    Attributes:
        config, directory: of the trial.
        stop_at: the step at which rank 1 alone is asked to stop; None for never.
        spoiled: whether each rank's loss is the mean over its own targets, averaged over the ranks.
        unmerged: whether each rank keeps the sums of its own part of an evaluation.
        own_norm: whether the norm of a gradient is that of the weights which lie on the rank.
    """

    config: dict[str, Any]
    directory: Path
    stop_at: int | None = None
    spoiled: bool = False
    unmerged: bool = False
    own_norm: bool = False


def train_on_ranks(jobs: Sequence[Job], count: int = 2) -> list[Outcome]:
    """What rank 0 of so many says of each job."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["swapformer.study.launch.fork_imports"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.SimpleQueue()
    processes = [context.Process(target=_rank, args=(rank, count, port, jobs, results)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    for process in processes:
        process.kill()
    assert [process.exitcode for process in processes] == [0] * count, "a rank failed: its traceback is above"
    outcomes: list[Outcome] = results.get()
    return outcomes


class _StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == self.step and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def _own_targets(trial: TrialModule, share: BatchShare) -> dict[str, int]:
    return {name: trial.ranks.count * count for name, count in share.targets.items()}


def _clip_and_return_own_norm(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    held = list(parameters)
    gradients: list[Any] = [each.grad for each in held if each.grad is not None]
    norm = nn.utils.get_total_norm([gradient.to_local() for gradient in gradients])
    _CLIP(held, limit)
    return norm


_CLIP = nn.utils.clip_grad_norm_


def _rank(rank: int, count: int, port: int, jobs: Sequence[Job], results: Any) -> None:
    unblock_sigterm()  # the fork server may be a launcher's, which is deaf
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {name: str(number) for name, number in {**numbers, "MASTER_PORT": port}.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if Path("/sys/class/net/lo").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    faulthandler.dump_traceback_later(SECONDS * 0.8, exit=True)
    try:
        outcomes = [_outcome(job) for job in jobs]
        if rank == 0:
            results.put(outcomes)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the other rank waits for this one


def _outcome(job: Job) -> Outcome:
    watchers = [] if job.stop_at is None else [_StopAt(job.stop_at)]
    with (
        mock.patch.object(TrialModule, "_targets", _own_targets if job.spoiled else TrialModule._targets),
        mock.patch.object(module, "merge", (lambda metrics, ranks: None) if job.unmerged else module.merge),
        mock.patch.object(nn.utils, "clip_grad_norm_", _clip_and_return_own_norm if job.own_norm else _CLIP),
    ):
        return train(job.config, job.directory, watchers)
