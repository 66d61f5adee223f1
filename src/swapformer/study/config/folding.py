"""Folding of trials in configurations: how many are computed as one batch, and why some cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swapformer.training.folded_step import unfoldable

SEEDS = "seeds"
"""The value of `trainer.fold` that means as many trials as a study has seeds."""


def resolve(configs: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    """Replace `trainer.fold` by the number of trials, in configurations that are compared with each other.

    Folded trials round otherwise than single ones, so the two are never compared: where one of them cannot be folded,
    none is. What trains nothing is not folded.

    Args:
        configs: resolved configurations, which are changed in place.
        seeds: how many seeds a study has.

    Returns:
        Why none is folded, where that was asked for; empty otherwise.
    """
    asked = [config for config in configs if config.get("trainer", {}).get("fold") is not None]
    reasons = list(dict.fromkeys(reason for config in asked for reason in _reasons(config)))
    if asked and len(asked) < len(configs):
        reasons.append("some arms ask to be folded and others do not")
    for config in asked:
        fold = config["trainer"]["fold"]
        count = seeds if fold == SEEDS else fold
        trains = not config.get("measure") and config["budget"]["steps"] != 0
        config["trainer"]["fold"] = None if reasons or count < 2 or not trains else count
    return reasons


def lines(reasons: Sequence[str]) -> Iterator[str]:
    """Why trials that were to be folded run one by one, in a line for the terminal."""
    if reasons:
        yield (
            f"trials run one by one, not folded: {'; '.join(reasons)} (folded and single trials are never compared, so "
            "all of them do)"
        )


def _reasons(config: Mapping[str, Any]) -> Iterator[str]:
    """Why a trial cannot be folded."""
    yield from unfoldable(config["model"])
    trainer = config["trainer"]
    if trainer["devices"] > 1:
        yield f"trainer.devices={trainer['devices']} share one trial"
    if trainer["compile"]:
        yield "trainer.compile=true compiles the forward of one trial"
    if trainer["gradient_checkpointing"]:
        yield "trainer.gradient_checkpointing=true computes layers again, each trial by itself"
    if trainer["precision"] == "16-mixed":
        yield "trainer.precision=16-mixed scales the loss of each trial by itself"
    if trainer.get("profiler") or trainer.get("detect_anomaly"):
        yield "trainer.profiler and trainer.detect_anomaly watch a whole process"
