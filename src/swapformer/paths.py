"""Paths of the configuration and the studies, in a checkout or an installed package, and processes' environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def _find(name: str) -> Path:
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _CHECKOUT / name


def conf_dir() -> Path:
    """The Hydra configuration directory."""
    return _find("conf")


def experiments_dir() -> Path:
    """The directory of the studies that ship with swapformer."""
    return _find("experiments")


def python_environment() -> dict[str, str]:
    """The environment of a Python process that finds the modules which this one does.

    No file of the working directory hides a module of Python itself.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Code and processes started within find these values in their environment."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
