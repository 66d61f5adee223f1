"""The weights that attentions without scores show to probes are those that their output is made with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from swapformer.model import taps
from swapformer.model.attention import Attention, LinearAttention, Linformer, Nystrom, Performer, Reformer
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full
from swapformer.model.position import Position, Rotary
from swapformer.model.tokens import Tokens
from swapformer.random import stream

HEADS, HEAD_DIM, WIDTH, LENGTH = 2, 4, 6, 70
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, LENGTH, 5)
FULL, CAUSAL = Full(DIMS), Causal(DIMS)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)

PARTS: dict[str, Any] = {
    "linear": lambda: LinearAttention(DIMS, pattern=FULL),
    "linear-causal": lambda: LinearAttention(DIMS, pattern=CAUSAL),
    "performer": lambda: Performer(DIMS, pattern=FULL, features=8, seed=0),
    "performer-causal": lambda: Performer(DIMS, pattern=CAUSAL, features=8, seed=0),
    "linformer": lambda: Linformer(DIMS, pattern=FULL, landmarks=5, sharing="none"),
    "linformer-shared": lambda: Linformer(DIMS, pattern=FULL, landmarks=5, sharing="key_value"),
    "nystrom": lambda: Nystrom(DIMS, pattern=FULL, landmarks=5, iterations=6, convolution=5),
    "reformer": lambda: Reformer(DIMS, pattern=FULL, buckets=4, rounds=3, chunk=3, seed=0),
    "reformer-causal": lambda: Reformer(DIMS, pattern=CAUSAL, buckets=4, rounds=3, chunk=3, seed=0),
}


def widened(name: str) -> Any:
    part: Attention = PARTS[name]().double()
    with torch.no_grad():
        for own, parameter in part.named_parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=stream("implied", own)))
    return part.eval()


PADDING = torch.zeros(2, LENGTH, dtype=torch.bool)
PADDING[0, :6] = PADDING[1, 50:] = True
DOCUMENT = (torch.arange(LENGTH) >= 31).long()[None]
ROWS: dict[str, dict[str, Tensor]] = {
    "plain": {},
    "padding": {"padding": PADDING},
    "documents": {"document": DOCUMENT, "padding": PADDING},
}


@pytest.mark.parametrize("encoding", [Position(DIMS), Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False)])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", PARTS)
def test_weights_times_values_are_the_output(name: str, row: str, encoding: Position) -> None:
    """At every place that is no padding."""
    part, tokens = widened(name), Tokens.of(LENGTH, **ROWS[row])
    context = Context(tokens, tokens, torch.float64)
    weights = part.weights(X, context, encoding)
    values = part.value(X).view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2)
    made = part.out((weights @ values).transpose(1, 2).flatten(2))
    kept = ~ROWS[row].get("padding", torch.zeros(2, LENGTH, dtype=torch.bool))
    assert torch.allclose(made[kept], part(X, context, encoding)[kept], atol=1e-10)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", PARTS)
def test_weights_are_zero_where_nothing_is_seen(name: str, row: str) -> None:
    """Later places under a causal pattern, padding and other documents."""
    part, tokens = widened(name), Tokens.of(LENGTH, **ROWS[row])
    context = Context(tokens, tokens, torch.float64)
    mask = context.mask(CAUSAL if name.endswith("causal") else FULL)
    seen = torch.ones(1, 1, 1, 1, dtype=torch.bool) if mask is None else mask
    kept = ~ROWS[row].get("padding", torch.zeros(2, LENGTH, dtype=torch.bool))
    weights = part.weights(X, context, Position(DIMS))
    assert not (weights * ~seen * kept[:, None, :, None]).any()
    assert part.signed or (weights >= 0).all()


@pytest.mark.parametrize("name", ["linear", "linear-causal", "performer", "performer-causal", "reformer-causal"])
def test_weights_that_are_shares_sum_to_one(name: str) -> None:
    """Without a rotation, which turns the numerator of linear attention alone."""
    tokens = Tokens.of(LENGTH)
    weights = widened(name).weights(X, Context(tokens, tokens, torch.float64), Position(DIMS))
    assert torch.allclose(weights.sum(-1), torch.ones(2, HEADS, LENGTH, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("name", PARTS)
def test_what_replaces_them_makes_the_output(name: str) -> None:
    """The mean of all values, by a loop, where every weight is 1/K; the output itself where they stay as they are."""
    part, tokens = widened(name), Tokens.of(LENGTH)
    context, none = Context(tokens, tokens, torch.float64), Position(DIMS)
    plain = part(X, context, none)
    with taps.replace(part, {"hook_pattern": lambda weights: weights}):
        assert torch.allclose(part(X, context, none), plain, atol=1e-10)
    with taps.replace(part, {"hook_pattern": lambda weights: torch.full_like(weights, 1 / LENGTH)}):
        found = part(X, context, none)
    mean = sum(part.value(X)[:, t] for t in range(LENGTH)) / LENGTH
    assert torch.allclose(found, part.out(mean)[:, None].expand_as(found), atol=1e-12)
