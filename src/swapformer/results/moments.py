"""Moments at which a probe looks at a trial: before training (`init`), after some of its steps, and at the `end`.

What is measured at another moment than `end` bears it behind a colon: the metric `probe/name:init`, `probe/name@64:10`
at length 64 after ten steps, the finding `name:10` of a probe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

Moment = str | int
BY_LAYER = "_by_layer"
"""The end of a family's name whose n is the number of a layer, from 1: `probe/gradient_ffn_by_layer@3`."""
REPLAY = "probe/replay/"
"""The beginning of what a replay measures: a family without a number of its own, `probe/replay/w/loss@7` without
`probe/replay/w/loss`, is over a number that was changed and not over lengths."""
PRUNING = "probe/pruning/"
"""The beginning of what leaving out heads measures; the n of its families is a share of all heads in per cent."""
INIT = "init"
END = "end"
_AT = re.compile(r"(.+):(init|[1-9]\d*)")


def moments_of(settings: object) -> tuple[Moment, ...]:
    """The moments at which a probe with these settings looks: those of `at`, the end where it says nothing."""
    at = settings.get("at", END) if isinstance(settings, Mapping) else END
    return tuple(at) if isinstance(at, list | tuple) else (at,)


def steps_of(settings: object) -> list[int]:
    """The moments within training, as numbers of optimiser steps."""
    return [moment for moment in moments_of(settings) if isinstance(moment, int)]


def without_moments(settings: Any) -> Any:
    """Settings of a probe without `at`: what it measures at each of its moments."""
    if not isinstance(settings, Mapping):
        return settings
    return {key: value for key, value in settings.items() if key != "at"}


def asked_findings(probes: Mapping[str, Any]) -> dict[str, Any]:
    """Probe, with its moment, → what it is asked with there, for every moment of every probe of a configuration."""
    return {
        at_moment(str(name), moment): without_moments(settings)
        for name, settings in probes.items()
        for moment in moments_of(settings)
    }


def at_moment(name: str, moment: Moment) -> str:
    """The name of a metric or finding of a moment: `probe/name:init`."""
    return name if moment == END else f"{name}:{moment}"


def split_moment(name: str) -> tuple[str, Moment]:
    """A metric or finding of a moment as its name without the moment, and the moment."""
    if (found := _AT.fullmatch(name)) is None:
        return name, END
    return found[1], INIT if found[2] == INIT else int(found[2])


def place_of(moment: Moment) -> float:
    """The order of a moment among those of a training: before the first step, after some, after the last."""
    return float(moment) if isinstance(moment, int) else {INIT: 0.0, END: math.inf}[moment]


def moment_text(moment: Moment) -> str:
    """A moment in words: `at init`, `after 10 steps`."""
    return f"after {moment} step{'' if moment == 1 else 's'}" if isinstance(moment, int) else f"at {moment}"


def family_of(metric: str) -> tuple[str, str]:
    """A metric `name@n` as its family and n, which is empty where it has none; `a@3:init` is of the family `a:init`."""
    name, moment = split_moment(metric)
    family, _, n = name.partition("@")
    return at_moment(family, moment), n
