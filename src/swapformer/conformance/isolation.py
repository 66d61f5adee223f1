"""Laws of independence: rows, padding, documents, calls and instances must not change each other's results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from swapformer.conformance.settings import variants
from swapformer.conformance.subject import (
    LENGTH,
    VOCABULARY,
    Subject,
    gradients,
    ids,
    make_tokens,
    require,
    require_finite,
    require_near,
    run,
    seeded,
)
from swapformer.model.topology import Topology


def rows_are_independent(subject: Subject) -> None:
    """Changing one sequence of a batch does not change the logits of the others, in evaluation and in training.

    In evaluation each has the logits that it has alone.
    """
    inputs = ids(5)
    for model in (subject.perturbed(), *subject.in_training()):
        together, when = seeded(model, inputs), " in training" if model.training else ""
        for row in (0, 2):
            others = torch.arange(5) != row
            changed = seeded(model, _changed_at(inputs, ~others[:, None]))
            message = f"sequences of a batch must be independent, but one changes others by {{gap}}{when}."
            require_near(together[others], changed[others], message)
            if not model.training and row < (1 if model.reads_source else 5):  # others have other sources alone
                message = "a sequence must have the logits that it has alone, but in a batch they differ by {gap}."
                require_near(together[row : row + 1], run(model, inputs[row : row + 1]), message)


def padding_is_ignored(subject: Subject) -> None:
    """Padding changes no logits of other tokens, wherever it is, and makes no gradient infinite or NaN.

    A row with padding at its end gives the logits of the shorter row, unless a part depends on the row's length.
    """
    model, inputs, length = subject.perturbed(), ids(), LENGTH - 5
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[0, length:] = padding[1, :3] = True
    padding[1, LENGTH // 2] = subject.has_slots  # a whole model is only given padding before and behind a row
    logits = run(model, inputs, make_tokens(LENGTH, padding=padding))
    changed = run(model, _changed_at(inputs, padding), make_tokens(LENGTH, padding=padding))
    require_near(logits[~padding], changed[~padding], "padding must be ignored, but it changes other tokens by {gap}.")
    require(logits.isfinite().all(), "padding must not make logits infinite or NaN: a query may have no key at all.")
    _, grads = gradients(model, inputs, make_tokens(LENGTH, padding=padding))
    require_finite(grads, "padding must not make gradients infinite or NaN, but those of {names} are.")
    if subject.depends_on_length:
        return
    message = "padding at the end must change nothing, but it changes logits by {gap}."
    require_near(logits[:1, :length], run(model, inputs[:1, :length]), message)


def documents_are_independent(subject: Subject) -> None:
    """The logits of a packed document are those that it has in a row of its own.

    Positions begin again with each document. Only independence of the other documents is required if a part counts from
    the row's beginning.
    """
    model, inputs, borders = subject.perturbed(), ids(), torch.tensor([[LENGTH // 3], [LENGTH // 2 + 3]])
    order = torch.arange(LENGTH)[None]
    document = (order >= borders).long()
    position = torch.where(order < borders, order, order - borders)
    logits = run(model, inputs, make_tokens(LENGTH, document=document, position=position))
    for own in (0, 1):
        changed = _changed_at(inputs, document != own)
        other = run(model, changed, make_tokens(LENGTH, document=document, position=position))
        message = "packed documents must be independent, but one changes another by {gap}."
        require_near(logits[document == own], other[document == own], message)
    if subject.anchored or subject.depends_on_length:
        return
    message = "a packed document must have the logits that it has alone, but they differ by {gap}."
    for row, border in enumerate(borders.flatten().tolist()):
        for first, end in ((0, border), (border, LENGTH)) if not (row and model.reads_source) else ():
            alone = run(model, inputs[row : row + 1, first:end], make_tokens(end - first, first_tag=first))
            require_near(logits[row : row + 1, first:end], alone, message)


def calls_are_independent(subject: Subject) -> None:
    """In evaluation earlier calls change nothing: no length, position or padding is stored, no given tensor changed."""
    model, inputs = subject.with_model().perturbed(), ids()
    with _inputs_kept(model, subject.part if subject.has_slots else Topology):
        before = run(model, inputs)
    padding = torch.zeros(3, LENGTH + 9, dtype=torch.bool)
    padding[:, -4:] = True
    run(model, ids(3, LENGTH + 9, seed=1), make_tokens(LENGTH + 9, padding=padding))
    run(model, ids(1, LENGTH // 2, seed=2), make_tokens(LENGTH // 2, start=3))
    require(
        torch.equal(run(model, inputs), before),
        "an earlier call must not change a later one: store nothing of an input in the instance.",
    )


def instances_are_independent(subject: Subject) -> None:
    """Building and running models of other settings changes nothing: no state is shared between instances."""
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
        "another instance must not change this one: store no state in the class.",
    )


@contextmanager
def _inputs_kept(model: Topology, part: type) -> Iterator[None]:
    """Within, a part raises BrokenLaw if its forward writes into a tensor that it is given."""

    def tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        return [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        versions[module] = [each._version for each in tensors(args, kwargs)]

    def compare(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        same = versions[module] == [each._version for each in tensors(args, kwargs)]
        require(same, f"{type(module).__name__} must not write into a tensor that it is given: others read it too.")

    versions: dict[nn.Module, list[int]] = {}
    handles = []
    for module in model.modules():
        if isinstance(module, part):
            handles.append(module.register_forward_pre_hook(note, with_kwargs=True))
            handles.append(module.register_forward_hook(compare, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _changed_at(inputs: Tensor, chosen: Tensor) -> Tensor:
    """Token ids that differ from `inputs` at the chosen tokens."""
    return torch.where(chosen, (inputs + 1) % VOCABULARY, inputs)
