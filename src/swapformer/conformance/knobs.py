"""No dead knob: in some condition, changing a number in a part's settings changes something that can be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from swapformer.conformance.subject import LENGTH, Subject, gradients, ids, require, run
from swapformer.model.context import Tokens


def no_dead_knob(subject: Subject) -> str | None:
    """Every number and every presence in the part's settings changes output, loss or gradient in some condition."""
    knobs = {
        name: value
        for name, value in subject.config["model"][subject.slot].items()
        if not name.startswith("_") and not isinstance(value, str)
    }
    for name, value in knobs.items():
        require(
            any(_differs(subject, subject.changed(**{name: other})) for other in _alternatives(value)),
            f"`{name}` must change something, but no value other than {value} changed output, loss or gradient.",
        )
    return None if knobs else "the part has no settings"


def variants(subject: Subject) -> Iterator[Subject]:
    """The subject with each of its part's settings changed in turn to another value that the part accepts."""
    for name, value in subject.config["model"][subject.slot].items():
        for other in () if name.startswith("_") or isinstance(value, str) else _alternatives(value):
            changed = subject.changed(**{name: other})
            try:
                changed.build()
            except ValueError:
                continue
            yield changed
            break


def _alternatives(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (1, 3)
    elif isinstance(value, int):
        yield from (value + 1, value * 2, value // 2)
    else:
        yield from (value * 1.5, value / 2, value + 0.25)


def _differs(one: Subject, other: Subject) -> bool:
    """Whether two subjects can be told apart in some condition; a refused setting cannot be seen."""
    for condition in (_at_start, _perturbed, _far):
        seen = condition(one)
        try:
            changed = condition(other)
        except ValueError:
            return False
        if len(seen) != len(changed) or any(
            a.shape != b.shape or not torch.equal(a, b) for a, b in zip(seen, changed, strict=True)
        ):
            return True
    return False


def _at_start(subject: Subject) -> list[Tensor]:
    """Loss and gradients of the model as a trial starts it."""
    loss, grads = gradients(subject.build(), ids())
    return [loss, *grads.values()]


def _perturbed(subject: Subject) -> list[Tensor]:
    """Logits with wide weights."""
    return [run(subject.perturbed(), ids())]


def _far(subject: Subject) -> list[Tensor]:
    """Logits at distances beyond every table and bucket; none where the position refuses them."""
    length = 12 * LENGTH
    limit = subject.layers[0].position().limit
    if limit is not None and limit < length:
        return []
    return [run(subject.perturbed(), ids(1, length), Tokens.of(length))]
