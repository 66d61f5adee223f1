"""Composition in which what several trials choose alike is worked out once.

Hydra makes the list of files of the chosen options and merges all of them, for every composition. The arms of a study
differ in few choices and many values, so what a set of choices gives is kept and copied, and a choice whose file is all
that there is of its node is put in that node's place. All is forgotten when a file of the search path is written, added
or removed.

This is the only file that uses a private method of Hydra's. Where it is not as it was in Hydra 1.3, each composition is
Hydra's own.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from swapformer.paths import conf_dir
from swapformer.study.config.overrides import of_whole_model, require_single_keys
from swapformer.study.config.resolvers import require_references
from swapformer.targets import require_known_folder

try:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    _apply: Callable[[list[Override], DictConfig], None] | None = ConfigLoaderImpl._apply_overrides_to_config
except (ImportError, AttributeError):
    _apply = None

_MOST = 64
"""Sets of choices that are kept."""


@contextmanager
def composition(overrides: Sequence[str]) -> Iterator[DictConfig]:
    """The result of `hydra.compose("train", overrides)`, not yet resolved; Hydra is initialised within. No torch.

    Raises:
        UsageError: for an override that is not understood.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: for one that does not fit the groups.
    """
    overrides = of_whole_model(overrides)
    require_references(overrides)
    require_single_keys(overrides)
    _require_known_folders(overrides)
    ready = GlobalHydra.instance().is_initialized()
    with nullcontext() if ready else initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield composed(overrides)


def _require_known_folders(overrides: Sequence[str]) -> None:
    """Refuse overrides that have Hydra look for options in packages which are not allowed."""
    if any("searchpath" in override for override in overrides):
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            if override.get_key_element() == "hydra.searchpath":
                given = override.value()
                for path in given if isinstance(given, list) else [given]:
                    require_known_folder(str(path))


def hydra_config(name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The result of `hydra.compose` for a config of the search path, or of `conf` where Hydra is not initialised."""
    ready = GlobalHydra.instance().is_initialized()
    with nullcontext() if ready else initialize_config_dir(str(conf_dir()), version_base="1.3"):
        repository = getattr(GlobalHydra.instance().config_loader(), "repository", None)
        if overrides or repository is None:
            return compose(name, list(overrides))
        _MEMORY.forget_unless(_files(repository))
        if name not in _MEMORY.plain:
            _MEMORY.plain[name] = compose(name)
        return copy.deepcopy(_MEMORY.plain[name])


def composed(overrides: Sequence[str]) -> DictConfig:
    """The result of `hydra.compose("train", overrides)`, with its errors; Hydra must be initialised."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    repository = getattr(GlobalHydra.instance().config_loader(), "repository", None)
    if _apply is None or repository is None or any(each.is_sweep_override() or _of_hydra(each) for each in parsed):
        return hydra_config("train", overrides)
    _MEMORY.forget_unless(_files(repository))
    chosen = [each for each in parsed if _is_choice(each, repository)]
    config = _of_choices(chosen, repository)
    try:
        _apply([each for each in parsed if each not in chosen], config)
    except Exception:  # Hydra says in its own words what is wrong
        return hydra_config("train", overrides)
    return config


@dataclass(frozen=True)
class _Made:
    """The configuration that a set of choices gives.

    Attributes:
        config: all of it.
        own: group → its node in `config`, of the groups whose chosen file, and no other, made that node.
    """

    config: DictConfig
    own: Mapping[str, str]


class _Memory:
    """The results of sets of choices for the present search path."""

    def __init__(self) -> None:
        self.files: tuple[Any, ...] = ()
        self.made: dict[tuple[str, ...], _Made] = {}
        self.read: dict[str, Any] = {}
        self.plain: dict[str, DictConfig] = {}

    def forget_unless(self, files: tuple[Any, ...]) -> None:
        """Forget all unless the search path has these files, as they are."""
        if files != self.files:
            self.files = files
            self.made.clear()
            self.read.clear()
            self.plain.clear()


_MEMORY = _Memory()


def _of_choices(chosen: Sequence[Override], repository: Any) -> DictConfig:
    """The configuration of some choices: those that replace a whole node are put into that of the others."""
    files = {each.key_or_group: _file_of(each, repository) for each in chosen}
    while True:
        put = {group: file for group, file in files.items() if file is not None} if len(files) == len(chosen) else {}
        made = _made(tuple(str(each.input_line) for each in chosen if each.key_or_group not in put), repository)
        if made.own.keys() >= put.keys():
            break
        files.update(dict.fromkeys(put.keys() - made.own.keys()))
    config = copy.deepcopy(made.config)
    for group, file in put.items():
        OmegaConf.update(config, made.own[group], file.config, merge=False, force_add=True)
    return config


def _made(lines: tuple[str, ...], repository: Any) -> _Made:
    """The configuration that Hydra composes of some choices, and the nodes of one file each."""
    if lines not in _MEMORY.made:
        if len(_MEMORY.made) == _MOST:
            _MEMORY.made.clear()
        config = compose("train", list(lines), return_hydra_config=True)
        options = dict(config.hydra.runtime.choices)
        with open_dict(config):
            del config["hydra"]
        _MEMORY.made[lines] = _Made(config, _own_nodes(options, repository))
    return _MEMORY.made[lines]


def _file_of(choice: Override, repository: Any) -> Any:
    """The file of a choice that Hydra puts at its group's node as it is; None for any other choice."""
    option = choice.value()
    if choice.is_add() or choice.is_delete() or choice.package is not None or not isinstance(option, str):
        return None
    file = _load(f"{choice.key_or_group}/{option}", repository)
    return None if file is None or file.defaults_list or file.header["package"] is not None else file


def _own_nodes(options: Mapping[str, Any], repository: Any) -> dict[str, str]:
    """Group → node, of the groups whose file is the only one that says something of that node, and chooses nothing.

    The result is empty where a choice is written as `${…}`, since it may depend on any other.
    """
    files, makers = [("", _load("train", repository))], {}
    for group, option in options.items():
        path, _, package = group.partition("@")
        for each in option if isinstance(option, list) else [option]:
            if not path.startswith("hydra/") and isinstance(each, str):
                file = _load(f"{path}/{each}", repository)
                usual = path.replace("/", ".")
                node = package or (file.header["package"] if file is not None else None) or usual
                files.append(({"_global_": "", "_group_": usual}.get(node, node), file))
                if node == usual and file is not None and not file.defaults_list:
                    makers[group] = node
    if any(file is None or "${" in str([vars(each) for each in file.defaults_list or ()]) for _, file in files):
        return {}
    held = [(package, OmegaConf.to_container(file.config, resolve=False)) for package, file in files]
    return {group: node for group, node in makers.items() if sum(_speaks(*each, node) for each in held) == 1}


def _speaks(package: str, held: Any, node: str) -> bool:
    """Whether what a file holds, put at `package`, says something of a node, or of one within it."""
    if package == node or package.startswith(f"{node}."):
        return True
    if package and not node.startswith(f"{package}."):
        return False
    for key in node.removeprefix(f"{package}.").split("."):
        if not isinstance(held, dict) or key not in held:
            return False
        held = held[key]
    return True


def _load(path: str, repository: Any) -> Any:
    """A file of the search path, as Hydra reads it; None where it is missing or cannot be read."""
    if path not in _MEMORY.read:
        try:
            _MEMORY.read[path] = type(repository).load_config(repository, path)
        except Exception:  # Hydra says in its own words what is wrong
            _MEMORY.read[path] = None
    return _MEMORY.read[path]


def _of_hydra(override: Override) -> bool:
    """Whether an override is of Hydra itself, which decides how all others are read."""
    return override.key_or_group.partition(".")[0].partition("/")[0] == "hydra"


def _is_choice(override: Override, repository: Any) -> bool:
    """Whether an override chooses an option of a group, as Hydra decides it."""
    return bool(repository.group_exists(override.key_or_group)) and not isinstance(override.value(), dict)


def _files(repository: Any) -> tuple[tuple[str, int, int], ...]:
    """The files of the search path, with when they were written and their size."""
    found = []
    waiting = [source.path for source in repository.get_sources() if source.scheme() == "file"]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append(entry.path)
                else:
                    stat = entry.stat()
                    found.append((entry.path, stat.st_mtime_ns, stat.st_size))
    return (*sorted(found),)
