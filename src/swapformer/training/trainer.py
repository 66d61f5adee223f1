"""Lightning's trainer for one trial, as its configuration asks."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.plugins import DoublePrecision, TorchCheckpointIO

from swapformer.training.assemble import Config
from swapformer.training.callbacks import Checkpoints, Progress, Watch
from swapformer.training.parallel import strategy
from swapformer.training.ranks import Ranks
from swapformer.training.signals import Stop


class InPlace(TorchCheckpointIO):
    """Writes a checkpoint into the folder that it is for.

    Lightning's own way leads through the folder for temporary files, which may be small, or full, or on another disk,
    and where a process that is killed leaves it behind. A draft may be cut: `results.files.move` makes it count.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        content = io.BytesIO()  # a disk that is full is then told as such, and not as an error of the archive
        torch.save(checkpoint, content)
        Path(path).write_bytes(content.getbuffer())


def make_trainer(
    config: Config, directory: Path, checkpoint: Path, stop: Stop, ranks: Ranks, more: Sequence[Callback]
) -> Trainer:
    """The trainer of this process, whose files rank 0 writes."""
    settings, evaluation = config["trainer"], config["eval"]
    accumulate = settings["accumulate_grad_batches"]
    watch = Watch(directory if ranks.first else None, config["log_every"], config["divergence"], accumulate)
    callbacks = [watch, Checkpoints(checkpoint, config["checkpoint_every"], evaluation["every"], stop, ranks), *more]
    bar = ranks.first and sys.stderr.isatty()
    return Trainer(
        accelerator=settings["accelerator"],
        devices=settings["devices"],
        strategy=strategy(config, ranks),
        # Said, not found out: in a job of SLURM Lightning would take the job for its own, and requeue it.
        **_precision(settings, TorchElasticEnvironment() if ranks.count > 1 else LightningEnvironment()),
        deterministic=settings["deterministic"],
        gradient_clip_val=settings["gradient_clip_val"] or None,
        accumulate_grad_batches=accumulate,
        max_steps=config["budget"]["steps"],
        val_check_interval=evaluation["every"] * accumulate,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=bar,
        use_distributed_sampler=False,
        default_root_dir=directory,
        callbacks=[*callbacks, Progress(watch)] if bar else callbacks,
    )


def _precision(settings: Config, environment: ClusterEnvironment) -> dict[str, Any]:
    """Precision, environment, and how checkpoints are written.

    Lightning refuses the name of float64 under fsdp, but not what it stands for.
    """
    if settings["precision"] == "64-true":
        return {"plugins": [environment, InPlace(), DoublePrecision()]}
    return {"plugins": [environment, InPlace()], "precision": settings["precision"]}


_UNFIT_ADVICE = (
    ".*does not have many workers.*",  # batches come ready-made: workers would only cost
    ".*`IterableDataset` has `__len__` defined.*",
    ".*your dataloader is not resumable.*",  # its batches are a pure function of the step
    ".*GPU available but not used.*",
    ".*LeafSpec.*deprecated.*",  # Lightning's own use of torch
)


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's advice that does not fit."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for message in _UNFIT_ADVICE:
            warnings.filterwarnings("ignore", message=message)
        yield
