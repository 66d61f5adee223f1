"""Probe of interventions: the trained weights, evaluated in a model or on data that were changed afterwards."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe
from swapformer.ranges import Fraction, Positive
from swapformer.results.moments import REPLAY
from swapformer.results.shapes import Curve, Matrix, Shape, Table
from swapformer.task.base import PositionShift, Task
from swapformer.training.assemble import Config, build_model, build_plan, factory, rebuild_task
from swapformer.training.data import drawn_position_range
from swapformer.training.weights import vocabulary_of

Parts = Mapping[str, Any]
"""The changed parts of a configuration: settings of `model` and `task`, `data`, and `offset` and `stride`."""
_HEAD = re.compile(r"l(\d+)h(\d+)")
_SHOWN = 2


class Replay(Probe):
    """The trial's final evaluation again, with the same weights and some settings changed: what they are used for.

    An attention weight is no proof that what it rests on is used; a loss that moves under a change is. Each change has
    a name and one or several variants:

        one                the metrics are `probe/replay/NAME/loss`, with `@L` for the other evaluation sets
        a swept number n   `probe/replay/NAME/loss@n`, on the set like training's; and `probe/replay/NAME/reach`, the
                           smallest n from which on the accuracy is at least `kept` of the unchanged model's (for a
                           window imposed on a trained model, how far it needs to see); none where the largest n is
                           too small
        each head l0h3     `probe/replay/NAME/negligible`, the share of heads without any one of which the loss is less
                           than `negligible` nats higher, and `probe/replay/NAME/largest`, what the dearest one costs

    The shapes are a curve for each swept number, a matrix of layers × heads for heads, and a table of all others.

    Args:
        changes: name → label of a variant (empty for one) → its changed parts, as the configuration was resolved.
        metrics: of the task's main answer.
        kept: share of the accuracy that `reach` asks for, in (0, 1].
        negligible: nats.

    Raises:
        ValueError: for no changes or no metrics, and for what `unsuited` says.
    """

    def __init__(
        self,
        *,
        changes: Mapping[str, Mapping[str, Parts]] | None,
        metrics: Sequence[str],
        kept: Fraction,
        negligible: Positive,
    ) -> None:
        if not changes:
            raise ValueError(
                "a replay needs something that is changed; set probes.replay.changes={NAME: ['model/pattern=window']} "
                "or other overrides, or leave out probes=replay."
            )
        if not metrics:
            raise ValueError("`metrics` of a replay must name at least one metric, such as loss.")
        self.changes, self.metrics, self.kept, self.negligible = dict(changes), list(metrics), kept, negligible
        self.trial: Config = {}

    def attach(self, config: Config) -> None:
        self.trial = config

    def variants(self) -> dict[str, Config]:
        return {
            f"{name}@{label}" if label else name: changed_config(self.trial, parts)
            for name, parts_of in self.changes.items()
            for label, parts in parts_of.items()
        }

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if missing := [name for name in self.metrics if name not in task.directions]:
            known = ", ".join(task.directions)
            return f"the task has no metric {missing[0]!r} to replay; set probes.replay.metrics to some of {known}."
        held = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
        for (name, config), parts in zip(self.variants().items(), self._parts(), strict=True):
            try:
                other, changed = self._other_task(task, config, parts), None
                with torch.device("meta"):
                    changed = factory(config["model"]["topology"])(build_plan(config, other.interface))
            except (ValueError, TypeError, RuntimeError) as error:
                return f"the change {name} of replay cannot be made: {str(error).splitlines()[0]}"
            if problem := _misfit(held, {key: tuple(weight.shape) for key, weight in changed.state_dict().items()}):
                return f"the change {name} of replay makes a model of other weights ({problem}); change what has none."
            if vocabulary_of(other) != vocabulary_of(task):
                return f"the change {name} of replay makes a task of other symbols; keep the task's tokeniser and size."
            limit = min((part.limit for part in changed.modules() if getattr(part, "limit", None)), default=math.inf)
            last = _shift(parts).last(drawn_position_range(changed) or other.max_length)
            if last >= limit:
                return (
                    f"the change {name} of replay needs the position {last}, but the model has a table of {limit} "
                    f"rows; train it with model.max_len={last + 1} or more."
                )
        return None

    def measure(self, model: Topology, task: Task) -> Finding:
        unchanged = self._replayed(model, task, self.trial, {})
        metrics: dict[str, float] = {}
        shapes: dict[str, Shape] = {}
        single: dict[str, Mapping[str, float]] = {"unchanged": unchanged}
        for name, parts_of in self.changes.items():
            found = {
                label: self._replayed(model, self._other_task(task, config, parts), config, parts)
                for label, parts in parts_of.items()
                for config in [changed_config(self.trial, parts)]
            }
            if list(found) == [""]:
                single[name] = found[""]
                metrics |= {f"{REPLAY}{name}/{key}": value for key, value in found[""].items()}
            elif all(map(_HEAD.fullmatch, found)):
                rises = {label: each["loss"] - unchanged["loss"] for label, each in found.items()}
                shares = [rise < self.negligible for rise in rises.values()]
                metrics[f"{REPLAY}{name}/negligible"] = sum(shares) / len(shares)
                metrics[f"{REPLAY}{name}/largest"] = max(rises.values())
                shapes[name] = _head_matrix(name, rises)
            else:
                swept = {int(label): each for label, each in sorted(found.items(), key=lambda pair: int(pair[0]))}
                for number, each in swept.items():
                    metrics |= {f"{REPLAY}{name}/{key}@{number}": each[key] for key in self.metrics}
                if "accuracy" in self.metrics:
                    accuracies = {number: each["accuracy"] for number, each in swept.items()}
                    if (smallest := reach(accuracies, self.kept * unchanged["accuracy"])) is not None:
                        metrics[f"{REPLAY}{name}/reach"] = smallest
                shapes |= {f"{name}/{key}": _curve(name, key, swept, unchanged[key]) for key in self.metrics}
        shapes["changes"] = _table(single)
        return Finding(metrics, shapes)

    def _parts(self) -> Iterator[Parts]:
        for parts_of in self.changes.values():
            yield from parts_of.values()

    def _other_task(self, task: Task, config: Config, parts: Parts) -> Task:
        return rebuild_task(config) if "task" in parts else task

    def _replayed(self, model: Topology, task: Task, config: Config, parts: Parts) -> dict[str, float]:
        """The metrics of a variant by name, such as `loss` and `loss@64`: all its weights are the model's."""
        from swapformer.training.final_evaluation import evaluate  # late: it brings Lightning

        other = build_model(config, task.interface)
        other.to(next((weight.dtype for weight in model.parameters()), torch.float32))
        other.load_state_dict(model.state_dict())
        found = evaluate(other, task, config, _shift(parts))
        names = [f"{name}{item.name}" for name in self.metrics for item in task.evaluation("val")]
        return {name: found[f"val/{name}"] for name in names}


def changed_config(config: Config, parts: Parts) -> Config:
    """The configuration of a trial with changed parts, of which nothing is probed."""
    model, task = {**config["model"], **parts.get("model", {})}, {**config["task"], **parts.get("task", {})}
    return {**config, "model": model, "task": task, "data": parts.get("data", config["data"]), "probes": {}}


def reach(accuracies: Mapping[int, float], wanted: float) -> int | None:
    """The smallest number from which on all accuracies are at least as wanted; None if that of the largest is not."""
    found = None
    for number, accuracy in sorted(accuracies.items(), reverse=True):
        if accuracy < wanted:
            break
        found = number
    return found


def _shift(parts: Parts) -> PositionShift:
    return PositionShift(parts.get("offset", 0), parts.get("stride", 1))


def _misfit(held: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]]) -> str:
    """The differences between the weights that a model needs and those that there are; empty where they do not."""
    names = [name for name in sorted({*held, *wanted}) if held.get(name) != wanted.get(name)]
    shown = [f"{name}: {_size(held.get(name))} trained, {_size(wanted.get(name))} needed" for name in names[:_SHOWN]]
    return "; ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _size(shape: Sequence[int] | None) -> str:
    return "none" if shape is None else str(list(shape))


def _head_matrix(name: str, rises: Mapping[str, float]) -> Matrix:
    places = {tuple(map(int, _HEAD.fullmatch(label).groups())): rise for label, rise in rises.items()}  # type: ignore[union-attr]
    layers, heads = (range(max(place[axis] for place in places) + 1) for axis in (0, 1))
    return Matrix(
        f"What heads are needed for ({name})",
        "How much the loss rises, in nats, when the output of one head alone is taken as zero.",
        [f"layer {layer + 1}" for layer in layers],
        [f"head {head + 1}" for head in heads],
        [[places.get((layer, head)) for head in heads] for layer in layers],
        unit="nats",
        per_seed=True,
    )


def _curve(name: str, metric: str, swept: Mapping[int, Mapping[str, float]], unchanged: float) -> Curve:
    return Curve(
        f"{metric} by {name}, set after training",
        "The trained weights are evaluated with another setting; the other line is the model as it was trained.",
        name,
        f"{metric} in nats" if metric == "loss" else metric,
        list(swept),
        {"changed": [each[metric] for each in swept.values()], "as trained": [unchanged] * len(swept)},
    )


def _table(found: Mapping[str, Mapping[str, float]]) -> Table:
    columns = list(dict.fromkeys(name for each in found.values() for name in each))
    return Table(
        "What the trained weights do after a change",
        "The final evaluation again, with the same weights; `unchanged` is as the record has it.",
        ["change", *columns],
        [[name, *(each.get(column) for column in columns)] for name, each in found.items()],
    )
