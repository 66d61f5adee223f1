"""The model under examination, in float64 and small enough to examine quickly."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.context import Tokens
from swapformer.model.layers import Role, origin_of
from swapformer.model.plan import LayerPlan
from swapformer.random import stream
from swapformer.training.assemble import build_model, build_plan

VOCABULARY = 11
LENGTH = 24


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
    _memo: dict[str, nn.Module] = field(default_factory=dict, compare=False)

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

    def build(self) -> nn.Module:
        """The model as a trial would start it, in float64."""
        return build_model(self.config, VOCABULARY).double()

    def perturbed(self) -> nn.Module:
        """The model with wide weights, so that branches that start at zero take part. Evaluation mode.

        One model for all laws: a law that changes it takes a copy.
        """
        if "perturbed" not in self._memo:
            self._memo["perturbed"] = self._perturb(self.build())
        return self._memo["perturbed"]

    @staticmethod
    def _perturb(model: nn.Module) -> nn.Module:
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
    def causal(self) -> bool:
        """Whether every layer's pattern states that no place sees a later one."""
        return all(layer.pattern().causal for layer in self.layers)


def ids(rows: int = 2, length: int = LENGTH, *, seed: int = 0) -> Tensor:
    """Random token ids [rows, length]."""
    return torch.randint(VOCABULARY, (rows, length), generator=stream("ids", seed))


def run(model: nn.Module, inputs: Tensor, tokens: Tokens | None = None) -> Tensor:
    """Logits without gradient."""
    with torch.no_grad():
        out: Tensor = model(inputs, tokens)
    return out


def gradients(model: nn.Module, inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Next-token loss and its gradient by parameter; a parameter that gets none is absent."""
    model.zero_grad()
    logits = model(inputs)
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
