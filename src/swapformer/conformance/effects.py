"""Laws against parts that do nothing, or ignore the parts that they take, and about lengths beyond `max_len`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from swapformer.catalogue import default_option, option, options
from swapformer.conformance.differences import differ
from swapformer.conformance.subject import LENGTH, VOCABULARY, Subject, ids, make_tokens, refusal, require, run

NEUTRAL = {
    "position": "none",
    "norm": "none",
    "qk_norm": "none",
    "ffn": "none",
    "activation": "identity",
    "pattern": "full",
    "init": "normal",
}
"""The option of a slot that does nothing; for other slots the default takes its role."""

_NEUTRAL_SLOTS = ("kernel",)
"""Slots whose parts must not change a number."""


def does_something(subject: Subject) -> str | None:
    """The part differs from the slot's neutral option in output, loss or gradient."""
    if subject.slot in _NEUTRAL_SLOTS:
        return "a kernel must compute what the others compute"
    name = NEUTRAL.get(subject.slot) or default_option(subject.slot)
    neutral = option(subject.slot, name)
    if dict(subject.node) == neutral:
        return "it is the neutral option"
    require(
        differ(subject, subject.with_model(**{subject.slot: neutral})),
        f"the part must do something, but its model is that of model/{subject.slot}={name}: in output, loss and "
        "gradient, at the start and with noise on the weights. Is a hook misspelt, or its result dropped?",
    )
    return None


def used_parts_matter(subject: Subject) -> str | None:
    """Another option of each slot that the part uses changes something, unless all others are refused."""
    slots = [slot for slot in getattr(subject.part, "uses", ()) if slot not in _NEUTRAL_SLOTS]
    for slot in slots:
        others = [
            subject.with_model(**{slot: node})
            for node in options(slot).values()
            if node != subject.config["model"][slot]
        ]
        _weights_are_registered(subject, slot, others)
        require(
            any(differ(subject, other) for other in others) or all(map(refusal, others)),
            f"the part takes a {slot}, but no other option of model/{slot} changes anything: use it, or remove it "
            "of `uses`.",
        )
    return None if slots else "it takes no other part"


def _weights_are_registered(subject: Subject, slot: str, others: Sequence[Subject]) -> None:
    """Require that the weights of an option of a slot are weights of the model."""
    for other in others:
        if not _weights(subject.layers[0].part(slot)) and _weights(other.layers[0].part(slot)) and not refusal(other):
            require(
                len(_weights(other.perturbed())) > len(_weights(subject.perturbed())),
                f"the part takes a {slot}, but the weights of {other.config['model'][slot]['_target_']} are "
                f"none of the model's: hold it as an attribute of the module (self.{slot} = {slot}).",
            )


def _weights(part: Any) -> list[Tensor]:
    return list(part.parameters()) if hasattr(part, "parameters") else []


def beyond_max_len(subject: Subject) -> None:
    """Sequences longer than `model.max_len` work, or are refused by a ValueError that names the length."""
    short = subject.with_model(max_len=LENGTH // 2)
    limits = [position.limit for position in short.positions if position.limit is not None]
    try:
        logits = run(short.perturbed(), ids(), make_tokens())
    except ValueError as refusal:
        words = ("max_len", "rows", "beyond", "longer", "length")
        require(
            any(word in str(refusal) for word in words),
            f"beyond model.max_len an error must say what to do, such as raising it, but it says: {refusal}",
        )
        return
    require(not limits, f"a position that states limit={min(limits, default=0)} must raise ValueError beyond it.")
    require(
        logits.shape == (2, LENGTH, VOCABULARY) and bool(logits.isfinite().all()),
        "beyond model.max_len logits must be finite, or a ValueError must say why there are none.",
    )
