"""swapformer: ablations of the Transformer's architecture, with honest statistics.

The Python interface (see docs/guides/python.md) is `swapformer.api`. Its functions are loaded when they are first
asked for, and bring torch only where they need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swapformer.api import LoadedTrial as LoadedTrial
    from swapformer.api import build as build
    from swapformer.api import build_report as build_report
    from swapformer.api import compose as compose
    from swapformer.api import judge as judge
    from swapformer.api import load_trial as load_trial
    from swapformer.api import read_records as read_records
    from swapformer.api import run_study as run_study
    from swapformer.api import show as show

__version__ = "0.1.0"

_INTERFACE = (
    *("LoadedTrial", "build", "build_report", "compose"),
    *("judge", "load_trial", "read_records", "run_study", "show"),
)


def __getattr__(name: str) -> Any:
    """Load a function of the interface when it is first asked for (PEP 562)."""
    if name not in _INTERFACE:
        raise AttributeError(
            f"module 'swapformer' has no attribute {name!r}; its functions are {', '.join(_INTERFACE)}"
        )
    from swapformer import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_INTERFACE])
