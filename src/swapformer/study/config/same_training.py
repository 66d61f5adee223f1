"""Whether two configurations train the same model, found out before either is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from swapformer.measure import is_timed
from swapformer.study.config.cost import task_of
from swapformer.training.effects import STAGES

_KNOWN: dict[tuple[str, int], str | None] = {}
"""Effects that were observed, by configuration and stage: a baseline is compared with many arms."""


def same_training(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether the settings in which two configurations differ do nothing to what is trained and evaluated.

    Devices, precision and kernels do not count. What is measured in time, or measured otherwise, is different. None
    where it is not known: one of the models cannot be run here.
    """
    if is_timed(one) or one.get("measure") != other.get("measure"):
        return False
    for stage in range(len(STAGES)):
        mine, theirs = _effect(one, stage), _effect(other, stage)
        if mine is None or theirs is None:
            return None
        if mine != theirs:
            return False
    return True


def _effect(config: Mapping[str, Any], stage: int) -> str | None:
    """The result of `STAGES[stage]`; None where the model cannot be run here."""
    key = json.dumps(config, sort_keys=True), stage
    if key not in _KNOWN:
        try:
            _KNOWN[key] = STAGES[stage](config, task_of(config))
        except (ValueError, TypeError, RuntimeError, MemoryError, OSError):
            _KNOWN[key] = None
    return _KNOWN[key]
