"""The table of laws, and the examination of a configuration by all of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swapformer.conformance import (
    causality,
    device,
    effects,
    facts,
    isolation,
    kernels,
    numerics,
    places,
    settings,
    signature,
)
from swapformer.conformance.subject import BrokenLaw, Subject

Law = Callable[[Subject], str | None]
"""A law returns None if it holds or the reason why it does not apply, and raises BrokenLaw otherwise."""

LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        signature.is_a_part,
        numerics.runs,
        numerics.logits_are_finite,
        numerics.evaluation_is_deterministic,
        numerics.builds_are_reproducible,
        numerics.training_steps_are_repeatable,
        numerics.saved_weights_are_whole,
        causality.causality,
        causality.encodings_see_positions,
        causality.shift_invariance,
        causality.permutation_equivariance,
        isolation.rows_are_independent,
        isolation.padding_is_ignored,
        isolation.documents_are_independent,
        isolation.calls_are_independent,
        isolation.instances_are_independent,
        numerics.low_precision_is_near,
        numerics.autocast_is_near,
        numerics.every_parameter_has_a_gradient,
        numerics.gradients_are_derivatives,
        kernels.kernel_equals_reference,
        kernels.kernels_drop_weights,
        kernels.blocks_equal_the_whole,
        kernels.cache_changes_nothing,
        effects.beyond_max_len,
        effects.does_something,
        effects.used_parts_matter,
        facts.facts_hold,
        places.places_hold,
        device.nothing_waits_for_the_device,
        device.deterministic_on_cuda,
        device.nothing_outlives_a_step,
        settings.no_dead_knob,
        settings.words_are_declared,
    )
}


FIRST = ("is_a_part", "runs")
"""Laws without which no other law can be examined."""


OF_ANY_MODEL = (
    *("runs", "logits_are_finite", "evaluation_is_deterministic", "builds_are_reproducible"),
    *("training_steps_are_repeatable", "saved_weights_are_whole", "causality", "rows_are_independent"),
    *("padding_is_ignored", "calls_are_independent", "low_precision_is_near", "autocast_is_near"),
    *("every_parameter_has_a_gradient", "gradients_are_derivatives", "deterministic_on_cuda"),
)
"""Laws that hold of a whole model, which has no slots."""


@dataclass(frozen=True)
class LawVerdict:
    """Whether one law holds; `holds` is None if it does not apply, and the message says why."""

    law: str
    holds: bool | None
    message: str


def examine(config: Mapping[str, Any], slot: str, only: str | None = None) -> list[LawVerdict]:
    """Examine a configuration by every law.

    Args:
        config: resolved configuration with small sizes.
        slot: the slot whose part is examined.
        only: the law that is asked for; None for all. Those that it needs are examined before it.
    """
    subject = Subject.of(config, slot)
    try:
        unavailable = subject.unavailable
    except Exception:  # one that cannot be made at all breaks a law
        unavailable = None
    if unavailable is not None:
        return [LawVerdict(name, None, unavailable) for name in LAWS]
    verdicts: list[LawVerdict] = []
    for name, law in LAWS.items():
        if only is not None and name != only and name not in FIRST:
            continue
        if not subject.has_slots and name not in OF_ANY_MODEL:
            verdicts.append(LawVerdict(name, None, "not applicable: it is about parts, and a whole model has none"))
            continue
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


def _unexpected(error: Exception) -> str:
    """The message for an error that no law foresees, with the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(error).__name__} where nothing should be raised ({line}): {error}"
