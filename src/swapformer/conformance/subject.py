"""The model under examination, in float64 and small enough to examine quickly."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from hydra.utils import get_object
from torch import Tensor
from torch.nn import functional

from swapformer.model.auxiliary import take_auxiliary_loss
from swapformer.model.context import Tokens
from swapformer.model.layers import Role, origin_of
from swapformer.model.plan import LayerPlan
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.training.assemble import FULL, build_model, build_plan

Made = TypeVar("Made")

VOCABULARY = 11
LENGTH = 24

CAUSAL = {"_target_": "swapformer.model.pattern.Causal", "_partial_": True, "_convert_": "all"}


class BrokenLaw(AssertionError):
    """A law that does not hold: says what was expected, what was seen and where to look."""


def require(holds: bool | Tensor, message: str) -> None:
    """Raise BrokenLaw with `message` unless the condition holds."""
    if not holds:
        raise BrokenLaw(message)


@dataclass(frozen=True)
class Subject:
    """A resolved configuration whose slot `slot` is examined.

    Attributes:
        config: the configuration; only its `model` and `seed` matter here.
        slot: the slot in question.
    """

    config: Mapping[str, Any]
    slot: str
    _memo: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def fitting(cls, config: Mapping[str, Any], slot: str) -> Subject:
        """The subject among companions that its part can work with: an attention that states that it is not causal-safe
        has the full pattern, the only one that it takes.
        """
        subject = cls(config, slot)
        part = get_object(config["model"][slot]["_target_"])
        return subject if getattr(part, "causal_safe", True) else subject.with_option("pattern", FULL)

    def changed(self, **settings: Any) -> Subject:
        """The same subject with some settings of its part changed."""
        config = copy.deepcopy(dict(self.config))
        config["model"][self.slot].update(settings)
        return Subject(config, self.slot)

    def with_option(self, slot: str, node: Mapping[str, Any]) -> Subject:
        """The same subject with another part in a slot."""
        config = copy.deepcopy(dict(self.config))
        config["model"][slot] = dict(node)
        return Subject(config, self.slot)

    def build(self) -> Topology:
        """The model as a trial would start it, in float64."""
        return build_model(self.config, VOCABULARY).double()

    def perturbed(self) -> Topology:
        """The model with wide weights, so that branches that start at zero take part. Evaluation mode.

        One model for all laws: a law that changes it takes a copy.
        """
        return self.once("perturbed", lambda: self._perturb(self.build()))

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What `make` gives, made once for each name."""
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
                width = 0.3 if origin.role is Role.GAIN else max(0.3, origin.fan_in**-0.5 if origin.fan_in else 0.3)
                parameter.copy_(parameter + width * noise)
        return model.eval()

    @cached_property
    def layers(self) -> tuple[LayerPlan, ...]:
        """The plans of the layers."""
        return build_plan(self.config, VOCABULARY).layers

    @property
    def elsewhere(self) -> str | None:
        """Why the subject cannot be examined here, on a CPU in float64; None if it can."""
        needs = {layer.part("kernel").accelerator for layer in self.layers if "kernel" in layer.attention().uses}
        return "its kernel needs a GPU, where its own tests hold it to the reference" if "gpu" in needs else None

    @property
    def causal(self) -> bool:
        """Whether every layer's pattern states that no place sees a later one."""
        return all(layer.pattern().causal for layer in self.layers)


class _Channels(Mapping[str, Tensor]):
    """Every tag that a pattern may ask for, [1, T]: small random numbers that depend on the tag's name alone."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __getitem__(self, name: str) -> Tensor:
        return torch.randint(3, (1, self._length), generator=stream("tag", name))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def places(length: int = LENGTH, **given: Any) -> Tokens:
    """`Tokens.of` with every tag."""
    return Tokens.of(length, tags=_Channels(length), **given)


def ids(rows: int = 2, length: int = LENGTH, *, seed: int = 0) -> Tensor:
    """Random token ids [rows, length]."""
    return torch.randint(VOCABULARY, (rows, length), generator=stream("ids", seed))


def answer(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Logits; a topology that reads a source gets one of its own, of another length, whatever the inputs."""
    source = ids(len(inputs), LENGTH // 2, seed=1) if model.reads_source else None
    out: Tensor = model(inputs, tokens or places(inputs.shape[1]), source, places(LENGTH // 2))
    return out


def run(model: Topology, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Logits without gradient."""
    with torch.no_grad():
        return answer(model, inputs, tokens)


def gradients(model: Topology, inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Next-token loss and its gradient by parameter; a parameter that gets none is absent."""
    model.zero_grad()
    logits = answer(model, inputs)
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs[:, 1:].flatten())
    if (auxiliary := take_auxiliary_loss(model)) is not None:
        loss = loss + auxiliary
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
