"""Wrong values for every number that can be set: those of the base configuration, and those of each option."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from omegaconf import OmegaConf, open_dict

from evidence.fuzz.judge import Ending, judge
from evidence.fuzz.template import SMALL
from swapformer.catalogue import option_files
from swapformer.console import guarded
from swapformer.paths import conf_dir
from swapformer.study.config.choices import hydra_config
from swapformer.study.config.compose import check, finalise
from swapformer.study.config.hydra_errors import explained
from swapformer.yaml_reader import parse_yaml

NUMBERS: Mapping[str, Any] = {
    "nan": float("nan"), "inf": float("inf"), "-1": -1, "0": 0, "10^23": 10**23, "true": True, "'4'": "4", "null": None,
}  # fmt: skip
"""What a number is set to instead, in words."""
NEVER = ("nan", "inf", "10^23", "true", "'4'")
"""Those that no setting takes: what is no finite number of a size that floats can count."""
LARGE = ("budget.tokens", "budget.flops")
"""Settings for which 10^23 is a number like others."""
NULL_BY_DEFAULT = (
    *("model.head_dim", "model.max_len", "model.encoder.num_layers", "budget.steps", "budget.tokens", "budget.flops"),
)
"""Settings that are numbers or null."""


@dataclass(frozen=True)
class Number:
    """A number that can be set: its key, and the option that has it (empty: the base configuration)."""

    key: str
    group: str = ""
    option: str = ""

    def __str__(self) -> str:
        return f"{self.key} of {self.group}={self.option}" if self.group else self.key


@lru_cache(maxsize=1)
def base_settings() -> list[Number]:
    """The numbers of the base configuration."""
    plain = OmegaConf.to_container(_base(), resolve=True)
    names = [name for name in _numbers(plain) if not name.startswith("hydra.")]
    return [Number(name) for name in dict.fromkeys([*names, *NULL_BY_DEFAULT])]


@lru_cache(maxsize=1)
def option_settings() -> list[Number]:
    """The numbers of every option that is a node of its own, such as `model.pattern.before` of `window`."""
    found = []
    for group, files in option_files(conf_dir()).items():
        for option, path in files.items():
            node = _node(path)
            found += [Number(f"{group.replace('/', '.')}.{name}", group, option) for name in _numbers(node)]
    return found


@contextmanager
def composing() -> Iterator[None]:
    """Hydra made ready once for many settings."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield


def attempt(setting: Number, value: Any, folder: Path) -> Ending:
    """Give a setting a value and resolve and check the configuration as a command does; within `composing`."""

    def act() -> int:
        with explained():
            config = finalise(composed)
        check(config)
        return 0

    composed = copy.deepcopy(_base())
    with open_dict(composed):
        if setting.group:
            node = _node(Path(option_files(conf_dir())[setting.group][setting.option]))
            if setting.group == "optim":  # what conf/train.yaml says for every optimiser
                node = {**{name: composed.optim[name] for name in ("freeze", "layer_decay")}, **node}
            OmegaConf.update(composed, setting.group.replace("/", "."), node, merge=False)
        OmegaConf.update(composed, setting.key, value, merge=False)
        composed.runs_dir = str(folder / "runs")
    return judge(lambda: guarded(act), folder)


@lru_cache(maxsize=1)
def _base() -> Any:
    return hydra_config("train", SMALL)


@lru_cache(maxsize=512)
def _node(path: Path) -> dict[str, Any]:
    """The content of an option's file; empty where it is no node of its own, but says where its keys go."""
    text = path.read_text(encoding="utf-8")
    node = parse_yaml(text)
    return node if isinstance(node, dict) and "@package" not in text and "defaults" not in node else {}


def _numbers(node: Any, above: Sequence[str] = ()) -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _numbers(value, (*above, str(key)))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield ".".join((*above, str(key)))
