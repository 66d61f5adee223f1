"""Two CPU ranks for tests, forked where everything is imported: they train one configuration after the other.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from lightning import Callback, Trainer
from torch import Tensor, nn

from swapformer.study.launch.signals import unblock_sigterm
from swapformer.task.base import Batch, target_mask
from swapformer.training import module
from swapformer.training.data import BatchShare, TrainingStream
from swapformer.training.fit import Outcome, train

SECONDS = 150
"""Until they are given up."""


@dataclass(frozen=True)
class Job:
    """One training.

    Attributes:
        config, directory: of the trial.
        stop_at: the step at which rank 1 alone is asked to stop; None for never.
        spoiled: whether each part's loss is the mean over its own targets, averaged over the parts.
        unmerged: whether each rank keeps the sums of its own part of an evaluation.
        own_norm: whether the norm of a gradient is that of the weights which lie on the rank.
    """

    config: dict[str, Any]
    directory: Path
    stop_at: int | None = None
    spoiled: bool = False
    unmerged: bool = False
    own_norm: bool = False


def train_on_two_ranks(jobs: Sequence[Job]) -> list[Outcome]:
    """What rank 0 says of each job."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["swapformer.study.launch.fork_imports"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.SimpleQueue()
    processes = [context.Process(target=_rank, args=(rank, port, jobs, results)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    for process in processes:
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0], "a rank failed: its traceback is above"
    outcomes: list[Outcome] = results.get()
    return outcomes


class _StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == self.step and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def _mean_of_means(stream: TrainingStream, batch: Batch, targets: Mapping[str, int]) -> Iterator[BatchShare]:
    for share in _PARTS(stream, batch, targets):
        parts = stream.accumulate * stream.ranks.count
        own = {name: parts * int(target_mask(target).sum()) for name, target in share.batch.answers.items()}
        yield share._replace(targets=own)


_PARTS = TrainingStream._parts


def _clip_and_return_own_norm(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    held = list(parameters)
    gradients: list[Any] = [each.grad for each in held if each.grad is not None]
    norm = nn.utils.get_total_norm([gradient.to_local() for gradient in gradients])
    _CLIP(held, limit)
    return norm


_CLIP = nn.utils.clip_grad_norm_


def _rank(rank: int, port: int, jobs: Sequence[Job], results: Any) -> None:
    unblock_sigterm()  # the fork server may be a launcher's, which is deaf
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
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
        mock.patch.object(TrainingStream, "_parts", _mean_of_means if job.spoiled else _PARTS),
        mock.patch.object(module, "merge", (lambda metrics, ranks: None) if job.unmerged else module.merge),
        mock.patch.object(nn.utils, "clip_grad_norm_", _clip_and_return_own_norm if job.own_norm else _CLIP),
    ):
        return train(job.config, job.directory, watchers)
