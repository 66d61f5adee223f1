"""The LightningModule that trains one model on one task, and the loss that it minimises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import add
from typing import Any

import lightning
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection
from torchmetrics.utilities import dim_zero_cat, dim_zero_max, dim_zero_min, dim_zero_sum

from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.model.kernel import AttentionPlan
from swapformer.model.layers import declare, origin_of
from swapformer.model.ops import widen
from swapformer.model.position.base import Position
from swapformer.model.topology import Topology, take_auxiliary_loss
from swapformer.random import stream_seed
from swapformer.targets import make
from swapformer.task.base import Batch, EvaluationSet, Task
from swapformer.task.metrics import SequenceMetric
from swapformer.training.assemble import Config, scaling
from swapformer.training.data import (
    BatchShare,
    EvaluationStream,
    ItemDigest,
    TrainingStream,
    drawn_position_range,
    loader,
)
from swapformer.training.inputs import ModelInputs, model_inputs, task_losses
from swapformer.training.optimiser import make_optimiser, parameter_groups
from swapformer.training.parameter_selection import readout_parameters
from swapformer.training.ranks import Ranks
from swapformer.training.schedule import Schedule
from swapformer.training.trainer import shard
from swapformer.training.weights import vocabulary_of


def _unsynchronised(metrics: MetricCollection) -> MetricCollection:
    """Metrics that torchmetrics does not gather over ranks: `merge` does, once for all that share a state."""
    for metric in metrics.values():
        metric.distributed_available_fn = lambda: False
    return metrics


_MERGED = (dim_zero_sum, dim_zero_cat, dim_zero_max, dim_zero_min)
"""The reductions of states whose merge is that of one device."""


def can_be_merged(metrics: MetricCollection) -> bool:
    """Whether metrics of parts of a set can be merged into those of all of it."""
    return all(
        metric.full_state_update is False and all(how in _MERGED for how in metric._reductions.values())
        for metric in metrics.values()
    )


def merge(metrics: MetricCollection, ranks: Ranks) -> None:
    """Give metrics the state that one device would have, where each rank has evaluated its part of a set.

    Lists keep the order of the set, since ranks have parts of it one after the other.
    """
    held = dict(metrics.items(keep_base=True, copy_state=False))
    own = {name: metric.metric_state for name, metric in held.items()}
    found = ranks.gather(move_data_to_device(own, "cpu"))  # all at once: ranks may see other metrics share a state
    for name, metric in held.items():
        last, *earlier = [move_data_to_device(part[name], metric.device) for part in reversed(found)]
        for state, value in last.items():
            setattr(metric, state, value)
        for part in earlier:  # what comes in goes before what is there
            metric.merge_state(part)


class TrialModule(lightning.LightningModule):
    """Trains `model` on `task` and evaluates it on the task's fixed sets.

    The loss of a step is the mean over all targets of its batch, however the batch is cut among parts and devices, plus
    what the model's parts leave as auxiliary losses, averaged over the cuts; what is recorded is the mean over targets
    alone. Dropout at step s depends on (seed, s) alone, so neither a resumed run nor another arm sees different
    randomness; with several devices it depends on the rank too. Ranks share the batches of an evaluation out, and their
    sums are merged: the metrics are those of one device. Where a metric cannot be merged, or a set has fewer batches
    than there are ranks, every rank evaluates all of it.

    Args:
        model: what a batch holds → the answers that the task asks for.
        task: batches and metrics.
        config: the trial's resolved configuration.
        ranks: the processes that train together; None for this one only.
    """

    def __init__(self, model: Topology, task: Task, config: Config, ranks: Ranks | None = None) -> None:
        super().__init__()
        self.model, self.task, self.config, self.ranks = model, task, config, ranks or Ranks()
        self.losses = compiled(self._losses, config["trainer"]) if config["trainer"]["compile"] else self._losses
        self.evaluated_weights: Callable[[], dict[str, Tensor]] = model.state_dict
        """The weights that an evaluation would use; a callback may evaluate others than the newest."""
        self.origins = {name: origin_of(name, parameter) for name, parameter in model.named_parameters()}
        self.readout = list(readout_parameters(model))
        self.accumulate: int = config["trainer"]["accumulate_grad_batches"]
        self.final = False
        self.results: dict[str, float] = {}
        self.digests: dict[str, ItemDigest] = {}
        self.tokens_seen = self.step = 0
        self.gradient_norm = torch.zeros(())
        self.notes: tuple[str, ...] = (
            *model.notes,
            *notes_on_parts(model, self.accumulate * self.ranks.count),
            *notes_on_lengths(model, task),
        )
        if config["trainer"]["accelerator"] != "cpu":
            self.notes += tuple(notes_on_kernels(model))
        self.loss_share = torch.zeros(())

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.model.answers(*model_inputs(batch))

    def configure_model(self) -> None:
        trainer = self.config["trainer"]
        if trainer["strategy"] == "fsdp":
            shard(self.model, self.device_mesh["data_parallel"], trainer["precision"])  # type: ignore[index]

    def training_step(self, share: BatchShare, batch_idx: int) -> Tensor:
        own = (self.ranks.rank,) if self.ranks.count > 1 else ()
        torch.manual_seed(stream_seed("step", self.config["seed"], batch_idx, *own))
        self.step = batch_idx // self.accumulate + 1
        self.tokens_seen += share.num_positions
        first, *early = self.losses(model_inputs(share.batch), share.batch)
        targets = self._targets(share)
        loss = _share(first, targets)
        self.loss_share = self.ranks.sum(loss.detach())
        for each in early:
            loss = loss + self.model.depth.loss * _share(each, targets)
        # Lightning divides by the number of parts, and the strategy by that of ranks; the sum over all of them must be
        # the mean over the whole batch.
        auxiliary = take_auxiliary_loss(self.model)
        return loss * (self.accumulate * self.ranks.count) + (0.0 if auxiliary is None else auxiliary)

    def _targets(self, share: BatchShare) -> Mapping[str, int | Tensor]:
        """For each answer, how many targets the whole batch of the step has; 1 where it has none, and no loss."""
        if self.ranks.count == 1:
            return {name: max(count, 1) for name, count in share.targets.items()}
        counts = self.ranks.sum(torch.tensor(list(share.targets.values()), device=self.device))
        return dict(zip(share.targets, counts.clamp(min=1), strict=True))

    def _losses(self, inputs: ModelInputs, batch: Batch) -> list[dict[str, Tensor]]:
        """The loss summed over all targets, by answer: of the whole model, then of each early exit.

        This is what `trainer.compile` compiles: the model and its loss in one graph.
        """
        answers = [self.model.answers(*inputs), *self.model.take_early_answers()]
        return [task_losses(self.task, each, batch) for each in answers]

    @cached_property
    def evaluations(self) -> list[tuple[str, EvaluationSet]]:
        """Every evaluation set with its split."""
        return [(split, item) for split in ("val", "test") for item in self.task.evaluation(split)]

    @property
    def current_evaluations(self) -> list[tuple[str, EvaluationSet]]:
        """All sets after training, those of the validation split during it."""
        return [pair for pair in self.evaluations if self.final or pair[0] == "val"]

    @cached_property
    def _evaluates_parts(self) -> bool:
        """Whether ranks share evaluations out."""
        names = self.task.interface.readouts
        return self.ranks.count > 1 and all(can_be_merged(self.task.metrics(name)) for name in names)

    def on_validation_start(self) -> None:
        self.collections: Sequence[Mapping[str, MetricCollection]] = [
            {name: _unsynchronised(self.task.metrics(name)).to(self.device) for name in self.task.interface.readouts}
            for _ in self.current_evaluations
        ]

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        answers = self(batch)
        if batch_idx >= self.streams[dataloader_idx].counted:
            return  # another rank counts it
        for name, metrics in self.collections[dataloader_idx].items():
            metrics.update(widen(answers[name]), batch.answers[name])

    def on_validation_epoch_end(self) -> None:
        for stream, collections in zip(self.streams, self.collections, strict=True):
            if len(stream) < stream.batches:
                for metrics in collections.values():
                    merge(metrics, self.ranks)
        sets = [
            (f"{split}{item.name}", split, item, collections)
            for (split, item), collections in zip(self.current_evaluations, self.collections, strict=True)
        ]
        measured: dict[str, Tensor] = {
            f"{split}/{answer}{'_' if answer else ''}{name}{item.name}": value
            for _, split, item, collections in sets
            for answer, metrics in collections.items()
            for name, value in metrics.compute().items()
        }
        self.results = dict(zip(measured, torch.stack(list(measured.values())).tolist(), strict=True))
        self.items = {
            name: found.items()
            for name, _, _, collections in sets
            if self.final and isinstance(found := next(iter(collections[MAIN].values())), SequenceMetric)
        }
        for split in dict.fromkeys(split for split, _ in self.current_evaluations):
            own = {key.removeprefix(f"{split}/"): v for key, v in self.results.items() if key.startswith(f"{split}/")}
            self.results |= {f"{split}/{name}": value for name, value in self.task.summarise(own).items()}

    def train_dataloader(self) -> DataLoader[Any]:
        config = self.config
        start, steps = self.trainer.global_step, config["budget"]["steps"]
        drawn_from = drawn_position_range(self.model)
        seed, parts = config["data_seed"], self.accumulate
        batches = TrainingStream(self.task, seed, start, steps, parts, drawn_from, self.ranks)
        ahead = config["trainer"].get("prefetch", False)
        return loader(batches, ahead=ahead, pinned=ahead and config["trainer"]["accelerator"] == "gpu")

    def val_dataloader(self) -> list[DataLoader[Any]]:
        batches = self.config["eval"]["final_batches" if self.final else "batches"]
        drawn_from = drawn_position_range(self.model)
        sets = {f"{split}{item.name}": item for split, item in self.current_evaluations}
        self.digests = {name: ItemDigest(self._classes) for name in sets if self.final and self.ranks.first}
        ranks = self.ranks if self._evaluates_parts else None
        self.streams = [
            EvaluationStream(item, batches, drawn_from, self.digests.get(name), ranks) for name, item in sets.items()
        ]
        return [loader(stream) for stream in self.streams]

    @property
    def _classes(self) -> int | None:
        """Answers that can be the right one; None of values."""
        readout = self.task.interface.readouts[MAIN]
        return None if readout.kind == "values" else readout.size

    def configure_optimizers(self) -> OptimizerLRScheduler:
        settings = self.config["optim"]
        for name, parameter in self.model.named_parameters():
            declare(parameter, self.origins[name])  # those of a sharded model are others
        optimiser = make_optimiser(settings)(
            parameter_groups(self.model, settings, scaling(self.config, self.task.interface))
        )
        schedule, steps = make(self.config["schedule"], Schedule), self.config["budget"]["steps"]
        scheduler = LambdaLR(optimiser, lambda step: schedule.factor(step, steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Scale the gradient so that its norm over all parameters is at most `gradient_clip_val`, or cut each entry.

        `gradient_norm` is the norm before: the one that scaling needs, or else, at steps that the history has, its own.
        """
        if gradient_clip_val and gradient_clip_algorithm != "value":
            self.gradient_norm = nn.utils.clip_grad_norm_(self.model.parameters(), gradient_clip_val)
            return
        if self.step % self.config["log_every"] == 0:
            gradients = [held.grad for held in self.model.parameters() if held.grad is not None]
            self.gradient_norm = nn.utils.get_total_norm(gradients)
        if gradient_clip_val:
            nn.utils.clip_grad_value_(self.model.parameters(), gradient_clip_val)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["tokens_seen"] = self.tokens_seen
        checkpoint["strategy"] = self.config["trainer"]["strategy"]
        checkpoint["notes"] = list(self.notes)
        checkpoint["readout"] = self.readout  # what a trial that starts from here may leave out
        checkpoint["vocabulary"] = vocabulary_of(self.task)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.tokens_seen = checkpoint["tokens_seen"]
        self.notes = tuple(checkpoint.get("notes", ()))


def _share(losses: Mapping[str, Tensor], targets: Mapping[str, int | Tensor]) -> Tensor:
    """The share of a part in the mean loss over the step's targets, summed over the answers."""
    return reduce(add, [loss / targets[name] for name, loss in losses.items()])


def compiled(function: Callable[..., Any], trainer: Mapping[str, Any]) -> Callable[..., Any]:
    """The same function, compiled by torch at its first call; weights keep their names.

    `trainer.compile` is true or a mode of `torch.compile`: reduce-overhead replays CUDA graphs, max-autotune also tries
    kernels.

    Raises:
        UsageError: on the CPU without a C++ compiler.
    """
    from torch._inductor import config, cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    if trainer["accelerator"] == "cpu":
        try:
            cpp_builder.get_cpp_compiler()
        except InvalidCxxCompiler as error:
            raise UsageError(
                "trainer.compile needs a C++ compiler on the CPU, but found no such program; install g++ or clang, "
                "name one in the environment variable CXX, or use trainer.compile=false."
            ) from error
    config.compile_threads = 1  # in this process: a trial has its own cores, and leaves no helpers behind
    mode = trainer["compile"]
    return torch.compile(function, mode=None if mode is True else mode)


def notes_on_parts(model: nn.Module, parts: int) -> Iterator[str]:
    """Quantities that change when a batch is cut into parts: means over tokens that enter it in another way than added.

    The loss of the task is that of the whole batch however it is cut.
    """
    for what, fact in (("loss", "has_auxiliary_loss"), ("statistics", "crosses_positions")):
        names = sorted({type(module).__name__ for module in model.modules() if getattr(module, fact, False)})
        if parts > 1 and names:
            yield (
                f"{' and '.join(names)} took the {what} over each of the {parts} parts of a batch, so the gradient is "
                "another than that of the whole batch at once"
            )


def notes_on_lengths(model: nn.Module, task: Task) -> Iterator[str]:
    """Position encodings whose settings do not fit the length of training.

    A table of distances has rows that training does not reach and longer sequences read, or a stretched rope is set for
    a longer training. Where positions are drawn from a larger range nothing is said.
    """
    positions = [part for part in model.modules() if isinstance(part, Position)]
    if any(each.drawn_from for each in positions):
        return
    known = {
        (type(each).__name__, getattr(each, "max_distance", 0), getattr(each, "original_len", 0)) for each in positions
    }
    trained, longest = task.train_length, task.max_length
    for name, reach, original in sorted(known):
        if longest > trained and reach >= trained:
            yield (
                f"{name} tells distances up to {reach} apart, but training has {trained} tokens: what it adds further "
                f"away is hardly trained or not, and sequences of {longest} tokens read it; lower "
                "model.position.max_distance"
            )
        if original > trained:
            yield (
                f"{name} is set for a training on {original} tokens, but this one has {trained}: set "
                f"model.position.original_len={trained}"
            )


def notes_on_kernels(model: nn.Module) -> list[str]:
    """The savings that kernels leave out on a GPU, such as that of a pattern."""
    parts: list[Any] = [part for part in model.modules() if isinstance(getattr(part, "plan", None), AttentionPlan)]
    return sorted({lost for part in parts if (lost := part.kernel.loses_on_gpu(part.plan))})
