"""The laws. Each raises BrokenLaw, or returns a reason why it does not apply, or None when it holds."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swapformer.conformance.bands import blocks_are_enough
from swapformer.conformance.caching import cache_changes_nothing
from swapformer.conformance.causality import (
    causality,
    encodings_see_positions,
    permutation_equivariance,
    shift_invariance,
)
from swapformer.conformance.effects import beyond_max_len, does_something, used_parts_matter
from swapformer.conformance.facts import facts_hold
from swapformer.conformance.isolation import (
    calls_are_apart,
    documents_are_apart,
    instances_are_apart,
    padding_is_invisible,
    rows_are_apart,
)
from swapformer.conformance.kernels import kernel_equals_reference
from swapformer.conformance.numerics import (
    autocast_is_near,
    builds,
    gradients_are_derivatives,
    gradients_everywhere,
    half_the_digits,
    runs,
)
from swapformer.conformance.randomness import evaluation_is_exact, reproducible, reseeding
from swapformer.conformance.settings import no_dead_knob, words_are_known
from swapformer.conformance.signature import is_a_part
from swapformer.conformance.subject import BrokenLaw, Subject

Law = Callable[[Subject], str | None]

LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        is_a_part,
        runs,
        builds,
        evaluation_is_exact,
        reproducible,
        reseeding,
        causality,
        encodings_see_positions,
        shift_invariance,
        permutation_equivariance,
        rows_are_apart,
        padding_is_invisible,
        documents_are_apart,
        calls_are_apart,
        instances_are_apart,
        half_the_digits,
        autocast_is_near,
        gradients_everywhere,
        gradients_are_derivatives,
        kernel_equals_reference,
        blocks_are_enough,
        cache_changes_nothing,
        beyond_max_len,
        does_something,
        used_parts_matter,
        facts_hold,
        no_dead_knob,
        words_are_known,
    )
}


FIRST = ("is_a_part", "runs")
"""Where one of these is broken, no other law can be asked."""


@dataclass(frozen=True)
class Verdict:
    """How one law fared: `holds` is None where it does not apply."""

    law: str
    holds: bool | None
    message: str


def examine(config: Mapping[str, Any], slot: str) -> list[Verdict]:
    """Hold a configuration to every law.

    Args:
        config: resolved configuration with small sizes.
        slot: the slot whose part is in question.
    """
    subject = Subject.fitting(config, slot)
    if (elsewhere := _elsewhere(subject)) is not None:
        return [Verdict(name, None, elsewhere) for name in LAWS]
    verdicts: list[Verdict] = []
    for name, law in LAWS.items():
        failed = next((verdict.law for verdict in verdicts if verdict.holds is False), None)
        if failed in FIRST:
            verdicts.append(Verdict(name, None, f"not asked, since {failed} is broken"))
            continue
        try:
            reason = law(subject)
            verdicts.append(Verdict(name, True if reason is None else None, reason or ""))
        except BrokenLaw as broken:
            verdicts.append(Verdict(name, False, str(broken)))
        except Exception as error:
            verdicts.append(Verdict(name, False, _told(error)))
    return verdicts


def _elsewhere(subject: Subject) -> str | None:
    """Why the subject cannot be examined here; what cannot be made at all is for the laws to say."""
    try:
        return subject.elsewhere
    except Exception:
        return None


def _told(error: Exception) -> str:
    """An error that no law foresees: what it says, and which line raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(error).__name__} where nothing should be raised ({place}): {error}"
