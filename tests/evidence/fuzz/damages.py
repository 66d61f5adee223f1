"""Damages to the files of a store: each file in each way, and fields of the wrong types."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from swapformer.yaml_reader import StoredLoader, parse_yaml

Damage = Callable[[Path], None]
"""Does something to a path."""


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def missing(path: Path) -> None:
    """It is gone."""
    _clear(path)


def empty(path: Path) -> None:
    """A file without content."""
    _clear(path)
    path.touch()


def cut(path: Path) -> None:
    """Its first half; of a folder, what lies in it goes."""
    if path.is_dir():
        _clear(path)
        path.mkdir()
        return
    content = path.read_bytes() if path.exists() else b'{"host": "a", "pid"'
    path.write_bytes(content[: len(content) // 2])


def directory(path: Path) -> None:
    """A folder with something in it, or a file where a folder was."""
    was = path.is_dir()
    _clear(path)
    if was:
        path.write_text("no folder")
    else:
        path.mkdir()
        (path / "inside").touch()


def link(path: Path) -> None:
    """A link to itself."""
    _clear(path)
    path.symlink_to(path.name)


def garbage(path: Path) -> None:
    """Bytes that are no text, with zeros among them."""
    _clear(path)
    path.write_bytes(random.Random(0).randbytes(300) + bytes(20))


def nested(path: Path) -> None:
    """Brackets, a hundred thousand deep."""
    _clear(path)
    path.write_text("[" * 100_000)


def a_list(path: Path) -> None:
    """A list in JSON and in YAML."""
    _clear(path)
    path.write_text("[1, 2]")


DAMAGES: Mapping[str, Damage] = {
    each.__name__: each for each in (missing, empty, cut, directory, link, garbage, nested, a_list)
}
"""Every way in which any file can be damaged."""

TRIAL_FILES = (
    *("record.json", "config.yaml", "metrics.csv", "lock", "heartbeat", "checkpoints", "checkpoints/last.ckpt"),
    *("artifacts", "artifacts/*.json", "."),
)
"""What the folder of a trial holds (a pattern stands for its first file), and the folder itself."""
STUDY_FILES = ("manifest.json", ".")

WRONG_VALUES: tuple[Any, ...] = (None, True, -1, 10**400, "text", [], {}, [{}], float("nan"))
"""Values that fields may hold by accident; for each field some of them are of the wrong type."""


def place(folder: Path, name: str) -> Path:
    """The path that a name of these tables means in a folder."""
    return folder if name == "." else next(folder.glob(name)) if "*" in name else folder / name


def wrong_types(path: Path) -> Iterator[tuple[str, str]]:
    """(what was done, text) for each field of a file of JSON or YAML, and each wrong value in its place."""
    text = path.read_text(encoding="utf-8")
    raw = json.loads(text) if path.suffix == ".json" else parse_yaml(text, StoredLoader)
    for keys in _places(raw):
        for value in WRONG_VALUES:
            changed = copy.deepcopy(raw)
            node = changed
            for key in keys[:-1]:
                node = node[key]
            if _same_kind(node[keys[-1]], value):
                continue
            node[keys[-1]] = value
            written = json.dumps(changed) if path.suffix == ".json" else yaml.safe_dump(changed)
            yield f"{'.'.join(map(str, keys))} = {str(value)[:20]}", written


def _places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of a node; of lists, and of what lies below a field, the first."""
    pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    pairs = pairs[:1] if above or isinstance(node, list) else pairs
    for key, value in pairs:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*above, key))


def _same_kind(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (isinstance(one, str) or one == other)


def _of_state(change: Callable[[dict[str, Any]], Any]) -> Damage:
    """A change to a checkpoint that still reads as whole."""

    def damage(path: Path) -> None:
        torch.save(change(torch.load(path, map_location="cpu", weights_only=True)), path)

    return damage


def _weights(change: Callable[[torch.Tensor], Any]) -> Damage:
    return _of_state(lambda held: {**held, "state_dict": {k: change(v) for k, v in held["state_dict"].items()}})


CHECKPOINTS: Mapping[str, Damage] = {
    "a list": _of_state(lambda held: [1, 2]),
    "a tensor": _of_state(lambda held: torch.zeros(3)),
    "no weights": _of_state(lambda held: {key: value for key, value in held.items() if key != "state_dict"}),
    "weights alone": _of_state(lambda held: {"state_dict": held["state_dict"]}),
    "a list of weights": _of_state(lambda held: {**held, "state_dict": [1]}),
    "numbers for names": _of_state(lambda held: {**held, "state_dict": dict(enumerate(held["state_dict"].values()))}),
    "numbers for weights": _weights(lambda weight: 3),
    "other names": _of_state(
        lambda held: {**held, "state_dict": {f"{name}x": weight for name, weight in held["state_dict"].items()}}
    ),
    "other shapes": _weights(lambda weight: weight.flatten()[:1]),
    "not a number": _weights(lambda weight: weight * float("nan")),
}
"""What a checkpoint may hold instead."""
