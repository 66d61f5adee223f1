"""Weights that a trial starts from: another trial's, or those of a file that `swapformer import` has made."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from swapformer.errors import UsageError
from swapformer.task.base import Task
from swapformer.training.selection import readout, select

_SHOWN = 5
"""How many tensors an error names."""


@dataclass(frozen=True)
class Source:
    """Weights on disk, without their numbers.

    Attributes:
        shapes: of each tensor by name.
        readout: those behind the layers, which another task may leave out.
        vocabulary: hash of how each symbol is written; None where nobody knows.
        weights: sha256 of names, types, shapes and numbers.
    """

    shapes: Mapping[str, torch.Size]
    readout: frozenset[str]
    vocabulary: str | None
    weights: str


@dataclass(frozen=True)
class Match:
    """What becomes of a source's weights in a model.

    Attributes:
        loaded: tensors that both have.
        fresh: tensors of the model that start as without a source.
        left: tensors of the source that the model has no place for.
    """

    loaded: Sequence[str]
    fresh: Sequence[str]
    left: Sequence[str]

    @property
    def text(self) -> str:
        """In words."""
        parts = [f"{len(self.loaded)} tensors were loaded"]
        parts += [f"{_names(self.fresh)} started fresh"] if self.fresh else []
        parts += [f"{_names(self.left)} had no place here"] if self.left else []
        return ", ".join(parts)


def source(path: Path) -> Source:
    """What a file holds; read again when it has changed.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise UsageError(f"the weights to start from must be readable, but {path} is not: {error.strerror}") from error
    return _source(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=32)
def _source(path: Path, changed: int, size: int) -> Source:
    weights, extra = _read(path)
    return Source(
        {name: weight.shape for name, weight in weights.items()},
        frozenset(extra["readout"]),
        extra["vocabulary"],
        fingerprint(weights),
    )


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """sha256 of names, types, shapes and numbers, wherever and in which order they lie."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        weight = weights[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(weight.dtype), list(weight.shape)]).encode())
        digest.update(weight.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def vocabulary_of(task: Task) -> str | None:
    """Hash of how each symbol of a task is written; None where its inputs are no symbols."""
    if task.interface.channels:
        return None
    return _hash(task.tokens)


def _hash(tokens: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def write(
    path: Path, weights: Mapping[str, Tensor], behind: Iterable[str], tokens: Sequence[str] | None = None
) -> None:
    """Write weights as a file that trials can start from.

    Args:
        path: of the file.
        weights: by our names.
        behind: the names of those of the readout.
        tokens: how each symbol is written; None where nobody knows.

    Raises:
        UsageError: if it cannot be written.
    """
    about = {"readout": json.dumps(sorted(behind))} | ({} if tokens is None else {"vocabulary": _hash(tokens)})
    try:
        save_file({name: weight.contiguous() for name, weight in weights.items()}, path, metadata=about)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path} must be a file that can be written, but it cannot: {error}") from error


def weights_of(path: Path) -> dict[str, Tensor]:
    """The weights of a file or a trial's checkpoint, by our names. Raises UsageError if it cannot be read."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
                known = file.metadata() or {}
            return weights, {"readout": json.loads(known.get("readout", "[]")), "vocabulary": known.get("vocabulary")}
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        held = {name.removeprefix("model."): weight for name, weight in checkpoint["state_dict"].items()}
        return held, {"readout": checkpoint.get("readout", []), "vocabulary": checkpoint.get("vocabulary")}
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, SafetensorError, pickle.UnpicklingError,
            zipfile.BadZipFile) as error:  # fmt: skip
        raise UsageError(f"the weights to start from cannot be read: {path}: {error}") from error


def match(model: nn.Module, held: Source, task: Task, config: Mapping[str, Any]) -> Match:
    """What a model takes from a source: every tensor by its name.

    What stands behind the layers may be new, or left out: an answer to another question is read there. All else must
    have the same shape on both sides, unless `init_fresh` says that it starts fresh.

    Raises:
        UsageError: if a tensor is missing, of another shape or left over, or the symbols are not the same.
    """
    chosen = select(model, config["init_fresh"], "init_fresh")
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    fits = {name for name, shape in shapes.items() if held.shapes.get(name) == shape and name not in chosen}
    fresh, left = shapes.keys() - fits, held.shapes.keys() - shapes.keys()
    problems = list(_misfits(sorted(fresh - chosen - set(readout(model))), held.shapes, shapes))
    if (unplaced := left - held.readout) and "leftovers" not in config["allow"]:
        problems.append(
            f"the model has no place for {_names(unplaced)}; choose the parts and sizes that the weights were trained "
            "with, or add allow=[leftovers]"
        )
    read = select(model, ["token_embedding"], "init_fresh") - chosen
    if read and held.vocabulary not in (None, vocabulary_of(task)) and "vocabulary" not in config["allow"]:
        problems.append(
            "its symbols are not those of this task, so every embedding would stand for another one; use the same "
            "tokeniser (task/tokeniser=trained), or init_fresh=[token_embedding], or allow=[vocabulary] if it is meant"
        )
    if not fits:
        problems.append("nothing would be loaded")
    if problems:
        raise UsageError(f"init_from={config['init_from']['source']}: {'; '.join(problems)}.")
    return Match(sorted(fits), sorted(fresh), sorted(left))


def begin(model: nn.Module, task: Task, config: Mapping[str, Any]) -> Match:
    """Give a model the weights that its trial starts from.

    Raises:
        UsageError: if they do not fit, or are no longer those that the trial was named by.
    """
    path = Path(config["init_from"]["path"])
    held = source(path)
    if held.weights != config["init_from"]["weights"]:
        raise UsageError(
            f"the weights in {path} have changed since this trial was named by them; start the command again."
        )
    found, weights = match(model, held, task, config), weights_of(path)
    model.load_state_dict({name: weights[name] for name in found.loaded}, strict=False)
    return found


def _misfits(names: Sequence[str], held: Mapping[str, torch.Size], wanted: Mapping[str, torch.Size]) -> Iterator[str]:
    """What is missing or of another shape, and what to do."""
    if missing := [name for name in names if name not in held]:
        yield f"it lacks {_names(missing)}; name what shall start fresh in init_fresh"
    other = [f"{name} is {list(held[name])} there and {list(wanted[name])} here" for name in names if name in held]
    if other:
        yield f"{_names(other)}; choose the same sizes, or say in init_fresh what starts fresh"


def _names(names: Iterable[str]) -> str:
    """Some names, and how many there are if not all are said."""
    known = sorted(names)
    return ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
