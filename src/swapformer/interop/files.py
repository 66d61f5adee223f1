"""The files of a checkpoint of Hugging Face `transformers`: config.json and safetensors, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.yaml_reader import parse_foreign_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def read_config(directory: Path) -> dict[str, Any]:
    """The config.json of a checkpoint. Raises UsageError unless it is a JSON object."""
    return _json(directory / CONFIG, "a checkpoint's directory must hold")


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Read every tensor of a checkpoint, from one safetensors file or from the shards that its index names.

    Raises:
        UsageError: if there is no such file, one is damaged, or a shard lacks a tensor that the index promises.
    """
    if (directory / WEIGHTS).is_file():
        return _tensors(directory / WEIGHTS)
    if not (directory / INDEX).is_file():
        pickles = sorted(path.name for path in directory.glob("*.bin"))
        raise UsageError(
            f"{directory} must hold {WEIGHTS} or {INDEX}, but it has neither"
            + (f"; {pickles[0]} is a pickle, which could run any code, and is not read" if pickles else "")
        )
    return dict(_sharded(directory))


def _sharded(directory: Path) -> Iterator[tuple[str, Tensor]]:
    index = _json(directory / INDEX, "the index of a sharded checkpoint must be")
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(file, str) for file in shards.values()):
        raise UsageError(f"{directory / INDEX} must have a `weight_map` from tensors to files, but it has none")
    for file in sorted(set(shards.values())):
        if Path(file).name != file:
            raise UsageError(f"{directory / INDEX} must name files in its folder, but it names {file!r}")
        tensors = _tensors(directory / file)
        for name in (name for name, shard in shards.items() if shard == file):
            if name not in tensors:
                raise UsageError(f"{directory / file} must hold {name}, as {INDEX} says, but it does not")
            yield name, tensors[name]


def write(directory: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write config.json and model.safetensors into a directory, which is made if it does not exist.

    Raises:
        UsageError: if the directory holds a checkpoint already, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if taken := [name for name in (CONFIG, WEIGHTS, INDEX) if (directory / name).exists()]:
            raise UsageError(f"the directory to write to must be free, but {directory} holds {', '.join(taken)}")
        # Readers look at this word before they look at anything else.
        save_file(dict(weights), directory / WEIGHTS, metadata={"format": "pt"})
        (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{directory} must be a directory that can be written, but: {error}") from error


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path} must be a whole safetensors file, but it cannot be read: {error}") from error


def _json(path: Path, must: str) -> dict[str, Any]:
    try:
        found = parse_foreign_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{must} {path.name}, but there is no {path}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} must be JSON, but it cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} must hold a JSON object, but it holds {type(found).__name__}")
    return found
