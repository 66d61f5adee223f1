"""Small configurations in which pairs of options are tried: one topology and one task each, composed once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from swapformer.catalogue import NONE, default_option, filled
from swapformer.paths import conf_dir
from swapformer.study.config.choices import hydra_config
from swapformer.study.config.compose import Config, compose, task_of
from swapformer.study.config.rules.compatibility import problems
from swapformer.training.assemble import SLOTS
from swapformer.yaml_reader import read_yaml


class Option(NamedTuple):
    """An option of a slot: `model/<slot>=<name>`."""

    slot: str
    name: str

    def __str__(self) -> str:
        return f"model/{self.slot}={self.name}"


Settings = tuple[tuple[str, Any], ...]
"""Other changes of a configuration, such as ("model.max_len", 256) or ("trainer", "gpu")."""

SMALL = (
    "model.num_layers=2",
    "model.d_model=32",
    "model.num_heads=4",
    "model.head_dim=16",
    "schedule=constant",
    "schedule.warmup_steps=0",
    "budget.steps=20",
    "task.batch_size=6",
)
"""Sizes at which a step takes milliseconds; four heads for the patterns that differ by head, 16 wide for flex."""

_DIALOGUE = ("task=dialogue", "task.lengths=[3,5]", "task.eval_lengths=[]")
_LIBRARY = ("task.source.packages=[asyncio,email]", "task.split=[0.4,0.3,0.3]", "task.block=24")
_CODE = ("task=source_code", *_LIBRARY)
_SERIES = ("task=seasons", "task.length=600", "task.block=24")

STAGES = {
    "decoder": ("model/topology=decoder", *_DIALOGUE),
    "encoder": ("model/topology=encoder", "task=roles", *_LIBRARY),
    "encoder_decoder": ("model/topology=encoder_decoder", "task=copy", "task.as_source=true", "task.lengths=[4,8]"),
    "decoder, labels": ("model/topology=decoder", "model/pattern=full", "task=roles", *_LIBRARY),
    "decoder, code": ("model/topology=decoder", *_CODE),
    "decoder, series": ("model/topology=decoder", *_SERIES),
    "encoder, dialogue": ("model/topology=encoder", "model/pattern=causal", *_DIALOGUE),
    "encoder, code": ("model/topology=encoder", "model/pattern=causal", *_CODE),
    "encoder, series": ("model/topology=encoder", "model/pattern=causal", *_SERIES),
}
"""Every topology on a task that suits it, then on tasks whose tags some patterns ask for."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A small composed configuration, one of STAGES.

    `name`: its key there. `chosen`: the option of every slot. `config`: the resolved configuration.
    """

    name: str
    chosen: Mapping[str, str]
    config: Config

    @property
    def topology(self) -> str:
        return self.chosen["topology"]

    def configure(self, options: Iterable[Option], settings: Settings = ()) -> Config:
        """The configuration that `swapformer train` would compose from these options, but without composing.

        An option fills its slot, and nothing else of a configuration depends on it: only a topology chooses for
        others, and topologies are the stages'.
        """
        model = dict(self.config["model"])
        for slot, name in options:
            assert slot != "topology" or name == self.topology, f"stage {self.name} has its topology"
            if slot != "topology":
                filled = filled_slots(slot, name)
                extensions = {**model["extension"], **filled.get("extension", {})}
                model |= {**filled, "extension": extensions}
        config = {**self.config, "model": model}
        for key, value in settings:
            config = _changed(config, key, value)
        return config

    def problems(self, options: Iterable[Option], settings: Settings = ()) -> list[str]:
        """The reasons for which the study would refuse these options; empty if it would not."""
        return problems(self.configure(options, settings), task_of(self.config))

    def all_options(self, options: Iterable[Option]) -> dict[str, str]:
        """The option of every slot when these are chosen."""
        return {**self.chosen, **dict(options)}


def _changed(config: Config, key: str, value: Any) -> Config:
    """A copy in which `key`, dotted or a group's name, has another value; what does not change is shared."""
    if key == "trainer":
        return {**config, "trainer": _read(f"trainer/{value}")}
    if key == "allow":
        return {**config, "allow": [*config["allow"], *value]}
    first, _, rest = key.partition(".")
    return {**config, first: _changed(config[first], rest, value) if rest else value}


@lru_cache(maxsize=1024)
def filled_slots(slot: str, name: str) -> Mapping[str, Any]:
    """What each slot that an option fills holds then: an attention may bring extensions."""
    if name == NONE:
        return {slot: {}}
    content = _read(f"model/{slot}/{name}")
    if "defaults" not in content:
        return {slot: filled(slot, name, content)}
    composed: Any = OmegaConf.to_container(hydra_config(f"model/{slot}/{name}"), resolve=True)
    return dict(composed["model"])


def _read(name: str) -> dict[str, Any]:
    return dict(read_yaml(conf_dir() / f"{name}.yaml"))


def options_of(slots: Iterable[str] = SLOTS) -> list[Option]:
    """Every option of these slots, as their files are found."""
    return [Option(slot, path.stem) for slot in slots for path in sorted((conf_dir() / "model" / slot).glob("*.yaml"))]


@lru_cache(maxsize=1)
def stages() -> tuple[Stage, ...]:
    """Every stage, composed."""
    return tuple(_stage(name, overrides) for name, overrides in STAGES.items())


def _stage(name: str, overrides: tuple[str, ...]) -> Stage:
    config = compose([*overrides, *SMALL])
    chosen = {slot: default_option(slot) for slot in SLOTS}
    for slot in SLOTS:
        if slot != "topology" and filled_slots(slot, chosen[slot]) != {slot: config["model"][slot]}:
            own = {slot: config["model"][slot]}
            chosen[slot] = next(o.name for o in options_of([slot]) if filled_slots(*o) == own)
    given = dict(override.removeprefix("model/").split("=", 1) for override in overrides)
    return Stage(name, {**chosen, "topology": given["topology"]}, copy.deepcopy(config))
