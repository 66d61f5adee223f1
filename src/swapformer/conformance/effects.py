"""Laws against parts that do nothing: beside the neutral option, beside another setting, beside another part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from swapformer.conformance.differences import differ
from swapformer.conformance.subject import LENGTH, VOCABULARY, Subject, ids, places, refusal, require, run
from swapformer.options import default_option, option, options

NEUTRAL = {
    "position": "none",
    "norm": "none",
    "qk_norm": "none",
    "ffn": "none",
    "activation": "identity",
    "pattern": "full",
    "init": "normal",
}
"""The option that leaves things as they are without the slot; where there is none, the default is the plain one."""

_KEPT_BY_USERS = ("kernel",)
"""Slots whose parts must not change a number."""


def does_something(subject: Subject) -> str | None:
    """The part can be told from the slot's neutral option, in output, loss or gradient."""
    if subject.slot in _KEPT_BY_USERS:
        return "a kernel must compute what the others compute"
    name = NEUTRAL.get(subject.slot) or default_option(subject.slot)
    neutral = option(subject.slot, name)
    if dict(subject.node) == neutral:
        return "it is the neutral option"
    require(
        differ(subject, subject.with_model(**{subject.slot: neutral})),
        f"the part must do something, but its model is that of model/{subject.slot}={name}: in output, loss and "
        "gradient, at the start and with wide weights. Is a hook misspelt, or its result dropped?",
    )
    return None


def used_parts_matter(subject: Subject) -> str | None:
    """Of each slot that the part takes parts of (`uses`), some other option changes something, or all are refused."""
    slots = [slot for slot in getattr(subject.part, "uses", ()) if slot not in _KEPT_BY_USERS]
    for slot in slots:
        others = [
            subject.with_model(**{slot: node})
            for node in options(slot).values()
            if node != subject.config["model"][slot]
        ]
        _registered(subject, slot, others)
        require(
            any(differ(subject, other) for other in others) or all(map(refusal, others)),
            f"the part takes a {slot}, but no other option of model/{slot} changes anything: use it, or leave it out "
            "of `uses`.",
        )
    return None if slots else "it takes no other part"


def _registered(subject: Subject, slot: str, others: Sequence[Subject]) -> None:
    """Where an option of a slot brings weights, the model has more of them."""
    for other in others:
        if not _weights(subject.layers[0].part(slot)) and _weights(other.layers[0].part(slot)) and not refusal(other):
            require(
                len(_weights(other.perturbed())) > len(_weights(subject.perturbed())),
                f"the part takes a {slot}, but the weights that {other.config['model'][slot]['_target_']} brings are "
                f"none of the model's: hold it as an attribute of the module (self.{slot} = {slot}).",
            )


def _weights(part: Any) -> list[Tensor]:
    return list(part.parameters()) if hasattr(part, "parameters") else []


def beyond_max_len(subject: Subject) -> None:
    """Sequences longer than `model.max_len` work, or are refused by a ValueError that says so: no third way."""
    short = subject.with_model(max_len=LENGTH // 2)
    limits = [position.limit for position in short.positions if position.limit is not None]
    try:
        logits = run(short.perturbed(), ids(), places())
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
