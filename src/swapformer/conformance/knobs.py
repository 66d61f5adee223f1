"""No dead knob: in some condition, changing a number in a part's settings changes something that can be seen."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swapformer.conformance.subject import LENGTH, Subject, gradients, ids, places, require, run
from swapformer.training.data import draw_positions

Path = tuple[str | int, ...]


def no_dead_knob(subject: Subject) -> str | None:
    """Every number and every presence in the part's settings changes output, loss or gradient in some condition."""
    settings = subject.config["model"][subject.slot]
    knobs = list(_leaves(settings))
    for path, value in knobs:
        others = (subject.changed(**_replaced(settings, path, other)) for other in _alternatives(value))
        require(
            any(differ(subject, other) for other in others),
            f"`{'.'.join(map(str, path))}` must change something, but no value other than {value} changed output, loss "
            "or gradient.",
        )
    return None if knobs else "the part has no settings"


def _leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every number and presence in a part's settings, those of parts within it too."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            if not name.startswith("_"):
                yield from _leaves(value, (*path, name))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _leaves(value, (*path, index))
    elif not isinstance(node, str):
        yield path, node


def _replaced(settings: Mapping[str, Any], path: Path, other: Any) -> dict[str, Any]:
    """The setting that holds the leaf at `path`, with the leaf replaced."""
    changed = copy.deepcopy(dict(settings))
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = other
    return {str(path[0]): changed[str(path[0])]}


def variants(subject: Subject) -> Iterator[Subject]:
    """The subject with each of its part's settings changed in turn to another value that the part accepts."""
    settings = subject.config["model"][subject.slot]
    for path, value in _leaves(settings):
        for other in _alternatives(value):
            changed = subject.changed(**_replaced(settings, path, other))
            try:
                changed.perturbed()
            except ValueError:
                continue
            yield changed
            break


def _alternatives(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (1, 3, 16, True)
    elif isinstance(value, int):
        yield from (value + 1, value * 2, value // 2)
    else:
        yield from (value * 1.5, value / 2, value + 0.25)


def differ(one: Subject, other: Subject) -> bool:
    """Whether two subjects can be told apart in some condition; a refused setting cannot be seen."""
    for condition in (_at_start, _perturbed, _far, _drawn, _trained):
        seen = one.once(condition.__name__, partial(condition, one))
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
    return [run(subject.perturbed(), ids(1, length), places(length))]


def _drawn(subject: Subject) -> list[Tensor]:
    """Logits at positions drawn as in training; none where the position draws none."""
    drawn_from = subject.layers[0].position().drawn_from
    if drawn_from is None or drawn_from < LENGTH:
        return []
    positions = draw_positions(LENGTH, drawn_from)[None]
    return [run(subject.perturbed(), ids(), places(LENGTH, position=positions))]


def _trained(subject: Subject) -> list[Tensor]:
    """Logits after two steps of training with dropout, from one random state."""
    config = {**subject.config, "model": {**subject.config["model"], "dropout": 0.3}}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Subject(config, subject.slot).perturbed().train()
        for _ in range(2):
            gradients(model, ids())
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
    return [run(model.eval(), ids())]
