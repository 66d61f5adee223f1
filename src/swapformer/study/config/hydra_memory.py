"""Hydra without the work that it repeats: each file is parsed once, and each choice of files is merged once.

A composition costs Hydra 0.3 to 0.5 s of processor time, nearly all of it for files that have not changed since the
last one, and a study composes each of its arms. A file that has changed is read again, and one that is new is found.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from hydra import initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from swapformer.paths import conf_dir

Key = tuple[Any, ...]

MOST = 256
"""Merged choices that are kept; each takes about a megabyte."""

_files: dict[Key, Any] = {}
_embedded: dict[Key, Any] = {}
_merged: dict[Key, Any] = {}


def hydra_config(name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """What `hydra.compose` gives for a config of the search path, or of `conf` where Hydra is not initialised."""
    if not GlobalHydra.instance().is_initialized():
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return hydra_config(name, overrides)
    loader: Any = GlobalHydra.instance().config_loader()
    if not isinstance(loader, RememberingLoader):
        loader = RememberingLoader(loader.get_search_path())
    found: DictConfig = loader.load_configuration(name, list(overrides), RunMode.RUN, from_shell=False)
    if "hydra" in found:
        with open_dict(found):
            del found["hydra"]
    return found


class RememberingLoader(ConfigLoaderImpl):
    """Hydra's loader, which merges the same files only once in a process."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = _Repository(config_search_path)

    def _load_configuration_impl(self, *arguments: Any, **settings: Any) -> DictConfig:
        with _choices_where_asked():
            return super()._load_configuration_impl(*arguments, **settings)

    def _load_single_config(self, default: Any, repo: Any) -> Any:
        """A file's config in its package, as a copy that may be merged."""
        key = _default_key(default, repo)
        if key not in _embedded:
            _embedded[key] = super()._load_single_config(default=default, repo=cast(Any, _Copied(repo)))
        found = copy.copy(_embedded[key])
        found.config = copy.deepcopy(found.config)
        return found

    def _compose_config_from_defaults_list(self, defaults: Sequence[Any], repo: Any) -> DictConfig:
        """A copy of what these files gave before."""
        key = (*(_default_key(default, repo) for default in defaults),)
        if key not in _merged:
            if len(_merged) >= MOST:
                _merged.clear()
            _merged[key] = super()._compose_config_from_defaults_list(defaults=list(defaults), repo=repo)
        found: DictConfig = copy.deepcopy(_merged[key])
        return found


class _Repository(ConfigRepository):
    """Hydra's repository, which parses a file only once in a process."""

    def load_config(self, config_path: str) -> Any:
        """What it gives is merged into others only as a copy, see `RememberingLoader`."""
        key = _file_key(self, config_path)
        if key is None:
            return super().load_config(config_path)
        if key not in _files:
            _files[key] = super().load_config(config_path)
        return copy.copy(_files[key])


class _Copied:
    """A repository whose configs may be changed."""

    def __init__(self, repository: Any) -> None:
        self._repository = repository

    def load_config(self, config_path: str) -> Any:
        return copy.deepcopy(self._repository.load_config(config_path))

    def get_schema_source(self) -> Any:
        return self._repository.get_schema_source()


def _file_key(repository: Any, config_path: str) -> Key | None:
    """The file that a config comes from and when it was written; None for what lies in no file."""
    source = repository._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
    if source is None or source.scheme() != "file":
        return None
    path = os.path.abspath(os.path.join(source.path, source._normalize_file_name(config_path)))
    found = os.stat(path)
    return config_path, source.provider, path, found.st_mtime_ns, found.st_size, found.st_ino


def _default_key(default: Any, repo: Any) -> Key:
    """An entry of a defaults list, with the file that it stands for, and whether a plugin has a schema for it."""
    schema = repo.get_schema_source().is_config(default.config_path)
    return default.config_path, default.package, default.primary, schema, _file_key(repo.delegate, default.config_path)


@contextmanager
def remembering_main() -> Iterator[None]:
    """A `hydra.main` within composes as `hydra_config` does; Hydra composes twice before the task begins."""
    hydras_own: Any = importlib.import_module("hydra._internal.hydra")
    own = hydras_own.ConfigLoaderImpl
    hydras_own.ConfigLoaderImpl = RememberingLoader
    try:
        yield
    finally:
        hydras_own.ConfigLoaderImpl = own


@contextmanager
def _choices_where_asked() -> Iterator[None]:
    """Hydra makes a map of all choices for each file; within, only for one whose defaults ask for another group's."""
    module: Any = defaults_list
    made: Callable[..., Any] = module._create_interpolation_map

    def choices(overrides: Any, found: Sequence[Any], self_added: bool) -> Any:
        asks = any("${" in f"{getattr(entry, 'path', '')}{getattr(entry, 'value', '')}" for entry in found)
        return made(overrides, found, self_added) if asks else None

    module._create_interpolation_map = choices
    try:
        yield
    finally:
        module._create_interpolation_map = made
