"""Selection of parameters by the words with which a configuration freezes some or lets them start fresh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from swapformer.errors import UsageError, suggest
from swapformer.model.layers import origin_of, roles_of_leaf
from swapformer.model.stack import stacks
from swapformer.training.assemble import LAYER_SLOTS

READOUT, BODY = "readout", "body"
"""The words for what stands between the last layer and the answers, and for all else."""

_NOT_OWNERS = ("block", "placement")
"""Slots that hold other slots' parameters, and none of their own."""


def select_parameters(model: nn.Module, entries: Sequence[object], key: str) -> set[str]:
    """The names of the parameters that any of `entries` means.

    An entry is a word: a role (`token_embedding`, `ffn_out`; a bias belongs to its matrix), a slot (`attention`,
    `norm`, `position`), `encoder` or `decoder` for one of two stacks, `readout` for what stands behind the layers,
    `body` for all else. Or it names layers as `model.layers` does, `{at: "0:6"}`, and there all or what a word means,
    `{at: -1, what: ffn}`.

    Args:
        model: whose parameters are meant.
        entries: what the configuration says.
        key: where it says so, for messages.

    Raises:
        UsageError: for an entry that means nothing in this model.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise UsageError(f"`{key}` must be a list such as [token_embedding, {{at: '0:6'}}], but it is {entries!r}.")
    words = _words(model) if entries else {}
    return {name for entry in entries for name in _meant(model, words, entry, key)}


def _meant(model: nn.Module, words: Mapping[str, set[str]], entry: object, key: str) -> set[str]:
    if isinstance(entry, Mapping):
        if "at" not in entry or entry.keys() - {"at", "what"}:
            raise UsageError(
                f"an entry of `{key}` that names layers has `at` and perhaps `what`, but it is {dict(entry)}."
            )
        found = set(_within(model, entry["at"]))
        found = found & _meant(model, words, entry["what"], key) if "what" in entry else found
    else:
        found = words.get(str(entry), set())
    if not found:
        raise UsageError(
            f"every entry of `{key}` must mean some parameters of the model, but {entry!r} means none"
            + (suggest(str(entry), words) if not isinstance(entry, Mapping) else "")
        )
    return found


def _words(model: nn.Module) -> dict[str, set[str]]:
    """Word → names of parameters, for every word that means some."""
    behind = set(readout_parameters(model))
    found = {READOUT: behind, BODY: {name for name, _ in model.named_parameters()} - behind}
    sides = {origin_of(name, parameter).side for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        origin = origin_of(name, parameter)
        own = [origin.role, *roles_of_leaf(model, name), *_slots(model, name)]
        for word in (*own, *([origin.side] if len(sides) > 1 else [])):
            found.setdefault(str(word), set()).add(name)
    return {word: names for word, names in found.items() if names}


def _slots(model: nn.Module, name: str) -> Iterator[str]:
    """The slots of the parts that hold a parameter."""
    steps = name.split(".")[:-1]
    for depth in range(1, len(steps) + 1):
        module = model.get_submodule(".".join(steps[:depth]))
        for base in type(module).__mro__:
            path = base.__module__.split(".")
            if path[:2] == ["swapformer", "model"] and path[2] in LAYER_SLOTS and path[2] not in _NOT_OWNERS:
                yield path[2]


def readout_parameters(model: nn.Module) -> Iterator[str]:
    """Names of the parameters behind the layers: those of no stack and no embedding; none of a model without stacks."""
    within = tuple(f"{name}." for name in stacks(model))
    for name, parameter in model.named_parameters():
        roles = [origin_of(name, parameter).role, *roles_of_leaf(model, name)]
        if within and not name.startswith(within) and not any(role.is_embedding for role in roles):
            yield name


def _within(model: nn.Module, at: object) -> Iterator[str]:
    """Parameters of the layers that `at` names, of every stack that has them."""
    for prefix, stack in stacks(model).items():
        for index in layer_range(at, len(stack.layers)):
            yield from (f"{prefix}.layers.{index}.{name}" for name, _ in stack.layers[index].named_parameters())


def layer_range(at: object, count: int) -> Sequence[int]:
    """The layers that `at` names among `count`, as Python counts: `3`, `-1`, `"0:2"`; none if it names none."""
    try:
        if isinstance(at, int) and not isinstance(at, bool):
            return [range(count)[at]]
        words = str(at).split(":")
        bounds = [int(word) if word else None for word in words]
        return range(count)[slice(*bounds)] if len(words) > 1 else [range(count)[int(words[0])]]
    except (ValueError, IndexError, TypeError):
        return []
