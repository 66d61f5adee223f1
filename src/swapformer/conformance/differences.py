"""Comparison of two configurations by loss, gradients, logits and operations in several conditions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from swapformer.conformance.subject import LENGTH, Subject, gradients, ids, make_tokens, run
from swapformer.training.data import draw_positions


def differ(one: Subject, other: Subject) -> bool:
    """Whether two subjects differ in some condition; a setting that is refused does not differ."""
    for condition in (_at_start, _perturbed, _far, _drawn, _trained, _operations):
        expected = one.once(condition.__name__, partial(condition, one))
        try:
            changed = condition(other)
        except ValueError:
            return False
        if len(expected) != len(changed) or not all(map(_same, expected, changed)):
            return True
    return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    return bool(one == other)


def _at_start(subject: Subject) -> Sequence[Any]:
    """Loss and gradients of the model as a trial starts it, from one random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss, grads = gradients(subject.build(), ids())
    return [loss, *grads.values()]


def _perturbed(subject: Subject) -> Sequence[Any]:
    """Logits with noise on the weights."""
    return [run(subject.perturbed(), ids())]


def _far(subject: Subject) -> Sequence[Any]:
    """Logits at distances beyond every table and bucket; none if the position cannot encode them."""
    length = 12 * LENGTH
    limit = subject.layers[0].position().limit
    if limit is not None and limit < length:
        return []
    return [run(subject.perturbed(), ids(1, length), make_tokens(length))]


def _drawn(subject: Subject) -> Sequence[Any]:
    """Logits at positions drawn as in training; none if the position draws none."""
    drawn_from = subject.layers[0].position().drawn_from
    if drawn_from is None or drawn_from < LENGTH:
        return []
    positions = draw_positions(LENGTH, drawn_from)[None]
    return [run(subject.perturbed(), ids(), make_tokens(LENGTH, position=positions))]


def _trained(subject: Subject) -> Sequence[Any]:
    """Logits after two steps of training with dropout, from one random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = subject.with_model(dropout=0.3).perturbed().train()
        for _ in range(2):
            gradients(model, ids())
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
    return [run(model.eval(), ids())]


def _operations(subject: Subject) -> Sequence[Any]:
    """The operations of a kernel, which may change no number; none for other parts."""
    if subject.slot != "kernel":
        return []
    model, recorder = subject.perturbed(), _Recorder()
    with recorder:
        run(model, ids())
    return recorder.names


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the name of every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))
