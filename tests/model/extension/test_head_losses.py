"""Losses on heads, by their definition in float64."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from swapformer.model.attention import MultiHead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension import Extension, Guidance, Orthogonality
from swapformer.model.extension.head_losses import overlap
from swapformer.model.kernel import Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Pattern, PerHead, Window
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.model.topology import take_auxiliary_loss
from swapformer.random import stream

HEADS, HEAD_DIM, WIDTH, LENGTH = 4, 3, 10, 9
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 16, 5)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)
PADDING = torch.arange(LENGTH)[None] >= torch.tensor([[LENGTH], [LENGTH - 2]])
DOCUMENT = (torch.arange(LENGTH) >= 4).long()[None]
PLACES = [Tokens.of(LENGTH), Tokens.of(LENGTH, padding=PADDING), Tokens.of(LENGTH, document=DOCUMENT)]


def attention(*extensions: Extension, pattern: Pattern | None = None) -> MultiHead:
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    parts["extension"] = {type(part).__name__: part for part in extensions}
    part = MultiHead(DIMS, score=Dot(DIMS, exponent=-0.5), pattern=pattern or Causal(DIMS), **parts).double()
    with torch.no_grad():
        for key, parameter in part.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("heads", key), dtype=torch.float64)
            parameter.copy_(0.5 * noise)
    return part


def guidance(pattern: Pattern | None = None, **weights: list[float]) -> Guidance:
    given = {"previous_loss": [], "local_loss": [], "global_loss": [], **weights}
    return Guidance(DIMS, pattern=pattern or Causal(DIMS), **given)


def context(tokens: Tokens) -> Context:
    return Context(tokens, tokens, torch.float64)


def loss_of(part: MultiHead, tokens: Tokens) -> Tensor:
    part.train()(X, context(tokens), Position(DIMS))
    loss = take_auxiliary_loss(part)
    assert loss is not None
    return loss


def heads_of(part: MultiHead, tokens: Tokens) -> Tensor:
    """[B, H, T, E], before the last matrix."""
    v = part.value(X).view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2)
    return part.weights(X, context(tokens), Position(DIMS)) @ v


@pytest.mark.parametrize("of", ["outputs", "weights"])
@pytest.mark.parametrize("tokens", PLACES, ids=["plain", "padding", "documents"])
def test_the_orthogonality_penalty_is_the_mean_squared_cosine_of_two_heads(
    tokens: Tokens, of: Literal["outputs", "weights"]
) -> None:
    part, found = attention(Orthogonality(DIMS, weight=0.3, of=of)), []
    heads = heads_of(part, tokens) if of == "outputs" else part.weights(X, context(tokens), Position(DIMS))
    for b in range(2):
        for t in range(LENGTH):
            if tokens.padding is not None and tokens.padding[b, t]:
                continue
            for h in range(HEADS):
                for g in set(range(HEADS)) - {h}:
                    a, c = heads[b, h, t], heads[b, g, t]
                    found.append((a @ c / (a.norm() * c.norm())) ** 2)
    expected, ours = 0.3 * torch.stack(found).mean(), loss_of(part, tokens)
    assert (ours - expected).abs() <= 1e-12
    leaves = [part.query.weight, *([part.value.weight, part.value.bias] if of == "outputs" else [])]
    grads = [torch.autograd.grad(loss, leaves) for loss in (ours, expected)]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_the_penalty_is_zero_for_orthogonal_heads_and_one_for_parallel_ones() -> None:
    apart = torch.eye(4, dtype=torch.float64)[None, :, None].expand(2, 4, 5, 4)
    assert overlap(3 * apart, None) == 0
    assert overlap(torch.ones(2, 4, 5, 3), None) == pytest.approx(1)


GUIDED = {
    "previous": lambda i, j: 1.0 if j == i - 1 else 0.0,
    "local": lambda i, j: 0.5 ** abs(i - j),
    "global": lambda i, j: 1.0,
}
PATTERNS = [
    Causal(DIMS),
    Full(DIMS),
    Window(DIMS, before=2),
    PerHead(DIMS, patterns={"a": Causal, "b": lambda dims: Window(dims, before=1)}),
]


@pytest.mark.parametrize("tokens", PLACES, ids=["plain", "padding", "documents"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=["causal", "full", "window", "per head"])
@pytest.mark.parametrize("behaviour", GUIDED)
def test_a_guided_head_pays_for_its_distance_from_the_behaviour(
    behaviour: str, pattern: Pattern, tokens: Tokens
) -> None:
    """Squared, over keys, for the queries that may see one of the places they shall look at, and are no padding."""
    guided, found = {1: 0.2, 3: 0.5}, []
    part = attention(guidance(pattern, **{f"{behaviour}_loss": [0.0, 0.2, 0.0, 0.5]}), pattern=pattern)
    weights = part.weights(X, context(tokens), Position(DIMS))
    mask = context(tokens).mask(pattern)
    allowed = torch.ones(2, HEADS, LENGTH, LENGTH) if mask is None else mask.expand(2, HEADS, LENGTH, LENGTH)
    for head, weight in guided.items():
        each = []
        for b in range(2):
            for i in range(LENGTH):
                shares = [GUIDED[behaviour](i, j) * float(allowed[b, head, i, j]) for j in range(LENGTH)]
                if sum(shares) and not (tokens.padding is not None and tokens.padding[b, i]):
                    target = torch.tensor(shares, dtype=torch.float64) / sum(shares)
                    each.append(((weights[b, head, i] - target) ** 2).sum())
        found.append(weight * torch.stack(each).mean())
    expected, ours = torch.stack(found).sum(), loss_of(part, tokens)
    assert (ours - expected).abs() <= 1e-12
    leaves = [part.query.weight, part.key.weight]
    grads = [torch.autograd.grad(loss, leaves) for loss in (ours, expected)]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_guided_heads_learn_their_behaviour() -> None:
    """With one-hot inputs to tell places by; of the last of nine places half the local head's weight is on itself."""
    part = attention(guidance(previous_loss=[1.0], global_loss=[0.0, 1.0], local_loss=[0.0, 0.0, 1.0]))
    tokens, x = Tokens.of(LENGTH), torch.eye(WIDTH, dtype=torch.float64)[None, :LENGTH]
    leaves = [part.query.weight, part.key.weight]
    for _ in range(300):
        part(x, context(tokens), Position(DIMS))
        loss = take_auxiliary_loss(part)
        assert loss is not None
        with torch.no_grad():
            for leaf, slope in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
                leaf.sub_(4 * slope)
    weights = part.weights(x, context(tokens), Position(DIMS))[0].detach()
    assert weights[0].diagonal(-1).min() > 0.9
    even = torch.ones(LENGTH, LENGTH).tril() / torch.arange(1, LENGTH + 1)[:, None]
    assert (weights[1] - even).abs().max() < 0.1
    halves = torch.tensor([0.5**d for d in range(4)])
    assert (weights[2, -1].flip(0)[:4] - halves / 2).abs().max() < 0.1


def test_losses_change_no_output_and_leave_nothing_in_evaluation() -> None:
    plain, losing = attention(), attention(Orthogonality(DIMS, weight=0.1), guidance(previous_loss=[0.1]))
    for part in (plain.eval(), losing.eval(), plain.train()):
        part(X, context(Tokens.of(LENGTH)), Position(DIMS))
        assert take_auxiliary_loss(part) is None
    outs = [part.train()(X, context(Tokens.of(LENGTH)), Position(DIMS)) for part in (plain, losing)]
    assert torch.equal(*outs)
    assert (plain.has_auxiliary_loss, losing.has_auxiliary_loss) == (False, True)


def test_a_memory_guides_nothing() -> None:
    part = attention(guidance(Full(DIMS), previous_loss=[0.1]), pattern=Full(DIMS)).train()
    crossed = Context(Tokens.of(3), Tokens.of(LENGTH), torch.float64)
    part(X[:, :3], crossed, Position(DIMS), X)
    assert take_auxiliary_loss(part) is None
