"""Catalogue of groups, options and studies, read from YAML files and the docstrings of sources: nothing is imported.

So are the options of the model's slots, as their files state them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from swapformer.errors import UsageError
from swapformer.exercises import exercises, studies_of
from swapformer.paths import conf_dir
from swapformer.yaml_reader import parse_yaml, read_yaml

Node = dict[str, Any]

EXPERIMENTS = "experiments"
"""The group of the exercises and their studies."""
LAUNCHERS = "hydra/launcher"
"""The group of the launchers, which is Hydra's own; each is listed with its settings."""
NONE = "[]"
"""No option, for a slot that takes a list of them: `model/extension=[]`."""


def catalogue(own: Path | None = None) -> dict[str, dict[str, str]]:
    """Group → option → one line about it, for every group of the configuration, and `experiments`.

    Args:
        own: a configuration directory of the user's own, whose options are listed too.
    """
    found: dict[str, dict[str, str]] = {}
    for root in (conf_dir(), *([own] if own is not None else [])):
        for group, files in option_files(root).items():
            found.setdefault(group, {}).update({name: describe(path) for name, path in files.items()})
    launchers = sorted((conf_dir() / LAUNCHERS).glob("*.yaml"))
    found[LAUNCHERS] = {path.stem: f"{describe(path)} [{_settings(read_yaml(path))}]" for path in launchers}
    found[EXPERIMENTS] = {name: text for folder in exercises().values() for name, text in _exercise(folder).items()}
    return found


@lru_cache
def option_files(root: Path) -> Mapping[str, Mapping[str, Path]]:
    """Group → option → its file, for every group below a configuration directory but Hydra's own."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(root.rglob("*.yaml")):
        group = path.parent.relative_to(root).as_posix()
        if group != "." and not group.startswith("hydra") and path.is_file():
            found.setdefault(group, {})[path.stem] = path
    return found


def describe(path: Path) -> str:
    """The first comment of a YAML file; without one, the first line of its class's docstring, and its settings."""
    try:
        return _described(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return "(it cannot be read)"


def _described(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ").rstrip()
        if line and not line.startswith("#"):
            break
    content = parse_yaml(text) or {}
    target = content.get("_target_") if isinstance(content, dict) else None
    settings = _settings(content)
    if not isinstance(target, str):
        return settings
    return _docstring(target) + (f" [{settings}]" if settings else "")


def train_help() -> str:
    """The help of `swapformer train`: groups with their options, then the keys of the primary configuration."""
    groups = option_files(conf_dir())
    width = max(len(group) for group in groups)
    lines = [
        "usage: swapformer train [GROUP=OPTION …] [KEY=VALUE …] [-m] [--cfg job] [--debug]",
        "",
        "Trains one trial, or reuses it from the store. With -m, GROUP=A,B and KEY=1,2 are swept and reported.",
        "",
        "groups and options (what they are: swapformer list):",
        *(f"  {spelled(group):{width + 1}}  {', '.join(options)}" for group, options in groups.items()),
        "",
        "keys (those of an option are in its file; --cfg job shows all):",
        *_keys(),
        "",
        "example: swapformer train model/position=alibi model.num_heads=4 task=copy budget.steps=500 seed=1",
    ]
    return "\n".join(lines)


def spelled(group: str) -> str:
    """Groups that no defaults list chooses from have to be added with a plus sign."""
    chosen = _chosen(primary())
    parent, _, _ = group.rpartition("/")
    if parent in chosen:  # options of a task choose from groups of their own
        files = option_files(conf_dir())[parent].values()
        options = (read_yaml(path) for path in files)
        chosen |= {f"{parent}/{found}" for option in options for found in _chosen(option or {})}
    return group if group in chosen else f"+{group}"


def _chosen(config: Mapping[str, Any]) -> set[str]:
    """The groups that a configuration's defaults list chooses from."""
    return {str(next(iter(entry))) for entry in config.get("defaults", []) if isinstance(entry, dict)}


def _keys() -> list[str]:
    lines = (conf_dir() / "train.yaml").read_text(encoding="utf-8").splitlines()
    own = lines[next(index for index, line in enumerate(lines) if line.startswith("seed:")) :]
    if "hydra:" in own:
        own = own[: own.index("hydra:")]
    return [f"  {line}".rstrip() for line in own if line.strip()]


@lru_cache
def primary() -> dict[str, Any]:
    """The content of `conf/train.yaml`, as the file states it."""
    content = read_yaml(conf_dir() / "train.yaml")
    assert isinstance(content, dict), "train.yaml is a mapping"
    return content


def default_runs_dir() -> str:
    """The folder of the store where none is given."""
    return str(primary()["runs_dir"])


def _docstring(target: str) -> str:
    """The first line of the docstring of the class `target`, found in the source text."""
    module, _, name = target.rpartition(".")
    found = (_first_lines(path, path.stat().st_mtime_ns).get(name) for path in _sources(module))
    return next((line for line in found if line is not None), "")


@cache
def _first_lines(path: Path, written: int) -> dict[str, str]:
    """Class or function → the first line of its docstring, in a file as it was `written`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in defined}


@lru_cache
def _sources(module: str) -> tuple[Path, ...]:
    """The files that may define a module's names: itself, and for a package every file in it."""
    package, _, rest = module.partition(".")
    try:
        spec = find_spec(package)  # the top package only: find_spec would import the parents of a submodule
    except (ImportError, ValueError):
        return ()
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder, *rest.split(".")) if rest else Path(folder)
        if path.with_suffix(".py").is_file():
            return (path.with_suffix(".py"),)
        if path.is_dir():
            return tuple(sorted(path.glob("*.py")))
    return (Path(spec.origin),) if spec is not None and spec.origin and not rest else ()


def _settings(content: object) -> str:
    if not isinstance(content, dict):
        return ""
    plain = {key: value for key, value in content.items() if not isinstance(value, dict | list) and str(key)[:1] != "_"}
    return ", ".join(f"{key} {value}" for key, value in plain.items())


def _exercise(folder: Path) -> dict[str, str]:
    """An exercise that has parts with the title of its README, and each study with its question."""
    try:
        studies = studies_of(folder)
    except UsageError as error:
        return {folder.name: f"({error})"}
    title = {} if folder.name in studies else {folder.name: _title(folder / "README.md")}
    return {**title, **{name: _question(path) for name, path in studies.items()}}


def _title(readme: Path) -> str:
    try:
        return readme.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    except (OSError, ValueError):
        return "(its README.md cannot be read)"


def _question(path: Path) -> str:
    try:
        content = read_yaml(path)
        return str(content.get("question", ""))
    except (ValueError, AttributeError):
        return "(its study.yaml cannot be read)"


def takes_list(slot: str) -> bool:
    """Whether a slot takes any number of options, whose settings `model.<slot>` holds by their names."""
    return isinstance(_defaults()[f"model/{slot}"], list)


def default_option(slot: str) -> str:
    """The name of the option that conf/train.yaml chooses for a slot."""
    chosen = _defaults()[f"model/{slot}"]
    return NONE if isinstance(chosen, list) else str(chosen)


def option(slot: str, name: str) -> Node:
    """The node of `model.<slot>` with an option, as its own file states it, without what it chooses by `defaults`."""
    return {} if name == NONE else filled(slot, name, copy.deepcopy(_read(slot, name)))


def filled(slot: str, name: str, node: Node) -> Node:
    """The node of `model.<slot>` when a part with these settings, called `name`, is all there is."""
    return {name: node} if takes_list(slot) else node


def options(slot: str) -> dict[str, Node]:
    """Name → settings of every option of a slot that is whole in its own file."""
    names = sorted(path.stem for path in (conf_dir() / "model" / slot).glob("*.yaml"))
    return {name: option(slot, name) for name in names if "defaults" not in _read(slot, name)}


@lru_cache
def _defaults() -> dict[str, Any]:
    chosen = primary()["defaults"]
    return {str(key): name for entry in chosen if isinstance(entry, dict) for key, name in entry.items()}


@lru_cache(maxsize=512)
def _read(slot: str, name: str) -> Node:
    node = read_yaml(conf_dir() / "model" / slot / f"{name}.yaml")
    assert isinstance(node, dict), f"model/{slot}={name} is a mapping"
    return node
