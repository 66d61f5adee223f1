"""Laws about settings: each has an effect, and unknown words are refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from swapformer.conformance.differences import differ
from swapformer.conformance.subject import Subject, refusal, require
from swapformer.ranges import hints_of
from swapformer.targets import find

UNKNOWN = "no_such_word"
"""A word that is no choice of any part."""


@dataclass(frozen=True)
class Knob:
    """One setting of a part, or of a part within it.

    Attributes:
        path: the keys and indices that lead to it from the part's own settings.
        value: its present value.
        words: those that its class declares for it, as a Literal; none for numbers and free words.
    """

    path: tuple[str | int, ...]
    value: Any
    words: Sequence[str] = ()

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))

    def alternatives(self) -> Iterator[Any]:
        """Other values of its kind."""
        value = self.value
        if isinstance(value, bool):
            yield not value
        elif value is None:
            yield from (1, 3, 16, True)
        elif isinstance(value, str):
            yield from ([word for word in self.words if word != value] if self.words else [f"{value}_2"])
        elif isinstance(value, list):
            yield from ([0], [1])
        elif isinstance(value, int):
            yield from (value + 1, value * 2, value // 2)
        else:
            yield from (value * 1.5, value / 2, value + 0.25)

    def set_to(self, subject: Subject, other: Any) -> Subject:
        """The subject with this setting changed."""
        changed = copy.deepcopy(dict(subject.node))
        holder: Any = changed
        for step in self.path[:-1]:
            holder = holder[step]
        holder[self.path[-1]] = other
        return subject.with_settings(**{str(self.path[0]): changed[str(self.path[0])]})


def no_dead_knob(subject: Subject) -> str | None:
    """Every number, flag and word in the part's settings changes something in some condition.

    Compared are output, loss, gradients, and for kernels the operations.
    """
    knobs = list(knobs_of(subject.node))
    for knob in knobs:
        require(
            any(differ(subject, knob.set_to(subject, other)) for other in knob.alternatives()),
            f"`{knob.name}` must change something, but no value other than {knob.value} changed output, loss or "
            "gradient.",
        )
    return None if knobs else "the part has no settings"


def words_are_declared(subject: Subject) -> str | None:
    """A setting that takes some words only declares them as a Literal, and accepts each."""
    knobs = [knob for knob in knobs_of(subject.node) if isinstance(knob.value, str)]
    for knob in knobs:
        require(
            bool(knob.words) == (refusal(knob.set_to(subject, UNKNOWN)) is not None),
            f"`{knob.name}` must declare the words that it takes, as Literal[…], but it refuses {UNKNOWN!r} itself.",
        )
        refused = [word for word in knob.words if refusal(knob.set_to(subject, word)) is not None]
        require(not refused, f"`{knob.name}` must accept each word that it declares, but refuses {', '.join(refused)}.")
    return None if knobs else "no setting is a word"


def variants(subject: Subject) -> Iterator[Subject]:
    """The subject with each of its part's settings changed in turn to another value that the part accepts."""
    for knob in knobs_of(subject.node):
        for other in knob.alternatives():
            changed = knob.set_to(subject, other)
            if refusal(changed) is None:
                yield changed
                break


def knobs_of(node: Any, path: tuple[str | int, ...] = (), owner: Any = None) -> Iterator[Knob]:
    """Every number, flag, word and empty list in a part's settings, those of parts within it too.

    `owner` is the innermost class around the node that `path` leads to.
    """
    if isinstance(node, Mapping):
        owner = find(node["_target_"]) if "_target_" in node else owner
        for name, value in node.items():
            if not name.startswith("_"):
                yield from knobs_of(value, (*path, name), owner)
    elif isinstance(node, list) and node:
        for index, value in enumerate(node):
            yield from knobs_of(value, (*path, index), owner)
    else:
        hint = hints_of(owner).get(str(path[-1])) if owner else None
        yield Knob(path, node, [word for each in (hint, *get_args(hint)) for word in _words(each)])


def _words(hint: Any) -> Sequence[str]:
    return get_args(hint) if get_origin(hint) is Literal else ()
