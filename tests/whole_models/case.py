"""What a model in two libraries is, and what the cases share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from swapformer.interface import Interface
from swapformer.interop.rules import Rule, Weights, applicable_rules, for_layers

transformers = pytest.importorskip("transformers")


VOCABULARY, LENGTH, SOURCE, LAYERS = 17, 20, 14, 3


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "eager",
}


REST = {
    key: SIZES[key] for key in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "attn_implementation")
}


RMS = ["model/norm=rmsnorm"]


class Given(NamedTuple):
    """What both models are given: 2 sequences of LENGTH symbols, and a shorter source for each, both with padding."""

    ids: Tensor
    segments: Tensor
    padding: Tensor
    source: Tensor
    source_padding: Tensor

    @classmethod
    def made(cls) -> Given:
        """The same each time."""
        draw = torch.Generator().manual_seed(1)
        ids, source = (torch.randint(VOCABULARY, (2, n), generator=draw) for n in (LENGTH, SOURCE))
        padding, source_padding = (torch.zeros(2, n, dtype=torch.bool) for n in (LENGTH, SOURCE))
        padding[1, -6:] = source_padding[0, -3:] = True
        return cls(ids, torch.randint(2, (2, LENGTH), generator=draw), padding, source, source_padding)


def symbols_alone(model: nn.Module, given: Given) -> Tensor:
    """The logits of a model that takes nothing but symbols."""
    out = model(given.ids)
    return out if isinstance(out, Tensor) else out.logits


@dataclass(frozen=True)
class Case:
    """One model in two libraries.

    Attributes:
        name: of the case.
        theirs: makes their model.
        ours: overrides of our configuration.
        rules: how weights are mapped.
        layers: where their layers are, for each stack of ours; one word for a decoder's.
        bound: the largest difference that is allowed when they compute in float64.
        prepare: makes theirs one that ours can be, after its weights were drawn.
        ask: what their model answers; logits by default.
        ask_ours: what ours answers.
        asked: what ours is built for.
    """

    name: str
    theirs: Callable[[], nn.Module]
    ours: Sequence[str]
    rules: Sequence[Rule]
    layers: str | Mapping[str, str] = "model.layers"
    bound: float = 1e-10
    prepare: Callable[[nn.Module], None] = lambda model: None
    ask: Callable[[nn.Module, Given], Tensor] = symbols_alone
    ask_ours: Callable[[nn.Module, Given], Tensor] = symbols_alone
    asked: Interface | int = VOCABULARY

    @property
    def all_rules(self) -> list[Rule]:
        """The rules for every layer."""
        return for_layers(self.rules, LAYERS)

    @property
    def stacks(self) -> Mapping[str, str]:
        """Our stacks and their layers."""
        return {"stack": self.layers} if isinstance(self.layers, str) else self.layers


def read_gradients(rules: Sequence[Rule], theirs: Weights, ours: Collection[str]) -> dict[str, Tensor]:
    """The gradients of our tensors, from those of a checkpoint; several names of one tensor are summed."""
    found: dict[str, Tensor] = {}
    for rule, names in applicable_rules(rules, ours):
        present = [theirs[name] for name in names if name in theirs]
        if rule.ours and present:
            found.update(rule.cut(torch.stack(present).sum(0)))
    return found


def model_of(name: str, settings: dict[str, Any], kind: str = "ForCausalLM", **more: Any) -> Callable[[], nn.Module]:
    """What makes a model of transformers with a configuration."""
    return lambda: getattr(transformers, f"{name}{kind}")(
        getattr(transformers, f"{name}Config")(**{**settings, **more})
    )


WEIGHT = ("weight",)


Q, K, V, OUT = (f"attention.{name}" for name in ("query", "key", "value", "out"))


QKV = (Q, K, V)


UP, DOWN = "ffn.up", "ffn.down"


BEFORE = ("block.sublayers.0.before", "block.sublayers.1.before")


AFTER = ("block.sublayers.0.after", "block.sublayers.1.after")


INSIDE = ("block.sublayers.0.inside", "block.sublayers.1.inside")


LEARNED = "stack.positions.Learned.table"
