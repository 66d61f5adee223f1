"""Where the configuration and the studies lie: at the top of a checkout, or inside the installed package."""

from __future__ import annotations

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
