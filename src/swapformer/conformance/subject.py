"""The configuration under examination, its small models in float64, and their inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.catalogue import takes_list
from swapformer.interface import MAIN
from swapformer.model.layers import Role, origin_of
from swapformer.model.plan import LayerPlan
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology, take_auxiliary_loss
from swapformer.random import stream
from swapformer.targets import find
from swapformer.training.assemble import FULL, build_model, build_plan

Made = TypeVar("Made")

VOCABULARY = 11
LENGTH = 24
TIGHT = 1e-10
"""Largest difference in float64 that rounding explains at this size."""

CAUSAL = {"_target_": "swapformer.model.pattern.Causal", "_partial_": True, "_convert_": "all"}


class BrokenLaw(AssertionError):
    """A law does not hold; the message says what was expected, what was found and where to look."""


def require(holds: bool | Tensor, message: str) -> None:
    """Raise BrokenLaw with `message` unless the condition holds."""
    if not holds:
        raise BrokenLaw(message)


def require_near(found: Tensor, expected: Tensor, message: str) -> None:
    """Raise BrokenLaw unless two tensors agree up to rounding; `{gap}` in the message is their largest difference."""
    gap = (found - expected).abs().max().item()
    require(gap < TIGHT, message.format(gap=f"{gap:.2g}"))


def require_finite(gradients: Mapping[str, Tensor], message: str) -> None:
    """Raise BrokenLaw unless all gradients are finite; `{names}` in the message are the parameters of the others."""
    names = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    require(not names, message.format(names=names))


@dataclass(frozen=True)
class Subject:
    """A resolved configuration, of which the part in one slot is examined.

    Attributes:
        config: the configuration; only its `model` and `seed` matter here.
        slot: the slot of the part that is examined.
    """

    config: Mapping[str, Any]
    slot: str
    _memo: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, config: Mapping[str, Any], slot: str) -> Subject:
        """The subject with the full pattern if its part is an attention that takes no causal one."""
        subject = cls(config, slot)
        if not config["model"][slot]:  # no extension
            return subject
        return subject if getattr(subject.part, "causal_safe", True) else subject.with_model(pattern=FULL)

    def with_settings(self, **settings: Any) -> Subject:
        """The same subject with some settings of its part changed."""
        config = copy.deepcopy(dict(self.config))
        subject = Subject(config, self.slot)
        subject.node.update(settings)
        return subject

    def with_model(self, **settings: Any) -> Subject:
        """The same subject with other sizes of the model, or other parts in its slots."""
        return Subject({**self.config, "model": {**self.config["model"], **settings}}, self.slot)

    @property
    def node(self) -> dict[str, Any]:
        """The settings of the part that is examined; of several in one slot, those of the last."""
        node: dict[str, Any] = self.config["model"][self.slot]
        return next(reversed(node.values())) if takes_list(self.slot) else node

    @property
    def part(self) -> Any:
        """The class of the part that is examined."""
        return find(self.node["_target_"])

    @property
    def has_slots(self) -> bool:
        """Whether the model is made of parts; a whole model of the user's own is not."""
        return bool(find(self.config["model"]["topology"]["_target_"]).has_slots)

    def build(self) -> Topology:
        """The model as a trial starts it, in float64."""
        return build_model(self.config, VOCABULARY).double()

    def perturbed(self) -> Topology:
        """The model with noise on its weights, so that branches that start at zero count too; in evaluation mode.

        All laws share this model: a law that changes it takes a copy.
        """
        return self.once("perturbed", lambda: self._perturb(self.build()))

    def in_training(self) -> list[Topology]:
        """Copies of the perturbed model in training mode; of a kernel one with dropout too, unless it refuses it.

        There are none where a norm states that it mixes positions in training.
        """
        if any(layer.norm().crosses_positions for layer in self.layers):
            return []
        models = [copy.deepcopy(self.perturbed()).train()]
        with suppress(ValueError):
            if self.slot == "kernel":
                models.append(copy.deepcopy(self.with_model(dropout=0.3).perturbed()).train())
        return models

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """The value of `make`, made once for each name."""
        if name not in self._memo:
            self._memo[name] = make()
        made: Made = self._memo[name]
        return made

    @staticmethod
    def _perturb(model: Topology) -> Topology:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=stream("perturb", name), dtype=torch.float64)
                origin = origin_of(name, parameter)
                width = (
                    0.3
                    if origin.role in (Role.GAIN, Role.VECTOR)
                    else max(0.3, origin.fan_in**-0.5 if origin.fan_in else 0.3)
                )
                parameter.copy_(parameter + width * noise)
        return model.eval()

    @cached_property
    def layers(self) -> tuple[LayerPlan, ...]:
        """The plans of the layers."""
        return build_plan(self.config, VOCABULARY).layers

    @property
    def positions(self) -> list[Position]:
        """The encodings of the layers."""
        return [layer.position() for layer in self.layers]

    @property
    def refused(self) -> bool:
        """Whether some attention refuses its position, kernel or dropout."""
        return any(layer.attention().refuses(layer.position()) is not None for layer in self.layers)

    @property
    def sees_order(self) -> bool:
        """Whether some attention states that it depends on the order by itself."""
        return any(layer.attention().sees_order for layer in self.layers)

    @property
    def anchored(self) -> bool:
        """Whether some pattern or attention states that it counts from the beginning, or by the row's length."""
        return any(layer.pattern().anchored or layer.attention().anchored for layer in self.layers)

    @property
    def depends_on_length(self) -> bool:
        """Whether the logits of a token may depend on the length of the row."""
        by_blocks = self.anchored and (self.sees_order or not self.causal)
        return by_blocks or any(position.depends_on_length for position in self.positions)

    @property
    def unavailable(self) -> str | None:
        """The reason why the subject cannot be examined on a CPU in float64; None if it can."""
        needs = {layer.part("kernel").accelerator for layer in self.layers if "kernel" in layer.attention().uses}
        return "its kernel needs a GPU, where its own tests compare it with the reference" if "gpu" in needs else None

    @property
    def causal(self) -> bool:
        """Whether no place is shown a later one: neither a layer's pattern nor the topology states that it is."""
        return all(layer.pattern().causal for layer in self.layers) and not self.perturbed().reads_ahead


def refusal(subject: Subject) -> ValueError | None:
    """The error by which some part refuses the subject's settings; None if they can be built."""
    try:
        subject.perturbed()
    except ValueError as error:
        return error
    return None


class _Channels(Mapping[str, Tensor]):
    """A channel [1, T] for every tag that a pattern reads: small random numbers by name and position."""

    def __init__(self, first: int, length: int) -> None:
        self._first, self._length = first, length

    def __getitem__(self, name: str) -> Tensor:
        return torch.randint(3, (1, 512), generator=stream("tag", name))[:, self._first : self._first + self._length]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def make_tokens(length: int = LENGTH, *, first_tag: int = 0, **given: Any) -> Tokens:
    """`Tokens.of` with every tag; the values of tags are those of positions from `first_tag` on."""
    return Tokens.of(length, tags=_Channels(first_tag, length), **given)


def ids(rows: int = 2, length: int = LENGTH, *, seed: int = 0) -> Tensor:
    """Random token ids [rows, length]."""
    return torch.randint(VOCABULARY, (rows, length), generator=stream("ids", seed))


def source_of(model: Topology, inputs: Tensor) -> tuple[Tensor | None, Tokens]:
    """A fixed source of another length than the inputs, for a topology that reads one, and its tokens."""
    takes_source = model.reads_source and not model.reads_ahead
    on_host = inputs.device.type == "cpu"
    made = ids(len(inputs), LENGTH // 2, seed=1) if on_host else inputs[:, : LENGTH // 2]
    return made if takes_source else None, make_tokens(LENGTH // 2, device=inputs.device)


def answer(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Logits; a topology that reads a source gets a fixed one."""
    out: Tensor = model(inputs, tokens or make_tokens(inputs.shape[1]), *source_of(model, inputs))
    return out


def run(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Logits without gradient."""
    with torch.no_grad():
        return answer(model, inputs, tokens)


def seeded(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Logits without gradient, from one random state: what is drawn in training is the same in each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return run(model, inputs, tokens)


def loss_of(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Next-token loss, with early answers and the auxiliary losses of parts."""
    return loss_from(model, answer(model, inputs, tokens), inputs)


def loss_from(model: Topology, logits: Tensor, inputs: Tensor) -> Tensor:
    """The loss of logits that the model just gave."""
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs[:, 1:].flatten())
    for early in model.take_early_answers():
        logits = early[MAIN]
        loss = loss + model.depth.loss * functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs[:, 1:].flatten())
    auxiliary = take_auxiliary_loss(model)
    return loss if auxiliary is None else loss + auxiliary


def gradients(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and its gradient by parameter; a parameter that gets none is absent."""
    model.zero_grad()
    loss = loss_of(model, inputs, tokens)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
