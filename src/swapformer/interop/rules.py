"""Rules between the weights of another library and ours, by which checkpoints are both read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from swapformer.errors import UsageError

Weights = Mapping[str, Tensor]
Shapes = Mapping[str, torch.Size]

_SHOWN = 6
"""How many tensors an error names."""


@dataclass(frozen=True)
class Rule:
    """One tensor of a checkpoint and our tensors that it holds; `{layer}` in names means every layer's number.

    The checkpoint's tensor, transposed or without its first `skip` rows, consists of `blocks` blocks along the output
    axis, and each block holds an equal share of each of our tensors: one tensor after the other with one block (GPT-2),
    interleaved head by head with as many blocks as heads (BLOOM, GPT-NeoX).

    Attributes:
        theirs: name in the checkpoint; None if it has no such tensor, so that ours must be zero.
        ours: our names in order; empty if we have no such tensor, so that the checkpoint's must be zero.
        transposed: the checkpoint's tensor is [in, out], ours [out, in].
        blocks: see above.
        skip: rows at the beginning of the checkpoint's tensor that are unused.
        plus: ours is the checkpoint's plus this number.
        also: other names that the same tensor may have, unless another of our tensors has that name.
    """

    theirs: str | None
    ours: tuple[str, ...]
    transposed: bool = False
    blocks: int = 1
    skip: int = 0
    plus: float = 0.0
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names that the checkpoint's tensor may have."""
        return () if self.theirs is None else (self.theirs, *self.also)

    def cut(self, tensor: Tensor) -> dict[str, Tensor]:
        """Our tensors, cut from the checkpoint's, without `plus`."""
        whole = tensor.t() if self.transposed else tensor[self.skip :]
        if len(self.ours) == 1:
            return {self.ours[0]: whole}
        shares = whole.reshape(self.blocks, len(self.ours), -1, *whole.shape[1:]).unbind(1)
        return {name: share.flatten(0, 1) for name, share in zip(self.ours, shares, strict=True)}

    def join(self, ours: Weights) -> Tensor:
        """The checkpoint's tensor, joined from ours, without `plus`."""
        shares = [ours[name].reshape(self.blocks, -1, *ours[name].shape[1:]) for name in self.ours]
        whole = torch.stack(shares, dim=1).flatten(0, 2)
        whole = whole.t() if self.transposed else whole
        return torch.cat([whole.new_zeros(self.skip, *whole.shape[1:]), whole]) if self.skip else whole

    def at(self, layer: int) -> Rule:
        """The rule with the number of one layer."""

        def numbered(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(name.replace("{layer}", str(layer)) for name in names)

        theirs = None if self.theirs is None else self.theirs.replace("{layer}", str(layer))
        return replace(self, theirs=theirs, ours=numbered(self.ours), also=numbered(self.also))

    @property
    def of_layers(self) -> bool:
        """Whether the rule is for a tensor of every layer."""
        return any("{layer}" in name for name in (*self.names, *self.ours))


def module(
    theirs: str | None,
    *ours: str,
    kinds: Sequence[str] = ("weight", "bias"),
    also: Sequence[str] = (),
    plus: float = 0.0,
    **layout: Any,
) -> list[Rule]:
    """The rules for weight and bias of one module, or only for those `kinds`; `plus` is for the weight."""
    return [
        Rule(
            None if theirs is None else f"{theirs}.{kind}",
            tuple(f"{name}.{kind}" for name in ours),
            also=tuple(f"{name}.{kind}" for name in also),
            plus=plus if kind == "weight" else 0.0,
            **layout,
        )
        for kind in kinds
    ]


def inside(
    theirs: str, names: Mapping[str, str | tuple[str, ...]], *, ours: str = "stack.layers", **layout: Any
) -> list[Rule]:
    """The rules for modules of every layer, from names under `theirs` in the checkpoint to names under `ours`."""
    rules = []
    for name, own in names.items():
        modules = (own,) if isinstance(own, str) else own
        rules += module(f"{theirs}.{{layer}}.{name}", *(f"{ours}.{{layer}}.{one}" for one in modules), **layout)
    return rules


def for_layers(rules: Iterable[Rule], layers: int) -> list[Rule]:
    """The rules with `{layer}` replaced by the number of each layer."""
    return [rule.at(layer) for rule in rules for layer in (range(layers) if rule.of_layers else [0])]


def read(rules: Sequence[Rule], theirs: Weights, shapes: Shapes) -> dict[str, Tensor]:
    """Make all of our tensors, by name and shape, from a checkpoint's; rules of tensors that we lack are ignored.

    Raises:
        UsageError: naming every tensor that is missing, unknown, or of a wrong shape or value.
    """
    found: dict[str, Tensor] = {}
    missing, wrong, known = [], [], set[str]()
    for rule, names in applicable_rules(rules, shapes):
        present = [theirs[name] for name in names if name in theirs]
        known.update(names)
        if not rule.ours or rule.theirs is None:
            wrong += [f"{rule.theirs} must be zero, for there is none here" for tensor in present if tensor.any()]
            found.update({name: torch.zeros(shapes[name]) for name in rule.ours})
        elif not present:
            missing.append(rule.theirs)
        elif problem := _mismatch(rule, names, present, shapes):
            wrong.append(problem)
        else:
            found.update({name: part + rule.plus if rule.plus else part for name, part in rule.cut(present[0]).items()})
    unknown = [name for name in theirs if name not in known]
    _raise_if_any(missing=missing, unknown=unknown, wrong=wrong)
    assert found.keys() == shapes.keys(), f"the rules must name every tensor, but not {found.keys() ^ shapes.keys()}"
    return found


def applicable_rules(rules: Sequence[Rule], ours: Collection[str]) -> Iterator[tuple[Rule, list[str]]]:
    """The rules of tensors that we have, each with the names that the checkpoint's tensor may have."""
    used = [rule for rule in rules if all(name in ours for name in rule.ours)]
    first = {rule.theirs for rule in used}
    for rule in used:
        yield rule, [name for name in rule.names if name == rule.theirs or name not in first]


def _mismatch(rule: Rule, names: Sequence[str], present: Sequence[Tensor], shapes: Shapes) -> str | None:
    """The reason why the checkpoint's tensor cannot be ours; None if it can."""
    expected = rule.join({name: torch.empty(shapes[name], device="meta") for name in rule.ours}).shape
    for tensor in present:
        if tensor.shape != expected:
            return f"{rule.theirs} must be {list(expected)}, but it is {list(tensor.shape)}"
        if not torch.equal(tensor, present[0]):
            return f"{' and '.join(names)} must be equal, for they are one tensor here"
    return None


def _raise_if_any(missing: Sequence[str], unknown: Sequence[str], wrong: Sequence[str]) -> None:
    """Raise UsageError that names the tensors that do not fit."""
    texts = [
        f"{len(names)} tensors {what}: {', '.join(sorted(names)[:_SHOWN])}{' …' if len(names) > _SHOWN else ''}"
        for names, what in ((missing, "are missing"), (unknown, "are unknown to the model"))
        if names
    ]
    if problems := [*texts, *wrong[:_SHOWN]]:
        raise UsageError(f"the weights do not fit their configuration: {'; '.join(problems)}")


def write(rules: Sequence[Rule], ours: Weights) -> dict[str, Tensor]:
    """Make all of a checkpoint's tensors from ours, each under its first name.

    Raises:
        UsageError: if one of ours that the checkpoint lacks is not zero.
    """
    found: dict[str, Tensor] = {}
    for rule in rules:
        held = [name for name in rule.ours if name in ours]
        if rule.theirs is None:
            if lost := [name for name in held if ours[name].any()]:
                raise UsageError(f"{', '.join(lost)} must be zero, for the format has none")
        elif held:
            joined = rule.join(ours)
            found[rule.theirs] = (joined - rule.plus if rule.plus else joined).contiguous()
    return found
