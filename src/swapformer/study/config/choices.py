"""Composition in which what several trials choose alike is worked out once.

Hydra makes the list of files of the chosen options and merges them first, and applies overrides of single values then.
The arms of a study differ in few choices and many values, so what a set of choices gives is kept and copied. Each
file is read once; Hydra reads all of them for every composition. All is
forgotten when a file of the search path is written, added or removed.

This is the only file that uses Hydra's private modules. Where they are not as they were in Hydra 1.3, each composition
is Hydra's own.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from swapformer.paths import conf_dir
from swapformer.study.config.overrides import of_whole_model, require_single_keys
from swapformer.study.config.resolvers import require_references
from swapformer.targets import require_known_folder

try:
    from hydra._internal import defaults_list
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_repository import ConfigRepository

    _Repository: Any = ConfigRepository
    _Lists: Any = defaults_list
    _load, _interpolated = _Repository.load_config, _Lists._create_interpolation_map
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
        return compose(name, list(overrides))


def composed(overrides: Sequence[str]) -> DictConfig:
    """The result of `hydra.compose("train", overrides)`, with its errors; Hydra must be initialised."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    repository = getattr(GlobalHydra.instance().config_loader(), "repository", None)
    if _apply is None or repository is None or any(each.is_sweep_override() or _of_hydra(each) for each in parsed):
        return hydra_config("train", overrides)
    _MEMORY.forget_unless(_files(repository))
    chosen = [each for each in parsed if _is_choice(each, repository)]
    lines = (*(str(each.input_line) for each in chosen),)
    if lines not in _MEMORY.made:
        if len(_MEMORY.made) == _MOST:
            _MEMORY.made.clear()
        with _files_read_once():
            _MEMORY.made[lines] = hydra_config("train", lines)
    config = copy.deepcopy(_MEMORY.made[lines])
    try:
        _apply([each for each in parsed if each not in chosen], config)
    except Exception:  # Hydra says in its own words what is wrong
        return hydra_config("train", overrides)
    return config


class _Memory:
    """The results of sets of choices for the present search path."""

    def __init__(self) -> None:
        self.files: tuple[Any, ...] = ()
        self.made: dict[tuple[str, ...], DictConfig] = {}
        self.read: dict[tuple[Any, ...], Any] = {}

    def forget_unless(self, files: tuple[Any, ...]) -> None:
        """Forget all unless the search path has these files, as they are."""
        if files != self.files:
            self.files = files
            self.made.clear()
            self.read.clear()


_MEMORY, _LOCK = _Memory(), threading.Lock()


@contextmanager
def _files_read_once() -> Iterator[None]:
    """Within, Hydra takes copies of a file's content from memory; one thread at a time.

    What a choice that is written as `${…}` may name is put together only where there is such a choice. Hydra does it
    for every file, which takes a third of its time.
    """

    def load_config(repository: Any, config_path: str) -> Any:
        key = (*((source.provider, source.path) for source in repository.get_sources()), config_path)
        if key not in _MEMORY.read:
            _MEMORY.read[key] = _load(repository, config_path)
        return copy.deepcopy(_MEMORY.read[key])

    def interpolated(overrides: Any, defaults: list[Any], self_added: bool) -> DictConfig:
        needed = any(not each.is_self() and each.is_interpolation() for each in defaults)
        return _interpolated(overrides, defaults, self_added) if needed else DictConfig({})

    with _LOCK:
        _Repository.load_config, _Lists._create_interpolation_map = load_config, interpolated
        try:
            yield
        finally:
            _Repository.load_config, _Lists._create_interpolation_map = _load, _interpolated


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
