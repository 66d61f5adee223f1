"""Paths of the configuration and of the studies, in a checkout or in the installed package, and of Python's modules."""

from __future__ import annotations

import os
import sys
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

    No file of the working directory stands for a module of Python itself.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
