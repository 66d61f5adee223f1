"""Trains one trial, in this process or in one for each of its devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.model.stack import stacks
from swapformer.results import items
from swapformer.results.store import last_checkpoint
from swapformer.results.vocabulary import write_vocabulary
from swapformer.targets import make
from swapformer.task.base import Task
from swapformer.task.baselines import baselines
from swapformer.training.assemble import Config, build_in_precision, count_parameters, rebuild_task
from swapformer.training.callbacks import Diverged, Interrupted, write_checkpoint
from swapformer.training.module import TrialModule
from swapformer.training.nodes import ranks_of
from swapformer.training.optimiser import freeze
from swapformer.training.processor import require_bfloat16
from swapformer.training.ranks import Ranks
from swapformer.training.signals import stop_on_signals
from swapformer.training.torchrun import run_ranks
from swapformer.training.trainer import make_trainer, suppress_advice
from swapformer.training.warm_start import load_initial_weights
from swapformer.training.weights import CorruptCheckpoint as CorruptCheckpoint
from swapformer.training.weights import read_checkpoint

Status = Literal["finished", "diverged", "interrupted", "killed"]


@dataclass(frozen=True)
class Outcome:
    """The end of a training.

    Attributes:
        status: finished, diverged or interrupted; killed where a process of several died or hung.
        reason: why, unless it finished.
        metrics: final values by name, such as `val/loss` or `val/accuracy@64`.
        standard_errors: of those metrics that are means over evaluation sequences.
        directions: which way each metric is better.
        evaluation: of each set of the final evaluation, such as `val@64`, how many items it has and their hash.
        exact: the metrics that no seed changes.
        baselines: of each loss, that of guessing and of counting.
        steps: optimiser steps taken.
        tokens: positions of training sequences seen.
        parameters: counts by kind.
        notes: what the record should say besides.
    """

    status: Status
    reason: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    evaluation: dict[str, dict[str, Any]] = field(default_factory=dict)
    exact: tuple[str, ...] = ()
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    parameters: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def fit(config: Config, directory: Path, *, callbacks: Sequence[Callback] = (), final: bool = True) -> Outcome:
    """Train, evaluate, and leave `metrics.csv` and `checkpoints/last.ckpt` in `directory`.

    Resumes from `checkpoints/last.ckpt` if it is there, and then ends bit-equal to a run that was never interrupted
    (on the CPU at a fixed number of threads; on CUDA with deterministic algorithms). A trial on several devices is
    trained by as many processes, which torchrun starts and this one watches; on several nodes by those of all of them.

    Args:
        config: the trial's resolved configuration.
        directory: the trial's folder.
        callbacks: further watchers, which must not change the training, of a trial on one device.
        final: whether to evaluate after training.

    Raises:
        CorruptCheckpoint: if that file cannot be read.
        UsageError: if the trial asks for GPUs or bfloat16 that are not there, or its data are no longer what they were.
        RuntimeError: if the training of one of several processes failed.
    """
    trainer = config["trainer"]
    require_devices(trainer)
    require_bfloat16(config)
    if ranks_of(trainer) == 1:
        return train(config, directory, callbacks, final)
    if callbacks:
        raise ValueError("a trial on several devices cannot be watched by callbacks of another process; use one device")
    report = run_ranks({"config": dict(config), "final": final}, directory, trainer)
    if "outcome" in report:
        lists = {name: tuple(report["outcome"].get(name, ())) for name in ("notes", "exact")}
        return Outcome(**{**report["outcome"], **lists})
    raise _ERRORS[report["error"]](report["reason"])


def require_devices(trainer: Mapping[str, Any]) -> None:
    """Raise UsageError for GPUs that are not there."""
    if trainer["accelerator"] == "gpu" and torch.cuda.device_count() < trainer["devices"]:
        raise UsageError(
            f"trainer.accelerator=gpu with trainer.devices={trainer['devices']} needs as many CUDA devices, but there "
            f"are {torch.cuda.device_count()} here; use fewer, or trainer=cpu."
        )


_ERRORS: dict[str, type[Exception]] = {"usage": UsageError, "corrupt": CorruptCheckpoint, "failed": RuntimeError}
"""What a rank's error is here."""


def train(config: Config, directory: Path, callbacks: Sequence[Callback] = (), final: bool = True) -> Outcome:
    """Train in this process: the whole trial, or one rank's part of it under torchrun."""
    torch.set_num_threads(config["trainer"]["threads"])
    torch.set_float32_matmul_precision("high" if config["trainer"].get("tf32") else "highest")
    # Memory that is overwritten need not be filled before.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    ranks = Ranks() if ranks_of(config["trainer"]) == 1 else Ranks.from_environment()
    task = rebuild_task(config)
    model = build_in_precision(config, task.interface)  # Lightning would convert it after a checkpoint has been read
    freeze(model, config["optim"])
    parameters = count_parameters(model)
    for stack in stacks(model).values():
        stack.checkpointed = config["trainer"]["gradient_checkpointing"]
    module = TrialModule(model, task, config, ranks)
    checkpoint = last_checkpoint(directory)
    if config["init_from"] is not None and not checkpoint.exists():
        loaded = load_initial_weights(model, task, config).text
        module.notes = (*module.notes, f"init_from={config['init_from']['source']}: {loaded}")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if ranks.first and (vocabulary := task.vocabulary()) is not None:
        write_vocabulary(directory, vocabulary)
    status: Status = "finished"
    reason = None
    with stop_on_signals() as stop, suppress_advice():
        own = [make(node, Callback, f"callbacks.{name}") for name, node in (config.get("callbacks") or {}).items()]
        trainer = make_trainer(config, model, task.interface, directory, stop, ranks, [*own, *callbacks])
        try:
            resume = _checked(checkpoint, config, module.state_dict(), own) if checkpoint.exists() else None
            trainer.fit(module, ckpt_path=resume, weights_only=True)
            if config["budget"]["steps"] == 0:
                write_checkpoint(trainer, checkpoint, ranks)  # of the weights that a training would start from
            if final:
                module.final = True
                trainer.validate(module, verbose=False)
                if ranks.first:
                    rows = {name: items.grouped(found.numpy()) for name, found in module.items.items() if len(found)}
                    items.write_items(directory / items.FILE, rows)
                if not math.isfinite(module.results["val/loss"]):
                    raise Diverged(f"the validation loss is {module.results['val/loss']} after training")
        except Diverged as error:
            status, reason = "diverged", str(error)
        except Interrupted as error:
            status, reason = "interrupted", str(error)
    return Outcome(
        status=status,
        reason=reason,
        steps=trainer.global_step,
        tokens=module.tokens_seen,
        parameters=parameters,
        notes=(*module.notes, *(_infinite_metrics(module.results) if status == "finished" else ())),
        baselines=baselines(task, _asked(module)) if status in ("finished", "diverged") else {},
        **_measured(module, task) if status == "finished" else {},
    )


def _measured(module: TrialModule, task: Task) -> dict[str, Any]:
    """The final evaluation's metrics, their standard errors, which way each is better, and what it was of."""
    results, directions = module.results, {**task.directions, **task.summaries, "mfu": "higher"}
    errors = {name: value for name, value in results.items() if _base(name).endswith("_se")}
    return {
        "metrics": {name: value for name, value in results.items() if name not in errors},
        "standard_errors": {_metric_of_error(name): value for name, value in errors.items()},
        "directions": {name: directions[_base(name)] for name in results if _base(name) in directions},
        "exact": tuple(name for name in results if _base(name) in task.exact),
        "evaluation": {name: digest.summary for name, digest in module.digests.items()},
    }


def _asked(module: TrialModule) -> dict[str, Tensor]:
    """Counts of the right answers in the final evaluation, by evaluation set; none of values."""
    return {name: digest.asked for name, digest in module.digests.items() if digest.asked is not None}


def _infinite_metrics(results: Mapping[str, float]) -> Iterator[str]:
    """The metrics that a record leaves out, in words."""
    for name, value in results.items():
        if not math.isfinite(value):
            yield f"{name} is {value}: it counts as lost"


def _base(name: str) -> str:
    """`val/loss@64` → `loss`."""
    return name.split("/")[-1].split("@")[0]


def _metric_of_error(name: str) -> str:
    """The metric that a standard error belongs to: `val/next_sentence_loss_se@64` → `val/next_sentence_loss@64`."""
    metric, at, length = name.partition("@")
    return metric.removesuffix("_se") + at + length


def _checked(checkpoint: Path, config: Config, weights: Mapping[str, Tensor], own: Sequence[Callback] = ()) -> Path:
    """The checkpoint, once it has been read. Refuses one whose optimiser's state fsdp would give to other weights."""
    held = read_checkpoint(checkpoint)
    needed = {"optimizer_states", "lr_schedulers", "loops", "global_step", "callbacks"}
    if lacking := sorted(needed - held.keys()):
        raise CorruptCheckpoint(f"it lacks {', '.join(lacking)}")
    for callback in own:
        if callback.state_dict() and callback.state_key not in held["callbacks"]:
            raise CorruptCheckpoint(f"it lacks the state of {callback.state_key}")
    alone = ranks_of(config["trainer"]) == 1 and not config["trainer"]["compile"]
    if alone and _shapes(held["state_dict"]) != _shapes(weights):
        raise CorruptCheckpoint("its weights have other names or shapes than the model's")
    if config["trainer"]["strategy"] == "fsdp" != held.get("strategy"):
        raise UsageError(f"fsdp can only go on from its own checkpoints, but {checkpoint} was written without it.")
    return checkpoint


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}
