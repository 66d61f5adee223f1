"""Laws about what must not disturb each other: rows, padding, documents, calls, instances."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

from swapformer.conformance.settings import variants
from swapformer.conformance.subject import (
    LENGTH,
    TIGHT,
    VOCABULARY,
    Subject,
    gradients,
    ids,
    places,
    require,
    run,
)


def rows_are_apart(subject: Subject) -> None:
    """Changing one sequence of a batch leaves the others' logits alone, in evaluation."""
    model, inputs = subject.perturbed(), ids(3)
    for row in range(3):
        changed = inputs.clone()
        changed[row] = (changed[row] + 1) % VOCABULARY
        others = torch.arange(3) != row
        gap = (run(model, inputs) - run(model, changed))[others].abs().max().item()
        require(gap < TIGHT, f"sequences of a batch must not see each other, but one changes others by {gap:.2g}.")


def padding_is_invisible(subject: Subject) -> None:
    """Tokens at padded places change nothing at the others, wherever padding stands, and break no gradient.

    A row with padding at its end is the shorter row without it, unless something depends on the whole row's length.
    """
    model, inputs, kept = subject.perturbed(), ids(), LENGTH - 5
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[0, kept:] = padding[1, :3] = padding[1, LENGTH // 2] = True
    logits = run(model, inputs, places(LENGTH, padding=padding))
    changed = run(model, _other_where(inputs, padding), places(LENGTH, padding=padding))
    gap = (logits - changed)[~padding].abs().max().item()
    require(gap < TIGHT, f"padding must be invisible, but it changes other places by {gap:.2g}.")
    require(logits.isfinite().all(), "padding must not make logits infinite or NaN: a place may see nothing at all.")
    _, grads = gradients(model, inputs, places(LENGTH, padding=padding))
    bad = [name for name, grad in grads.items() if not grad.isfinite().all()]
    require(not bad, f"padding must not make gradients infinite or NaN, but those of {bad} are.")
    if subject.depends_on_length:
        return
    gap = (logits[:1, :kept] - run(model, inputs[:1, :kept])).abs().max().item()
    require(gap < TIGHT, f"padding at the end must be as if it were not there, but it changes logits by {gap:.2g}.")


def documents_are_apart(subject: Subject) -> None:
    """A document's logits do not depend on another document in the same row: they are those that it has alone.

    Positions begin anew with each document. Alone is another place where a part counts from the row's beginning.
    """
    model, inputs, border = subject.perturbed(), ids(), LENGTH // 3
    place = torch.arange(LENGTH)[None]
    document = (place >= border).long().expand(2, -1)
    position = torch.where(place < border, place, place - border)
    logits = run(model, inputs, places(LENGTH, document=document, position=position))
    for own in (0, 1):
        changed = _other_where(inputs, document != own)
        other = run(model, changed, places(LENGTH, document=document, position=position))
        gap = (logits - other)[document == own].abs().max().item()
        require(gap < TIGHT, f"packed documents must not see each other, but they do by {gap:.2g}.")
    if subject.anchored or subject.depends_on_length:
        return
    alone = run(model, inputs[:, border:], places(LENGTH - border, first_tag=border))
    gap = (logits[:, border:] - alone).abs().max().item()
    require(gap < TIGHT, f"a packed document must have the logits that it has alone, but they differ by {gap:.2g}.")


def calls_are_apart(subject: Subject) -> None:
    """What a model has seen before changes nothing in evaluation: neither lengths nor positions nor padding stay."""
    model, inputs = subject.with_model().perturbed(), ids()
    before = run(model, inputs)
    padding = torch.zeros(3, LENGTH + 9, dtype=torch.bool)
    padding[:, -4:] = True
    run(model, ids(3, LENGTH + 9, seed=1), places(LENGTH + 9, padding=padding))
    run(model, ids(1, LENGTH // 2, seed=2), places(LENGTH // 2, start=3))
    require(
        torch.equal(run(model, inputs), before),
        "an earlier call must not change a later one: keep nothing of an input in the instance.",
    )


def instances_are_apart(subject: Subject) -> None:
    """A model of other settings built and run in between changes nothing: no state outside the instance."""
    model, inputs = subject.perturbed(), ids()
    before = run(model, inputs)
    other = subject.with_model(num_heads=2, head_dim=None)
    for variant in chain([other], variants(other)):
        try:
            disturbing = variant.perturbed()
        except ValueError:
            continue
        run(disturbing, inputs)
    require(
        torch.equal(run(model, inputs), before),
        "another instance must not disturb this one: keep no state in the class.",
    )


def _other_where(inputs: Tensor, chosen: Tensor) -> Tensor:
    """Token ids that differ from `inputs` at the chosen places."""
    return torch.where(chosen, (inputs + 1) % VOCABULARY, inputs)
