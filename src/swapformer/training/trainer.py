"""Lightning's trainer for one trial, and how the devices of a trial share its weights (ddp, fsdp)."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.plugins import DoublePrecision, TorchCheckpointIO
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

from swapformer.interface import Interface
from swapformer.model.norm import Norm
from swapformer.model.stack import stacks
from swapformer.results.store import last_checkpoint
from swapformer.task.baselines import guessing_loss
from swapformer.training.assemble import Config
from swapformer.training.callbacks import Checkpoints, ProgressBar, ProgressLines, TrainingMonitor
from swapformer.training.ranks import Ranks
from swapformer.training.signals import StopRequest
from swapformer.training.utilisation import Utilisation


class DirectCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint directly into its folder.

    Lightning's own way leads through the folder for temporary files, which may be small, or full, or on another disk,
    and where a process that is killed leaves it behind. A draft may be cut: `results.files.move` makes it count.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        content = io.BytesIO()  # a disk that is full is then told as such, and not as an error of the archive
        torch.save(checkpoint, content)
        Path(path).write_bytes(content.getbuffer())


def make_trainer(
    config: Config,
    model: nn.Module,
    interface: Interface,
    directory: Path,
    stop: StopRequest,
    ranks: Ranks,
    more: Sequence[Callback],
) -> Trainer:
    """The trainer of this process, whose files rank 0 writes."""
    settings, evaluation = config["trainer"], config["eval"]
    accumulate = settings["accumulate_grad_batches"]
    folder, guessing = directory if ranks.first else None, guessing_loss(interface)
    watch = TrainingMonitor(folder, config["log_every"], config["divergence"], accumulate, guessing)
    # What watches a step has done so when the step is kept: a resumed trial does not see it again.
    callbacks = [
        watch,
        Utilisation(watch),
        *more,
        Checkpoints(last_checkpoint(directory), config["checkpoint_every"], evaluation["every"], stop, ranks),
    ]
    bar = ranks.first and sys.stderr.isatty()
    # Said, not found out: in a job of SLURM Lightning would take the job for its own, and requeue it.
    environment = TorchElasticEnvironment() if ranks.count > 1 else LightningEnvironment()
    plugins: list[Any] = [environment, DirectCheckpointIO()]
    double = settings["precision"] == "64-true"
    return Trainer(
        accelerator=settings["accelerator"],
        devices=settings["devices"],
        num_nodes=settings.get("nodes", 1),
        strategy=strategy(config, ranks, model),
        # Lightning refuses the name of float64 under fsdp, but not what it stands for.
        plugins=[*plugins, DoublePrecision()] if double else plugins,
        precision=None if double else settings["precision"],
        deterministic=settings["deterministic"],
        gradient_clip_val=settings["gradient_clip_val"] or None,
        gradient_clip_algorithm=settings.get("gradient_clip_algorithm", "norm"),
        profiler=_profiler(settings.get("profiler"), directory) if ranks.first else None,
        detect_anomaly=settings.get("detect_anomaly", False),
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
        callbacks=[*callbacks, ProgressBar(watch) if bar else ProgressLines(watch)] if ranks.first else callbacks,
    )


PROFILERS: Mapping[str, type[Profiler]] = {
    "simple": SimpleProfiler,
    "advanced": AdvancedProfiler,
    "pytorch": PyTorchProfiler,
}
"""Name → Lightning's profiler."""


def _profiler(name: str | None, directory: Path) -> Profiler | None:
    """One that writes to the trial's folder `profile` when the training ends."""
    if name is None:
        return None
    folder = directory / "profile"
    folder.mkdir(parents=True, exist_ok=True)
    return PROFILERS[name](dirpath=folder, filename=name)


_UNFIT_ADVICE = (
    ".*does not have many workers.*",  # batches come ready-made: workers would only cost
    ".*`IterableDataset` has `__len__` defined.*",
    ".*your dataloader is not resumable.*",  # its batches are a pure function of the step
    ".*GPU available but not used.*",
    ".*across ranks is zero.*",  # a trial of no steps, which asks for none
    ".*LeafSpec.*deprecated.*",  # Lightning's own use of torch
)


@contextmanager
def suppress_advice() -> Iterator[None]:
    """Silence those of Lightning's warnings that do not apply."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for message in _UNFIT_ADVICE:
            warnings.filterwarnings("ignore", message=message)
        yield


def strategy(config: Config, ranks: Ranks, model: nn.Module) -> Strategy | str:
    """Lightning's strategy of a trial.

    Both average gradients over the ranks. Under ddp torch looks for weights that a step left out, which then count as
    zero, only where a part says `skips_weights`. Under fsdp a checkpoint holds the whole state in one file.
    """
    name = config["trainer"]["strategy"]
    if name is None:
        return "auto"
    if name == "ddp":
        skips = any(getattr(part, "skips_weights", False) for part in model.modules())
        return DDPStrategy(find_unused_parameters=skips)
    return ModelParallelStrategy(ranks.count, 1, save_distributed_checkpoint=False)


def shard(model: nn.Module, mesh: DeviceMesh, precision: str) -> None:
    """Leave on each rank its part of every weight; layers are gathered one at a time when they compute (ZeRO-3).

    Under bf16-mixed a layer's weights are gathered in bfloat16, as autocast would cast its matrices, which halves what
    is sent. Its norms, sums of gradients and the optimiser's weights stay float32. Weights keep their names, but not
    what was noted on them. Nothing happens to a model that is sharded already.
    """
    if isinstance(model, FSDPModule):
        return
    low = torch.bfloat16 if precision == "bf16-mixed" else None
    policy = MixedPrecisionPolicy(low, torch.float32 if low else None, cast_forward_inputs=False)
    for stack in stacks(model).values():
        for layer in stack.layers:
            for part in layer.modules():
                if low and isinstance(part, Norm) and next(part.parameters(), None) is not None:
                    fully_shard(part, mesh=mesh)
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "answers")
