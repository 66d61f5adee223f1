"""Hydra without the work that it repeats: each file is parsed once, and each choice of files is merged once.

A composition costs Hydra 0.3 to 0.5 s of processor time, nearly all of it for files that have not changed since the
last one, and the tests compose some thousands. A file that has changed is read again. `test_hydra_cache.py` holds what
is composed so to what Hydra composes by itself.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType

Key = tuple[Any, ...]

_files: dict[Key, Any] = {}
_embedded: dict[Key, Any] = {}
_merged: dict[Key, Any] = {}

_load: Callable[..., Any] = ConfigRepository.load_config
_embed: Callable[..., Any] = ConfigLoaderImpl._load_single_config
_merge: Callable[..., Any] = ConfigLoaderImpl._compose_config_from_defaults_list
_choices: Callable[..., Any] = defaults_list._create_interpolation_map


def install() -> None:
    """Put the memories in place; they last as long as the process."""
    ConfigRepository.load_config = load_config  # type: ignore[method-assign]
    ConfigLoaderImpl._load_single_config = embedded  # type: ignore[method-assign]
    ConfigLoaderImpl._compose_config_from_defaults_list = merge  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = interpolation_map


def remove() -> None:
    """Hydra as it is."""
    ConfigRepository.load_config = _load  # type: ignore[method-assign]
    ConfigLoaderImpl._load_single_config = _embed  # type: ignore[method-assign]
    ConfigLoaderImpl._compose_config_from_defaults_list = _merge  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = _choices


def file_key(repository: Any, config_path: str) -> Key | None:
    """The file that a config comes from and when it was written; None for what lies in no file."""
    source = repository._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
    if source is None or source.scheme() != "file":
        return None
    path = os.path.join(source.path, source._normalize_file_name(config_path))
    found = os.stat(path)
    return config_path, path, found.st_mtime_ns, found.st_size, found.st_ino


def default_key(default: Any, repo: Any) -> Key:
    """An entry of a defaults list, with the file that it stands for."""
    return default.config_path, default.package, default.primary, file_key(repo.delegate, default.config_path)


def load_config(repository: Any, config_path: str) -> Any:
    """`ConfigRepository.load_config`; what it gives is merged into others only as a copy, see `embedded`."""
    key = file_key(repository, config_path)
    if key is None:
        return _load(repository, config_path)
    if key not in _files:
        _files[key] = _load(repository, config_path)
    return copy.copy(_files[key])


def embedded(loader: Any, default: Any, repo: Any) -> Any:
    """`ConfigLoaderImpl._load_single_config`: a file's config in its package, as a copy that may be merged."""
    key = default_key(default, repo)
    if key not in _embedded:
        _embedded[key] = _embed(loader, default=default, repo=_Copied(repo))
    found = copy.copy(_embedded[key])
    found.config = copy.deepcopy(found.config)
    return found


def merge(loader: Any, defaults: Sequence[Any], repo: Any) -> Any:
    """`ConfigLoaderImpl._compose_config_from_defaults_list`, as a copy of what these files gave before."""
    key = (*(default_key(default, repo) for default in defaults),)
    if key not in _merged:
        _merged[key] = _merge(loader, defaults=defaults, repo=repo)
    return copy.deepcopy(_merged[key])


class _Copied:
    """A repository whose configs may be changed."""

    def __init__(self, repository: Any) -> None:
        self._repository = repository

    def load_config(self, config_path: str) -> Any:
        return copy.deepcopy(self._repository.load_config(config_path))

    def get_schema_source(self) -> Any:
        return self._repository.get_schema_source()


def interpolation_map(overrides: Any, found: Sequence[Any], self_added: bool) -> Any:
    """`_create_interpolation_map` where some default asks for the choice of another group."""
    asks = any("${" in f"{getattr(entry, 'path', '')}{getattr(entry, 'value', '')}" for entry in found)
    return _choices(overrides, found, self_added) if asks else None
