"""Identity of a trial: the part of its configuration that can change its result, and the hash by which it is known.

Ids outlive the code. An option that is added later leaves every id as it was, since a setting at its neutral value is
left out: one that equals the default which its class declares, or its entry in NEUTRAL. What is renamed is hashed by
its old name (RENAMED). So a default that a class declares, and an entry of either table, is never changed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any

from swapformer.errors import UsageError
from swapformer.measure import is_timed
from swapformer.results.config import command_of
from swapformer.results.moments import steps_of
from swapformer.study.launch.machine import hardware
from swapformer.targets import find, source_files, targets
from swapformer.training.nodes import ranks_of

RESULTS_EPOCH = 6
"""Raised whenever a change can move a number, so that older trials are not taken for new ones."""

CHANGES_RESULT = (
    *("seed", "data_seed", "model", "task", "eval", "divergence", "log_every", "optim", "schedule", "trainer"),
    *("init_fresh", "measure", "callbacks"),
)
"""The keys of a configuration whose nodes can change a result; how it is logged, kept and launched cannot."""

NEUTRAL: Mapping[str, Any] = {
    "trainer.nodes": 1,
    "trainer.strategy": None,
    "trainer.gradient_checkpointing": False,
    "trainer.compile": False,
    "model.extension": {},
    "measure": {},
    "callbacks": {},
    "trainer.gradient_clip_algorithm": "norm",
    "trainer.tf32": False,
    "optim.scaling": "none",
    "optim.base": None,
    "trainer.fold": None,
    "eval.average": {},
}
"""Key → the value with which a trial is what it was before there was such a key; for keys that no class declares."""

WATCHING = ("heartbeat", "profiler", "detect_anomaly", "graph", "prefetch")
"""Settings of the trainer that watch or feed a training and cannot change it."""

RENAMED: Mapping[str, str] = {}
"""New name → the first one, by which it is hashed: a key (`optim.decay` → `optim.weight_decay`), a class that moved
(`swapformer.model.ffn.MLP` → its old path), or a class's setting (`swapformer.model.ffn.MLP.width` → its old name)."""

version = lru_cache(metadata.version)
"""The version of a package, which is read from its files."""

_KNOWN = ("swapformer", "torch")
"""Packages whose versions stand for their source."""

Config = dict[str, Any]


def trial_id(config: Mapping[str, Any]) -> str:
    """The name of a trial: 16 hexadecimal digits of the sha256 of its identity."""
    return hashlib.sha256(_text(identity(config)).encode()).hexdigest()[:16]


def identity(config: Mapping[str, Any]) -> Config:
    """Everything that can change a trial's result: its settings, its data, and the source of parts from outside."""
    nodes = {key: config[key] for key in CHANGES_RESULT if key in config or key not in NEUTRAL}
    if command_of(config):
        nodes = {key: nodes[key] for key in ("seed", "trainer", "measure", "task")}  # it has a model of its own
    nodes["task"] = _without_paths(config["task"])
    if nodes["task"].get("eval_batch_size") == nodes["task"].get("batch_size"):
        nodes["task"].pop("eval_batch_size", None)  # as it was before it could be another
    if watched := _watched(config):
        nodes["probes"] = watched
    nodes["trainer"] = {key: value for key, value in config["trainer"].items() if key not in WATCHING}
    foreign = {name for name in targets(nodes) if name.split(".")[0] not in _KNOWN}
    start = config["init_from"]
    return {
        **_hashed(nodes),
        "budget": {"steps": config["budget"]["steps"]},  # however it was asked for
        "init_from": None if start is None else start["weights"],
        "data": config["data"],
        "environment": environment_class(config),
        "foreign_parts": {name: _source_hash(name) for name in sorted(foreign)},
        "results_epoch": RESULTS_EPOCH,
    }


def require_same_source(config: Mapping[str, Any], trial: str) -> None:
    """Raise UsageError where a part of the user's own is no longer the one by which a trial was named."""
    if all(name.split(".")[0] in _KNOWN for name in targets(config)) or trial_id(config) == trial:
        return
    raise UsageError(
        f"trial {trial} was named by the source of {', '.join(identity(config)['foreign_parts'])}, which has changed "
        "since; run the command again: it makes trials of the source as it is now"
    )


def _watched(config: Mapping[str, Any]) -> Config:
    """The probes that look at a trial within its training, which cannot be asked of it later, with those moments."""
    steps = {name: steps_of(settings) for name, settings in config["probes"].items()}
    return {name: {**config["probes"][name], "at": asked} for name, asked in steps.items() if asked}


def environment_class(config: Mapping[str, Any]) -> Config:
    """The settings that two trials must share for their numbers to be comparable bit by bit, and times at all."""
    trainer = config["trainer"]
    return {
        "device": trainer["accelerator"],
        "torch": version("torch"),
        "threads": trainer["threads"],
        "deterministic": trainer["deterministic"],
        **({"tf32": True} if trainer.get("tf32") else {}),
        **({"devices": trainer["devices"], "strategy": trainer["strategy"]} if ranks_of(trainer) > 1 else {}),
        **({"nodes": nodes} if (nodes := trainer.get("nodes", 1)) > 1 else {}),
        **({"gathered": "bfloat16"} if _gathers_low(trainer) else {}),
        **({"hardware": _hardware(trainer["accelerator"])} if is_timed(config) else {}),
    }


def _gathers_low(trainer: Config) -> bool:
    return trainer["strategy"] == "fsdp" and trainer.get("precision") == "bf16-mixed"


@lru_cache
def _hardware(accelerator: str) -> str:
    return hardware(accelerator)


def _hashed(node: Any, key: str = "") -> Any:
    """A node without settings that are neutral, and with the first names of those that were renamed."""
    if isinstance(node, list):
        return [_hashed(value, f"{key}.{index}") for index, value in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    target = node.get("_target_", "")
    return {
        first: RENAMED.get(value, value) if name == "_target_" else _hashed(value, path)
        for name, value in node.items()
        for path in [f"{key}.{name}" if key else name]
        for first in [RENAMED.get(path, RENAMED.get(f"{target}.{name}", name)).rpartition(".")[2]]
        if not any(_text(value) == neutral for neutral in _neutral(path, target, name))
    }


def _neutral(path: str, target: str, setting: str) -> Iterator[str]:
    """The values, as JSON, with which a setting at `path` of the class `target` says nothing."""
    if path in NEUTRAL:
        yield _text(NEUTRAL[path])
    if setting in (declared := _declared(target)):
        yield declared[setting]


@lru_cache(maxsize=512)
def _declared(target: str) -> Mapping[str, str]:
    """The defaults, as JSON, that a class of swapformer's declares; libraries change theirs with their version."""
    if target.partition(".")[0] != "swapformer":
        return {}
    parameters = inspect.signature(find(target)).parameters.values()
    return {each.name: _text(each.default, repr) for each in parameters if each.default is not inspect.Parameter.empty}


def _text(value: object, default: Callable[[object], object] | None = None) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=default)


def _without_paths(task: Mapping[str, Any]) -> Config:
    """The settings of a task without the place of its data, which have a hash of their content."""
    return {
        key: _without_paths(value) if isinstance(value, Mapping) else value
        for key, value in task.items()
        if key not in ("source", "path")
    }


def _source_hash(target: str) -> str:
    """sha256 of the source that defines a class and of what it imports from packages that the user allows.

    The files are read each time: they may be edited while Python runs. A class in one file has the hash of that file.
    """
    files = source_files(find(target).__module__)
    if not files:
        raise UsageError(f"{target} must be in a file, by whose source its trials are known")
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return next(iter(hashes.values())) if len(hashes) == 1 else hashlib.sha256(_text(hashes).encode()).hexdigest()
