"""Laws about order: causality, and which parts may depend on the positions of tokens."""

from __future__ import annotations

from dataclasses import replace

import torch

from swapformer.catalogue import option
from swapformer.conformance.subject import (
    LENGTH,
    TIGHT,
    VOCABULARY,
    Subject,
    ids,
    make_tokens,
    require,
    require_near,
    run,
    seeded,
)
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.random import stream

_PLACES = (1, 5, 11, 13, 19, 23)
"""Within any chunks of 2, 3, 4, 6, 8 or 12 places, where a leak would not show at their borders."""


def causality(subject: Subject) -> str | None:
    """Changing later tokens cannot change earlier logits, in evaluation and in training."""
    if not subject.causal:
        return "the pattern is not causal"
    inputs = ids()
    for model in (subject.perturbed(), *subject.in_training()):
        before, when = seeded(model, inputs), " in training" if model.training else ""
        for place in _PLACES:
            changed = inputs.clone()
            changed[:, place:] = (changed[:, place:] + 1) % VOCABULARY
            message = f"later tokens must not change earlier logits{when}, but they do by {{gap}}: the future leaks."
            require_near(before[:, :place], seeded(model, changed)[:, :place], message)
    return None


def encodings_see_positions(subject: Subject) -> str | None:
    """Encodings depend only on positions, and causality only on the order.

    Permuting the positions changes logits (unless there is no encoding), and lets no later token change an earlier
    logit; shifting the whole order changes nothing.
    """
    model, inputs = subject.perturbed(), ids()
    plain, shuffled = run(model, inputs), run(model, inputs, _shuffled(LENGTH))
    moved = replace(make_tokens(), order=torch.arange(LENGTH)[None] + 7, consecutive=False)
    gap = (run(model, inputs, moved) - plain).abs().max().item()
    require(
        subject.anchored or gap < TIGHT,
        f"shifting the order of all tokens must change nothing, but it does by {gap:.2g}.",
    )
    if subject.causal:
        changed = inputs.clone()
        changed[:, LENGTH // 2 :] = (changed[:, LENGTH // 2 :] + 1) % VOCABULARY
        before, after = shuffled[:, : LENGTH // 2], run(model, changed, _shuffled(LENGTH))[:, : LENGTH // 2]
        require_near(before, after, "causality must follow the order, not the position, but the future leaks by {gap}.")
    if not any(position.sees_positions and not _is_nope(position) for position in subject.positions):
        return None
    gap = (shuffled - plain).abs().max().item()
    require(gap > 1e-6, "permuting the positions must change logits, but does not: read `tokens.position`.")
    return None


def shift_invariance(subject: Subject) -> str | None:
    """Shifting all tokens changes logits if a part states that it counts from the beginning, and otherwise not.

    Encodings state it by `relative=False`, patterns and attentions by `anchored=True`, and attentions and scores that
    depend on a rotary encoding by more than distances by `isotropic=False`.
    """
    layer, shift = subject.layers[0], 5
    if subject.slot == "pattern":
        stated, found = layer.pattern().anchored, _anchored(layer.pattern())
        require(
            stated == found,
            f"anchored={stated} is stated, but what is allowed {'depends' if found else 'does not depend'} on how far "
            "tokens are from the beginning.",
        )
    if any(position.limit is not None and position.limit < LENGTH + shift for position in subject.positions):
        return "the table of positions is too short for a shift"
    if subject.slot in ("attention", "score"):
        _isotropy(subject)
    isotropic = all(layer.attention().isotropic for layer in subject.layers)
    gap = _shift_gap(subject if isotropic else subject.with_model(position=option("position", "none")), shift)
    relative = all(position.relative for position in subject.positions)
    if subject.slot == "position":
        require(
            (gap < 1e-9) == relative,
            f"relative={relative} is stated, but shifting all positions changes logits by {gap:.2g}.",
        )
        return None
    if not relative or subject.anchored:
        return "something counts from the beginning and says so"
    require(
        gap < 1e-9,
        f"nothing states that it counts from the beginning, but shifting all tokens changes logits by {gap:.2g}.",
    )
    return None


def permutation_equivariance(subject: Subject) -> str | None:
    """Without encoding and mask, permuting the tokens permutes the logits and does nothing else.

    An attention that depends on the order by itself states it by `sees_order`.
    """
    others = {"position": option("position", "none"), "pattern": option("pattern", "full")}
    free = subject.with_model(**{slot: node for slot, node in others.items() if slot != subject.slot})
    try:
        layer, model = free.layers[0], free.perturbed()
    except ValueError as refusal:
        return f"there is no such model: {refusal}"
    if not all(_is_nope(position) for position in free.positions):
        return "it encodes positions"
    if not layer.pattern().full:
        return "the pattern forbids something"
    if free.sees_order:
        return "the attention states that it depends on the order"
    length = 4 * LENGTH  # some attentions cut long rows into pieces
    inputs, order = ids(1, length), torch.randperm(length, generator=stream("permuted tokens"))
    try:
        gap = (run(model, inputs)[:, order] - run(model, inputs[:, order])).abs().max().item()
    except ValueError as limit:
        return f"the row is too long for it: {limit}"
    require(
        gap < TIGHT,
        f"without encoding and mask permuting the tokens must permute the logits alone, but changes them by {gap:.2g}; "
        "an attention that depends on the order by itself states sees_order=True.",
    )
    return None


def _shift_gap(subject: Subject, shift: int) -> float:
    """The change of logits when all positions are shifted."""
    model, inputs = subject.perturbed(), ids()
    return (run(model, inputs) - run(model, inputs, make_tokens(LENGTH, start=shift))).abs().max().item()


def _isotropy(subject: Subject) -> None:
    """Require that `isotropic` says whether logits depend on a rotary encoding only by distances."""
    rotary = subject.with_model(position=option("position", "rope"))
    layer = rotary.layers[0]
    if rotary.refused or layer.pattern().anchored:
        return
    gap, stated = _shift_gap(rotary, 5), layer.attention().isotropic and not layer.attention().anchored
    require(
        (gap < 1e-9) == stated,
        f"isotropic={stated} is stated, but with a rotary encoding shifting all tokens changes logits by {gap:.2g}.",
    )


def _is_nope(position: Position) -> bool:
    """Whether it is the slot's base, whose hooks do nothing."""
    return type(position) is Position


def _anchored(pattern: Pattern) -> bool:
    """Whether shifting all tokens changes the mask of a pattern."""

    def allowed(start: int) -> torch.Tensor:
        tokens = make_tokens(LENGTH, start=start)
        mask = pattern.allowed(tokens, tokens)
        return torch.ones(1, dtype=torch.bool) if mask is None else mask

    return any(not torch.equal(allowed(0), allowed(start)) for start in range(1, LENGTH))


def _shuffled(length: int) -> Tokens:
    """Tokens in order, whose positions are a fixed permutation."""
    order = torch.randperm(length, generator=stream("shuffled positions"))
    return make_tokens(length, position=order[None])
