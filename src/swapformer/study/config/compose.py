"""From overrides to the resolved configuration of a trial, and from that to the trial's identity."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from swapformer.errors import UsageError, suggest
from swapformer.paths import conf_dir
from swapformer.study.config import budget
from swapformer.study.config import cost as counted
from swapformer.study.config.init_from import resolve
from swapformer.study.config.layers import expand_layers
from swapformer.study.config.rules.compatibility import check as check_parts
from swapformer.targets import find, require_known_folder, targets
from swapformer.task.base import Task
from swapformer.training.assemble import build_task, encoder_node

RESULTS_EPOCH = 3
"""Raised whenever a change can move a number, so that older trials are not taken for new ones."""

_CHANGES_RESULT = (
    "seed",
    "data_seed",
    "model",
    "eval",
    "divergence",
    "log_every",
    "optim",
    "schedule",
    "trainer",
    "init_fresh",
)

Config = dict[str, Any]


def compose(overrides: Sequence[str] = ()) -> Config:
    """The resolved configuration that `swapformer train OVERRIDES` would run.

    Raises:
        UsageError: for an override that is not understood.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: for one that does not fit the groups.
    """
    _require_known_folders(overrides)
    if GlobalHydra.instance().is_initialized():
        return finalise(hydra_compose("train", overrides=list(overrides)))
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return finalise(hydra_compose("train", overrides=list(overrides)))


def _require_known_folders(overrides: Sequence[str]) -> None:
    """Refuse overrides that have Hydra look for options in packages which are not allowed."""
    if any("searchpath" in override for override in overrides):
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            if override.get_key_element() == "hydra.searchpath":
                given = override.value()
                for path in given if isinstance(given, list) else [given]:
                    require_known_folder(str(path))


def finalise(composed: DictConfig) -> Config:
    """Resolve a composed configuration: no interpolations, layers expanded, sizes that follow from the task filled in.

    Hydra must be initialised: options named by layer overrides are loaded from its configuration repository.
    """
    config = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    assert isinstance(config, dict)
    resolved: Config = {str(key): value for key, value in config.items() if key != "hydra"}
    resolved["init_from"] = resolve(resolved["init_from"], resolved["runs_dir"])
    task = build_task(resolved)
    resolved["data"] = task.fingerprint()
    _TASKS[_task_key(resolved)] = task
    model = resolved["model"]
    if model["max_len"] is None:
        model["max_len"] = task.max_length
    model["layers"] = expand_layers(model, _load_option)
    model["encoder"]["layers"] = expand_layers(encoder_node(model), _load_option, "model.encoder.layers")
    resolved["budget"] = budget.resolve(resolved, task)
    return resolved


def _load_option(slot: str, name: str) -> Config:
    """What each slot that an option of a model slot fills holds then: an attention may bring extensions."""
    repository = GlobalHydra.instance().config_loader().repository  # type: ignore[attr-defined]
    found = repository.load_config(f"model/{slot}/{name}")
    if found is None:
        hint = suggest(name, repository.get_group_options(f"model/{slot}"))
        raise UsageError(f"`model.layers` asks for the unknown option {name!r} of model/{slot}{hint}")
    composed = OmegaConf.to_container(hydra_compose(f"model/{slot}/{name}"), resolve=True)
    assert isinstance(composed, dict)
    slots: Config = composed["model"]
    return slots


def check(config: Mapping[str, Any]) -> None:
    """Refuse a configuration that cannot work, naming both sides and what would work.

    Raises:
        UsageError
    """
    task = task_of(config)
    if config["budget"]["steps"] is None:  # a model that cannot be counted: what is wrong with it comes first
        check_parts({**config, "budget": {"steps": 1}}, task)
        budget.of_a_step(config, task, "flops")
    check_parts(config, task)


def cost(config: Mapping[str, Any], what: counted.Measure) -> int:
    """One cost of a configuration: see `swapformer.study.config.cost.cost`."""
    return counted.cost(config, task_of(config), what)


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a configuration's parameters by name."""
    return counted.shapes(config, task_of(config))


def flops_of_a_step(config: Mapping[str, Any]) -> int:
    """Operations of one optimiser step."""
    return counted.flops_of_a_step(config, task_of(config))


def task_of(config: Mapping[str, Any]) -> Task:
    """The task of a configuration, as it was when the configuration was composed."""
    key = _task_key(config)
    if key not in _TASKS:
        _TASKS[key] = build_task(config)
    return _TASKS[key]


_TASKS: dict[str, Task] = {}


def _task_key(config: Mapping[str, Any]) -> str:
    """Settings and data: a file that has changed makes another task."""
    return json.dumps([config["task"], config["data"]], sort_keys=True)


def environment_class(config: Mapping[str, Any]) -> dict[str, Any]:
    """What two trials must share for their numbers to be comparable bit by bit."""
    trainer = config["trainer"]
    return {
        "device": trainer["accelerator"],
        "torch": version("torch"),
        "threads": trainer["threads"],
        "deterministic": trainer["deterministic"],
        **({"devices": trainer["devices"], "strategy": trainer["strategy"]} if trainer["devices"] > 1 else {}),
    }


_OFF = {"strategy": None, "gradient_checkpointing": False, "compile": False}
"""Settings of a trainer that change nothing unless they are used: a trial without them is what it was before."""


def _computed(trainer: Mapping[str, Any]) -> Config:
    """What of a trainer can change a result, to rounding at least: not how long it waits for a hung process."""
    return {
        key: value for key, value in trainer.items() if key != "heartbeat" and not (key in _OFF and value == _OFF[key])
    }


def identity(config: Mapping[str, Any]) -> Config:
    """Everything that can change a trial's result: its settings, its data, and the source of parts from outside."""
    task = _without_places(config["task"])
    parts = {key: config[key] for key in (*_CHANGES_RESULT, "task")}
    start = config["init_from"]
    return {
        **{key: config[key] for key in _CHANGES_RESULT},
        "trainer": _computed(config["trainer"]),
        "budget": {"steps": config["budget"]["steps"]},  # however it was asked for
        "init_from": None if start is None else start["weights"],
        "task": task,
        "data": config["data"],
        "environment": environment_class(config),
        "foreign_parts": {target: _source_hash(target) for target in sorted(set(_foreign_targets(parts)))},
        "results_epoch": RESULTS_EPOCH,
    }


def _without_places(task: Mapping[str, Any]) -> Config:
    """The settings of a task but for where its data lie, since the data stand for them."""
    return {
        key: _without_places(value) if isinstance(value, Mapping) else value
        for key, value in task.items()
        if key not in ("source", "path")
    }


def trial_id(config: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of the sha256 of the identity."""
    text = json.dumps(identity(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _foreign_targets(node: object) -> Iterator[str]:
    """Classes that the configuration names and that neither this package nor a pinned library holds."""
    return (target for target in targets(node) if target.split(".")[0] not in ("swapformer", "torch"))


@lru_cache(maxsize=64)
def _source_hash(target: str) -> str:
    """sha256 of the source file that defines a class; what that file imports from elsewhere is not in it."""
    path = inspect.getsourcefile(find(target))
    assert path is not None, f"{target} has no source file"
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
