"""Weights on disk: files that trials can start from, checkpoints of trials, and their fingerprints."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from swapformer.errors import UsageError, cut
from swapformer.model.topology import Topology
from swapformer.results.config import built_from
from swapformer.results.store import is_trial_id, last_checkpoint
from swapformer.task.base import Task
from swapformer.task.language import kept_language
from swapformer.training.assemble import Config, build_in_precision, build_task, rebuild_task


@dataclass(frozen=True)
class WeightsSummary:
    """A summary of weights on disk, without their numbers.

    Attributes:
        shapes: of each tensor by name.
        readout: those behind the layers, which another task may leave out.
        vocabulary: hash of how each symbol is written; None where nobody knows.
        heads: how many a layer has; None where nobody knows, or the trial that they are of knows.
        weights: sha256 of names, types, shapes and numbers.
    """

    shapes: Mapping[str, torch.Size]
    readout: frozenset[str]
    vocabulary: str | None
    heads: int | None
    weights: str


def summarise_weights(path: Path) -> WeightsSummary:
    """The summary of a file of weights; read again when it has changed.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise UsageError(f"the weights to start from must be readable, but {path} is not: {error.strerror}") from error
    return _source(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=32)
def _source(path: Path, changed: int, size: int) -> WeightsSummary:
    weights, extra = _read(path)
    return WeightsSummary(
        {name: weight.shape for name, weight in weights.items()},
        frozenset(extra["readout"]),
        extra["vocabulary"],
        extra.get("heads"),
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
    return None if task.interface.channels else _hash(task.tokens)


def _hash(tokens: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def write_weights(
    path: Path,
    weights: Mapping[str, Tensor],
    behind: Iterable[str],
    tokens: Sequence[str] | None = None,
    heads: int | None = None,
) -> None:
    """Write weights as a file that trials can start from.

    Args:
        path: of the file.
        weights: by our names.
        behind: the names of those of the readout.
        tokens: how each symbol is written; None where nobody knows.
        heads: how many a layer has; None where nobody knows.

    Raises:
        UsageError: if it cannot be written.
    """
    about = {"readout": json.dumps(sorted(behind))} | ({} if tokens is None else {"vocabulary": _hash(tokens)})
    about |= {} if heads is None else {"heads": str(heads)}
    try:
        save_file({name: weight.contiguous() for name, weight in weights.items()}, path, metadata=about)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path} must be a file that can be written, but it cannot: {error}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a file or a trial's checkpoint, by our names. Raises UsageError if it cannot be read."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
                known = file.metadata() or {}
            heads = int(known["heads"]) if "heads" in known else None
            readout = json.loads(known.get("readout", "[]"))
            return weights, {"readout": readout, "vocabulary": known.get("vocabulary"), "heads": heads}
        checkpoint = read_checkpoint(path)
        return weights_of(checkpoint), {
            "readout": checkpoint.get("readout", []),
            "vocabulary": checkpoint.get("vocabulary"),
        }
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(f"the weights cannot be read: {path}: {cut(error)}") from error


class CorruptCheckpoint(ValueError):
    """A checkpoint is no file, is cut or garbage, or holds something else than a trial's state."""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state of a trial as a checkpoint has it, on the CPU: the one reader of `last.ckpt`.

    Raises:
        FileNotFoundError: if it does not exist.
        CorruptCheckpoint: if it cannot be read, is not a trial's, or is that of another trial than its folder's.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch does not look at the sums of its archives
        if broken is not None:
            raise CorruptCheckpoint(f"{path.name} is damaged: the sum of {broken} is wrong")
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, CorruptCheckpoint):
        raise
    except (OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, OverflowError,
            pickle.UnpicklingError, zipfile.BadZipFile) as error:  # fmt: skip
        raise CorruptCheckpoint(f"{path.name} cannot be read ({cut(f'{type(error).__name__}: {error}')})") from error
    weights = found.get("state_dict") if isinstance(found, dict) else None
    if not isinstance(weights, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in weights.items()
    ):
        raise CorruptCheckpoint(f"{path.name} holds no `state_dict` of tensors")
    own, place = found.get("trial"), path.parent.parent.name
    if isinstance(own, str) and is_trial_id(own) and is_trial_id(place) and own != place:
        raise CorruptCheckpoint(f"{path.name} is another trial's, {own}")
    return found


def checkpoint_step(directory: Path) -> int | None:
    """The optimiser step that a trial would resume from; None where it has no checkpoint that can be read."""
    try:
        found = torch.load(last_checkpoint(directory), map_location="cpu", mmap=True, weights_only=True)
        return int(found["global_step"])
    except Exception:  # what is wrong with it is said when the trial runs
        return None


def weights_of(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights that a trial was evaluated with, by our names: the newest of its checkpoint, or their average.

    Raises:
        CorruptCheckpoint: unless all are finite.
    """
    held = checkpoint.get("evaluated", checkpoint["state_dict"])
    found = {name.removeprefix("model."): weight for name, weight in held.items()}
    for name, weight in found.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise CorruptCheckpoint(f"the weights {name} hold numbers that are not finite")
    return found


def restore(config: Config, directory: Path) -> tuple[Task, Topology]:
    """The task of a trial and its model as the last checkpoint has it, in evaluation mode on the CPU.

    Args:
        config: the trial's resolved configuration.
        directory: the trial's folder.

    Raises:
        UsageError: if the data are no longer those that it was trained on, there is no checkpoint, or it or the
            configuration is damaged.
    """
    with built_from(directory):
        task = rebuild_task(config)
    return task, _restore_model(config, directory, task)


def restore_writer(config: Config, directory: Path) -> tuple[Task, Topology]:
    """The model of a trial as `restore` gives it, and how its symbols are read and written.

    That is what the trial kept in its folder: the data that a task was made of may have gone or changed. A task
    without a tokeniser is made of its settings.

    Raises:
        UsageError: if the symbols are not those that it was trained on, and as `restore`.
    """
    task: Task | None = kept_language(directory)
    if task is None:
        with built_from(directory):
            task = rebuild_task(config) if "tokeniser" in config["task"] else build_task(config)
    return task, _restore_model(config, directory, task)


def _restore_model(config: Config, directory: Path, task: Task) -> Topology:
    path = last_checkpoint(directory)
    try:
        checkpoint = read_checkpoint(path)
        weights = weights_of(checkpoint)
    except FileNotFoundError:
        raise UsageError(f"trial {directory.name} has no {path.name} to go on from; train it again") from None
    except CorruptCheckpoint as error:
        raise UsageError(f"the checkpoint of trial {directory.name} is damaged: {error}; train it again") from error
    if checkpoint.get("vocabulary") not in (None, vocabulary_of(task)):
        raise UsageError(
            "the symbols of a trial's task must be those that its model was trained on, but the task has others now; "
            "put its earlier data or code back, or train again"
        )
    with built_from(directory):
        model = build_in_precision(config, task.interface)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"{path.name} of trial {directory.name} is another model's: {cut(error)}") from error
    return model.eval()
