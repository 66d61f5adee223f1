"""The versions of `record.json`: every older one can still be read, as if it had been written today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

RECORD_VERSION = 2
"""The version that is written. Raised, with a step in `_STEPS`, when a field gets another meaning or place."""

Values = dict[str, Any]


def upgraded(values: Mapping[str, Any], version: int) -> Values:
    """The fields of a record of an older `version` as the current one has them; `values` stays as it is.

    Raises:
        ValueError: for a version that never was, or whose fields are not what it says.
    """
    if not 1 <= version <= RECORD_VERSION:
        raise ValueError(f"schema_version is {version!r}, but this swapformer reads 1 to {RECORD_VERSION}")
    found = dict(values)
    for step in range(version, RECORD_VERSION):
        found = _STEPS[step](found)
    return found


def _machine_apart(values: Values) -> Values:
    """1 → 2: what two trials must share to be compared stands apart from the machine that they happened to run on."""
    environment = values.get("environment", {})
    if not isinstance(environment, dict):
        raise ValueError(f"`environment` must be a mapping, but is {environment!r}")
    shared = ("device", "torch", "threads", "deterministic")
    machine = {key: value for key, value in environment.items() if key not in shared}
    return {
        **values,
        "environment": {key: environment[key] for key in shared if key in environment},
        "machine": machine,
    }


_STEPS: Mapping[int, Callable[[Values], Values]] = {1: _machine_apart}
"""Version → what makes a record of it one of the next."""
