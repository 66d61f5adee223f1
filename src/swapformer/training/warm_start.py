"""Starting a trial from the weights of another: which of them it takes, and which mismatches it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.model.layers import Role, origin_of
from swapformer.results.config import differences, read_config
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan
from swapformer.training.parameter_selection import readout_parameters, select_parameters
from swapformer.training.weights import WeightsSummary, read_weights, summarise_weights, vocabulary_of

_SHOWN = 5
"""How many tensors an error names."""
_SEGMENTS = "segments.weight"
"""What an encoder has that was trained on pairs."""


@dataclass(frozen=True)
class WeightMatch:
    """The weights of a source that a model takes.

    Attributes:
        loaded: tensors that both have.
        fresh: tensors of the model that start as without a source.
        left: tensors of the source that the model does not have.
        otherwise: settings of the model in which the source's was another, where its configuration is known.
    """

    loaded: Sequence[str]
    fresh: Sequence[str]
    left: Sequence[str]
    otherwise: Sequence[str] = ()

    @property
    def text(self) -> str:
        """In words."""
        parts = [f"{len(self.loaded)} tensors were loaded"]
        parts += [f"{_names(self.fresh)} started fresh"] if self.fresh else []
        parts += [f"{_names(self.left)} were left out"] if self.left else []
        parts += [f"the source's model had other {_names(self.otherwise)}"] if self.otherwise else []
        return ", ".join(parts)


def match_weights(model: nn.Module, held: WeightsSummary, task: Task, config: Mapping[str, Any]) -> WeightMatch:
    """Match the tensors of a source with those of a model by their names.

    Parts after the layers may be new, or left out: an answer to another question is read there. All else must
    have the same shape on both sides, unless `init_fresh` says that it starts fresh. Parts without weights may be
    others than in a trial that is the source; they are named.

    Raises:
        UsageError: if a tensor is missing, of another shape or left over, the symbols are not the same, or heads are
            others than those that queries and keys were trained for.
    """
    chosen = select_parameters(model, config["init_fresh"], "init_fresh")
    for name, module in model.named_modules():  # running averages belong to the parameters beside them
        parameters = {f"{name}.{each}" for each, _ in module.named_parameters(recurse=False)}
        if parameters and parameters <= chosen:
            chosen = chosen | {f"{name}.{each}" for each, _ in module.named_buffers(recurse=False)}
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    fits = {name for name, shape in shapes.items() if held.shapes.get(name) == shape and name not in chosen}
    fresh, left = shapes.keys() - fits, held.shapes.keys() - shapes.keys()
    problems = list(_misfits(sorted(fresh - chosen - set(readout_parameters(model))), held.shapes, shapes))
    if (unexpected := left - held.readout) and "leftovers" not in config["allow"]:
        known = (
            " (task.segments=true embeds segments)" if _SEGMENTS in unexpected and "segments" in config["task"] else ""
        )
        problems.append(
            f"the model has no weights called {_names(unexpected)}; choose the parts and sizes that the weights were "
            f"trained with{known}, or add allow=[leftovers]"
        )
    roles = {name: origin_of(name, held).role for name, held in model.named_parameters()}
    # A whole model of the user's own declares no table of symbols: each of its weights may be one.
    read = {name for name, role in roles.items() if role in (Role.TOKEN_EMBEDDING, Role.MATRIX)} - chosen
    if task.interface.readouts[MAIN].kind == "symbols":  # each row of these is of a symbol too
        read |= fits & {"head.weight", "symbol_bias"}
    if read and held.vocabulary not in (None, vocabulary_of(task)) and "vocabulary" not in config["allow"]:
        problems.append(
            "its symbols are not those of this task, so every embedding would stand for another one; use the same "
            "tokeniser (task/tokeniser=trained), or init_fresh=[token_embedding, readout], or allow=[vocabulary] if it "
            "is meant"
        )
    if not fits:
        problems.append("nothing would be loaded")
    source = _source_config(config)
    otherwise = {} if source is None else differences(source["model"], config["model"])
    here = _heads(config, task)
    there = [held.heads] * len(here) if source is None else _heads(source, task)
    if any(one not in (None, other) for one, other in zip(there, here, strict=False)):
        remedy = f"model.num_heads={there[0]}" if len(set(there)) == 1 else "the same model.num_heads and model.layers"
        problems.append(f"its queries and keys are of {_numbers(there)} heads, not of {_numbers(here)}; give {remedy}")
    if problems:
        raise UsageError(f"init_from={config['init_from']['source']}: {'; '.join(problems)}.")
    return WeightMatch(
        sorted(fits),
        sorted(fresh),
        sorted(left),
        sorted({f"model.{name.removesuffix('._target_')}" for name in otherwise}),
    )


def load_initial_weights(model: nn.Module, task: Task, config: Mapping[str, Any]) -> WeightMatch:
    """Give a model the weights that its trial starts from.

    Raises:
        UsageError: if they do not fit, or are no longer those that the trial was named by.
    """
    path = Path(config["init_from"]["path"])
    held = summarise_weights(path)
    if held.weights != config["init_from"]["weights"]:
        raise UsageError(
            f"the weights in {path} have changed since this trial was named by them; start the command again."
        )
    found, weights = match_weights(model, held, task, config), read_weights(path)
    model.load_state_dict({name: weights[name] for name in found.loaded}, strict=False)
    return found


def _source_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The configuration of the trial that is the source; None of another source."""
    place = Path(config["init_from"]["path"]).parent
    found = read_config(place.parent) if place.name == "checkpoints" else {}
    return found if "model" in found else None


def _heads(config: Mapping[str, Any], task: Task) -> list[int | None]:
    """The number of heads of each layer, those of an encoder after those of its decoder."""
    plan = build_plan(config, task.interface)
    return [layer.dims.num_heads for layer in (*plan.layers, *plan.encoder)]


def _numbers(each: Sequence[int | None]) -> str:
    """`2` where all are 2, `2, 4` otherwise."""
    return ", ".join(map(str, each[:1] if len(set(each)) == 1 else each))


def _misfits(names: Sequence[str], held: Mapping[str, torch.Size], wanted: Mapping[str, torch.Size]) -> Iterator[str]:
    """The tensors that are missing or have another shape, and what to do."""
    if missing := [name for name in names if name not in held]:
        yield f"it lacks {_names(missing)}; name what shall start fresh in init_fresh"
    other = [f"{name} is {list(held[name])} there and {list(wanted[name])} here" for name in names if name in held]
    if other:
        yield f"{_names(other)}; choose the same sizes, or say in init_fresh what starts fresh"


def _names(names: Iterable[str]) -> str:
    """Some names, and how many there are if not all are said."""
    known = sorted(names)
    return ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
