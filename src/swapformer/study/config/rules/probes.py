"""At which moments probes can look at a trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from swapformer.errors import cut, quote
from swapformer.results.moments import END, INIT, place_of
from swapformer.training.nodes import ranks_of

_SHOWN = 60
"""Characters that a message shows of a list of moments."""


def moments(config: Mapping[str, Any]) -> Iterator[str]:
    """Moments that a trial does not have, or that are not in the order in which it has them."""
    steps = config["budget"]["steps"]
    for name, node in config["probes"].items():
        if not isinstance(node, Mapping) or "at" not in node:
            continue
        where, at = f"`probes.{name}.at`", node["at"]
        if not isinstance(at, list) or not at:
            yield f"{where} must be a list of moments such as [{INIT}, 10, {END}], but it is {cut(quote(at), _SHOWN)}."
            continue
        places = [_place(moment) for moment in at]
        if wrong := [moment for moment, place in zip(at, places, strict=True) if place is None]:
            yield (
                f"each moment of {where} must be {INIT}, a number of steps from 1, or {END}, but one is "
                f"{cut(quote(wrong[0]), _SHOWN)}{'; before the first step is init' if wrong[0] == 0 else ''}."
            )
        elif not all(one < other for one, other in pairwise(place for place in places if place is not None)):
            text = f"[{', '.join(map(str, at))}]"
            ordered = f"[{', '.join(map(str, sorted(set(at), key=lambda moment: _place(moment) or 0)))}]"
            given, better = cut(text, _SHOWN), cut(ordered, _SHOWN)
            yield f"{where} must name each moment once, in order, but it is {given}; use {better}."
        elif later := [moment for moment in at if isinstance(moment, int) and steps is not None and moment >= steps]:
            yield (
                f"every step of {where} must be before the last, but it has {later[0]} and budget.steps is {steps}; "
                f"use {END} for what training leaves, fewer moments, or more steps."
            )
        elif any(isinstance(moment, int) for moment in at) and (count := ranks_of(config["trainer"])) > 1:
            yield (
                f"{where} has moments within training, where a probe looks at one device's weights, but the trial has "
                f"{count} devices; use trainer.devices=1, or {INIT} and {END} alone."
            )


def _place(moment: object) -> float | None:
    """Where a moment lies in a training; None for what is none."""
    if moment in (INIT, END):
        return place_of(str(moment))
    return place_of(moment) if isinstance(moment, int) and not isinstance(moment, bool) and moment >= 1 else None
