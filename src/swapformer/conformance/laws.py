"""The laws. Each raises BrokenLaw, or returns a reason why it does not apply, or None when it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from swapformer.conformance.apart import (
    calls_are_apart,
    documents_are_apart,
    instances_are_apart,
    padding_is_invisible,
    rows_are_apart,
)
from swapformer.conformance.digits import (
    autocast_is_near,
    builds,
    gradients_are_derivatives,
    gradients_everywhere,
    half_the_digits,
)
from swapformer.conformance.effects import beyond_max_len, does_something, used_parts_matter
from swapformer.conformance.facts import facts_hold
from swapformer.conformance.kernels import kernel_equals_reference
from swapformer.conformance.knobs import no_dead_knob, words_are_known
from swapformer.conformance.order import (
    causality,
    encodings_see_positions,
    permutation_equivariance,
    shift_invariance,
)
from swapformer.conformance.randomness import evaluation_is_exact, reproducible, reseeding
from swapformer.conformance.subject import BrokenLaw, Subject
from swapformer.conformance.writing import cache_changes_nothing

Law = Callable[[Subject], str | None]

LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
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
        cache_changes_nothing,
        beyond_max_len,
        does_something,
        used_parts_matter,
        facts_hold,
        no_dead_knob,
        words_are_known,
    )
}


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
    verdicts = []
    subject = Subject.fitting(config, slot)
    for name, law in LAWS.items():
        try:
            reason = law(subject)
            verdicts.append(Verdict(name, True if reason is None else None, reason or ""))
        except BrokenLaw as broken:
            verdicts.append(Verdict(name, False, str(broken)))
        except Exception as error:
            verdicts.append(Verdict(name, False, f"{type(error).__name__} where nothing should be raised: {error}"))
    return verdicts
