"""Composes overrides into the resolved configuration of a trial, and checks it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from swapformer.errors import UsageError, quote, suggest
from swapformer.measure.base import Measurement
from swapformer.ranges import LARGEST
from swapformer.results.moments import END, moments_of
from swapformer.results.record import FINISHED
from swapformer.results.store import Store, last_checkpoint
from swapformer.study.config import budget, nodes, sizes
from swapformer.study.config.alternatives import require_one
from swapformer.study.config.budget import at_share as at_share
from swapformer.study.config.changes import resolve_changes
from swapformer.study.config.choices import composition, hydra_config
from swapformer.study.config.cost import TASKS, task_key
from swapformer.study.config.cost import bytes_of_a_step as bytes_of_a_step
from swapformer.study.config.cost import cost as cost
from swapformer.study.config.cost import flops_of_a_step as flops_of_a_step
from swapformer.study.config.cost import seconds_of_a_step as seconds_of_a_step
from swapformer.study.config.cost import shapes as shapes
from swapformer.study.config.cost import task_of as task_of
from swapformer.study.config.hydra_errors import explained
from swapformer.study.config.identity import RESULTS_EPOCH as RESULTS_EPOCH
from swapformer.study.config.identity import environment_class as environment_class
from swapformer.study.config.identity import trial_id as trial_id
from swapformer.study.config.layers import expand_layers
from swapformer.study.config.resolvers import require_references
from swapformer.study.config.rules.compatibility import check as check_parts
from swapformer.study.config.rules.settings import of_types
from swapformer.study.config.same_training import same_training as same_training
from swapformer.targets import find, make
from swapformer.task.contract import is_own, require_attributes, require_data
from swapformer.training.assemble import build_task, encoder_node
from swapformer.training.weights import summarise_weights

Config = dict[str, Any]


def compose(overrides: Sequence[str] = ()) -> Config:
    """The resolved configuration that `swapformer train OVERRIDES` would run.

    Raises:
        UsageError: for an override that is not understood, or does not fit the groups.
    """
    with explained(overrides), composition(overrides) as found:
        return finalise(found)


def finalise(found: DictConfig) -> Config:
    """Resolve a composed configuration: no interpolations, layers expanded, sizes that follow from the task filled in.

    Hydra must be initialised: options named by layer overrides are loaded from its configuration repository.
    """
    require_references(OmegaConf.to_container(found))
    config = OmegaConf.to_container(found, resolve=True, throw_on_missing=True)
    assert isinstance(config, dict)
    resolved: Config = {str(key): value for key, value in config.items() if key != "hydra"}
    nodes.require_nodes(resolved)
    sizes.require_data(resolved)
    resolved["init_from"] = resolve_source(resolved["init_from"], resolved["runs_dir"])
    for node in (resolved["model"]["topology"].get("module"), resolved["measure"]):
        _resolve(node)
    task = build_task(resolved)
    if is_own(task):
        require_attributes(task)
    sizes.require_batches(resolved, task)
    if is_own(task):
        require_data(task)
    resolved["data"] = task.fingerprint()
    TASKS[task_key(resolved)] = task
    model = resolved["model"]
    if model["max_len"] is None:
        model["max_len"] = task.max_length
    sizes.require_model(resolved, task)
    require_one(model, "model")  # before layers inherit it
    model["layers"] = expand_layers(model, _load_option)
    model["encoder"]["layers"] = expand_layers(encoder_node(model), _load_option, "model.encoder.layers")
    if wrong := list(of_types(resolved)):
        raise UsageError(" ".join(wrong))
    require_one(model, "model")
    resolve_changes(resolved, _load_option)
    resolved["budget"] = budget.resolve(resolved, task)
    for settings in resolved["probes"].values():
        if moments_of(settings) == (END,):
            settings.pop("at", None)  # said or not, it is the same question
    return resolved


def _resolve(node: Any) -> None:
    """Let the class of a node resolve its settings, such as a path to the content of its file."""
    target = node.get("_target_") if isinstance(node, dict) else None
    if isinstance(target, str) and (resolve := getattr(find(target), "resolved", None)) is not None:
        node.update(resolve(**{key: value for key, value in node.items() if not key.startswith("_")}))


def resolve_source(given: object, runs_dir: str) -> dict[str, Any] | None:
    """`init_from` as a trial keeps it: what was said, where the weights lie, and their hash. None where it is null.

    Raises:
        UsageError: if it is neither a file of weights nor a finished trial.
    """
    if given is None:
        return None
    text = str(given)
    path = Path(text).absolute() if text.endswith(".safetensors") else _of_trial(text, runs_dir)
    return {"source": text, "path": str(path), "weights": summarise_weights(path).weights}


def _of_trial(text: str, runs_dir: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{4,16}", text):
        raise UsageError(
            f"`init_from` must be null, a .safetensors file that `swapformer import` has made, or the id of a finished "
            f"trial, but it is {text!r}"
        )
    store = Store(runs_dir)
    record = store.find(text)
    if record.status != FINISHED:
        raise UsageError(
            f"a trial can start from one that has finished, but {record.id} is {record.status}; finish it with the "
            f"command that began it: {record.command}"
        )
    return last_checkpoint(store.directory(record.id))


def _load_option(slot: str, name: str) -> Config:
    """The content of each slot that an option of a model slot fills: an attention may bring extensions."""
    repository = GlobalHydra.instance().config_loader().repository  # type: ignore[attr-defined]
    known = repository.get_group_options(f"model/{slot}")
    if name not in known:
        hint = suggest(name, known)
        raise UsageError(f"a change asks for the unknown option {quote(name)} of model/{slot}{hint}")
    option = hydra_config(f"model/{slot}/{name}")
    require_references(OmegaConf.to_container(option))
    made = OmegaConf.to_container(option, resolve=True)
    assert isinstance(made, dict)
    return made["model"]


def measured_metrics(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Metric → which way it is better, for all that a trial's measurement may give; empty for one that trains."""
    if not config["measure"]:
        return {}
    measurement: Measurement = make(config["measure"], Measurement)
    return measurement.directions()


def check(config: Mapping[str, Any], like: Mapping[str, Any] | None = None, trained: bool = False) -> None:
    """Refuse a configuration that cannot work, naming both sides and what would work.

    `like`: one that has passed; `trained`: whether it has a trial with a result. Both only spare work.

    Raises:
        UsageError
    """
    task = task_of(config)
    if config["budget"]["steps"] is None:  # a model that cannot be counted: what is wrong with it comes first
        check_parts({**config, "budget": {"steps": LARGEST}}, task)
        budget.of_a_step(config, task, "flops")
    check_parts(config, task, like, trained)
