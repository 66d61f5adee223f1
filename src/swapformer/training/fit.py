"""Train one trial in this process."""

from __future__ import annotations

import logging
import math
import pickle
import sys
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from lightning import Callback, Trainer

from swapformer.errors import UsageError
from swapformer.task.tokeniser import VOCABULARY_FILE
from swapformer.training.assemble import Config, build_model, build_task, count_parameters
from swapformer.training.callbacks import Checkpoints, Diverged, Interrupted, Progress, Watch
from swapformer.training.module import Trial
from swapformer.training.optimiser import freeze
from swapformer.training.signals import Stop, stop_on_signals
from swapformer.training.start import begin


class CorruptCheckpoint(Exception):
    """A checkpoint that cannot be read; set it aside and begin anew."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        status: finished, diverged or interrupted.
        reason: why, unless it finished.
        metrics: final values by name, such as `val/loss` or `val/accuracy@64`.
        standard_errors: of those metrics that are means over evaluation sequences.
        directions: which way each metric is better.
        steps: optimiser steps taken.
        tokens: places of training sequences seen.
        parameters: counts by kind.
        notes: what the record should say besides.
    """

    status: Literal["finished", "diverged", "interrupted"]
    reason: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    parameters: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def fit(config: Config, directory: Path, *, callbacks: Sequence[Callback] = (), final: bool = True) -> Outcome:
    """Train, evaluate, and leave `metrics.csv` and `checkpoints/last.ckpt` in `directory`.

    Resumes from `checkpoints/last.ckpt` if it is there, and then ends bit-equal to a run that was never interrupted
    (on the CPU at a fixed number of threads; on CUDA with deterministic algorithms).

    Args:
        config: the trial's resolved configuration.
        directory: the trial's folder.
        callbacks: further watchers, which must not change the training.
        final: whether to evaluate after training.

    Raises:
        CorruptCheckpoint: if that file cannot be read.
        UsageError: if the trial asks for a GPU and there is none, or its data are no longer what they were.
    """
    if config["trainer"]["accelerator"] == "gpu" and not torch.cuda.is_available():
        raise UsageError("trainer.accelerator=gpu needs a CUDA device, but this machine has none; use trainer=cpu.")
    torch.set_num_threads(config["trainer"]["threads"])
    task = build_task(config)
    if task.fingerprint() != config["data"]:
        raise UsageError("the data have changed since this trial was named by them; start the command again.")
    model = build_model(config, task.interface)
    freeze(model, config["optim"])
    module = Trial(model, task, config)
    checkpoint = directory / "checkpoints" / "last.ckpt"
    if config["init_from"] is not None and not checkpoint.exists():
        module.notes = (f"init_from={config['init_from']['source']}: {begin(model, task, config).text}",)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if (vocabulary := task.vocabulary()) is not None:
        (directory / VOCABULARY_FILE).write_text(vocabulary, encoding="utf-8")
    with stop_on_signals() as stop, _quiet():
        trainer = _trainer(config, directory, checkpoint, stop, callbacks)
        status: Literal["finished", "diverged", "interrupted"] = "finished"
        reason = None
        try:
            resume = _readable(checkpoint) if checkpoint.exists() else None
            trainer.fit(module, ckpt_path=resume, weights_only=True)
            if final:
                module.final = True
                trainer.validate(module, verbose=False)
                if not math.isfinite(module.results["val/loss"]):
                    raise Diverged(f"the validation loss is {module.results['val/loss']} after training")
        except Diverged as error:
            status, reason = "diverged", str(error)
        except Interrupted as error:
            status, reason = "interrupted", str(error)
    results = module.results if status == "finished" else {}
    directions = {**task.directions, **task.summaries}
    errors = {name: value for name, value in results.items() if _base(name).endswith("_se")}
    return Outcome(
        status=status,
        reason=reason,
        metrics={name: value for name, value in results.items() if name not in errors},
        standard_errors={_meant(name): value for name, value in errors.items()},
        directions={name: directions[_base(name)] for name in results if _base(name) in directions},
        steps=trainer.global_step,
        tokens=module.tokens_seen,
        parameters=count_parameters(model),
        notes=module.notes,
    )


def _base(name: str) -> str:
    """`val/loss@64` → `loss`."""
    return name.split("/")[-1].split("@")[0]


def _meant(name: str) -> str:
    """The metric that a standard error belongs to: `val/next_sentence_loss_se@64` → `val/next_sentence_loss@64`."""
    metric, at, length = name.partition("@")
    return metric.removesuffix("_se") + at + length


def _trainer(config: Config, directory: Path, checkpoint: Path, stop: Stop, more: Sequence[Callback]) -> Trainer:
    settings, evaluation = config["trainer"], config["eval"]
    accumulate = settings["accumulate_grad_batches"]
    watch = Watch(directory / "metrics.csv", config["log_every"], config["divergence"], accumulate)
    callbacks = [watch, Checkpoints(checkpoint, config["checkpoint_every"], evaluation["every"], stop), *more]
    bar = sys.stderr.isatty()
    return Trainer(
        accelerator=settings["accelerator"],
        devices=settings["devices"],
        precision=settings["precision"],
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


def _readable(checkpoint: Path) -> Path:
    try:
        torch.load(checkpoint, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise CorruptCheckpoint(f"{checkpoint} cannot be read: {error}") from error
    return checkpoint


_UNFIT_ADVICE = (
    ".*does not have many workers.*",  # batches come ready-made: workers would only cost
    ".*`IterableDataset` has `__len__` defined.*",
    ".*your dataloader is not resumable.*",  # its batches are a pure function of the step
    ".*GPU available but not used.*",
    ".*LeafSpec.*deprecated.*",  # Lightning's own use of torch
)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's advice that does not fit."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for message in _UNFIT_ADVICE:
            warnings.filterwarnings("ignore", message=message)
        yield
