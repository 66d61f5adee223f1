"""The table of laws, and the examination of a configuration by all of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swapformer.conformance.causality import (
    causality,
    encodings_see_positions,
    permutation_equivariance,
    shift_invariance,
)
from swapformer.conformance.effects import beyond_max_len, does_something, used_parts_matter
from swapformer.conformance.facts import facts_hold
from swapformer.conformance.isolation import (
    calls_are_independent,
    documents_are_independent,
    instances_are_independent,
    padding_is_ignored,
    rows_are_independent,
)
from swapformer.conformance.kernels import blocks_equal_the_whole, cache_changes_nothing, kernel_equals_reference
from swapformer.conformance.numerics import (
    autocast_is_near,
    builds_are_reproducible,
    evaluation_is_deterministic,
    every_parameter_has_a_gradient,
    gradients_are_derivatives,
    logits_are_finite,
    low_precision_is_near,
    runs,
    training_steps_are_repeatable,
)
from swapformer.conformance.settings import choices_are_declared, no_dead_knob
from swapformer.conformance.signature import is_a_part
from swapformer.conformance.subject import BrokenLaw, Subject

Law = Callable[[Subject], str | None]
"""A law returns None if it holds or the reason why it does not apply, and raises BrokenLaw otherwise."""

LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        is_a_part,
        runs,
        logits_are_finite,
        evaluation_is_deterministic,
        builds_are_reproducible,
        training_steps_are_repeatable,
        causality,
        encodings_see_positions,
        shift_invariance,
        permutation_equivariance,
        rows_are_independent,
        padding_is_ignored,
        documents_are_independent,
        calls_are_independent,
        instances_are_independent,
        low_precision_is_near,
        autocast_is_near,
        every_parameter_has_a_gradient,
        gradients_are_derivatives,
        kernel_equals_reference,
        blocks_equal_the_whole,
        cache_changes_nothing,
        beyond_max_len,
        does_something,
        used_parts_matter,
        facts_hold,
        no_dead_knob,
        choices_are_declared,
    )
}


FIRST = ("is_a_part", "runs")
"""Laws without which no other law can be examined."""


@dataclass(frozen=True)
class LawVerdict:
    """Whether one law holds; `holds` is None if it does not apply, and the message says why."""

    law: str
    holds: bool | None
    message: str


def examine(config: Mapping[str, Any], slot: str) -> list[LawVerdict]:
    """Examine a configuration by every law.

    Args:
        config: resolved configuration with small sizes.
        slot: the slot whose part is examined.
    """
    subject = Subject.of(config, slot)
    if (reason := _unavailable(subject)) is not None:
        return [LawVerdict(name, None, reason) for name in LAWS]
    verdicts: list[LawVerdict] = []
    for name, law in LAWS.items():
        failed = next((verdict.law for verdict in verdicts if verdict.holds is False), None)
        if failed in FIRST:
            verdicts.append(LawVerdict(name, None, f"not examined, since {failed} is broken"))
            continue
        try:
            reason = law(subject)
            verdicts.append(LawVerdict(name, True if reason is None else None, reason or ""))
        except BrokenLaw as broken:
            verdicts.append(LawVerdict(name, False, str(broken)))
        except Exception as error:
            verdicts.append(LawVerdict(name, False, _unexpected(error)))
    return verdicts


def _unavailable(subject: Subject) -> str | None:
    """Why the subject cannot be examined on this machine; one that cannot be made at all breaks a law."""
    try:
        return subject.unavailable
    except Exception:
        return None


def _unexpected(error: Exception) -> str:
    """The message for an error that no law foresees, with the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(error).__name__} where nothing should be raised ({line}): {error}"
