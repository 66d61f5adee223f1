"""The cost of a feed-forward layer: by a clock whose seconds are known, and on shapes that are those of the layer."""

from __future__ import annotations

import pytest
import torch

from measure.conftest import Hand, measured
from swapformer.errors import UsageError
from swapformer.model.activation import GELU
from swapformer.model.ffn import MLP
from swapformer.study.config.compose import check, compose

COST = ("measure=feed_forward", "measure.tokens=[4,16]", "measure.warm_up=1", "measure.repeats=2")


def test_activation_and_layer_take_their_own_seconds(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer holds its activation: 2 s of it and 3 s of its own; backward passes move another clock."""
    monkeypatch.setattr(GELU, "forward", hand.slow(GELU.forward, 2.0))
    monkeypatch.setattr(MLP, "forward", hand.slow(MLP.forward, 3.0))
    monkeypatch.setattr(torch.autograd, "backward", hand.slow(torch.autograd.backward, 7.0))
    found = measured(*COST, now=hand).metrics
    for tokens in (4, 16):
        assert found[f"time/activation@{tokens}"] == 2
        assert found[f"time/ffn@{tokens}"] == 5
        assert found[f"time/activation_backward@{tokens}"] == found[f"time/ffn_backward@{tokens}"] == 7


def test_the_activation_gets_as_many_numbers_as_in_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gated layer of width 16 has 2/3 · 4 · 16 = 43 of them for each token."""
    shapes: set[tuple[int, ...]] = set()
    forward = GELU.forward

    def watched(part: GELU, x: torch.Tensor) -> torch.Tensor:
        shapes.add(tuple(x.shape))
        return forward(part, x)

    monkeypatch.setattr(GELU, "forward", watched)
    measured(*COST, "model/ffn=glu")
    assert shapes == {(1, 4, 43), (1, 16, 43)}


def test_a_model_without_feed_forward_layer_is_refused() -> None:
    with pytest.raises(UsageError, match="model/ffn=mlp"):
        check(compose(["task=copy", "model.num_layers=1", *COST, "model/ffn=none"]))
