"""Performer: an unbiased estimate of softmax attention that does not look ahead (Choromanski et al. 2021)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from swapformer.errors import UsageError
from swapformer.model.attention import Performer
from swapformer.model.attention.performer import log_features, orthogonal_directions
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full, Pattern
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose

HEADS, HEAD_DIM, WIDTH, LENGTH = 2, 4, 6, 70
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, LENGTH, 5)


def performer(pattern: Pattern, features: int, width: float = 0.5) -> Performer:
    part = Performer(DIMS, pattern=pattern, features=features, seed=0).double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(width * torch.randn(parameter.shape, generator=stream("performer", name)))
    return part


def run(part: Performer, x: Tensor) -> Tensor:
    tokens = Tokens.of(x.shape[1])
    return part(x, Context(tokens, tokens, torch.float64), Position(DIMS))


def heads(part: Performer, x: Tensor) -> list[Tensor]:
    return [layer(x).view(len(x), -1, HEADS, HEAD_DIM).transpose(1, 2) for layer in (part.query, part.key, part.value)]


X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)


def test_the_kernels_estimate_is_unbiased() -> None:
    """Lemma 1: the mean over many draws is exp(a·b), to within five standard errors of the mean."""
    a, b = (0.5 * torch.randn(5, HEAD_DIM, generator=stream("pair", i), dtype=torch.float64) for i in range(2))
    generator = stream("draws")
    draws = []
    for _ in range(4000):
        log_a, log_b = log_features(a, b, orthogonal_directions(HEAD_DIM, HEAD_DIM, generator))
        draws.append((log_a + log_b).exp().sum(-1))
    found = torch.stack(draws)
    error = found.std(0) / len(draws) ** 0.5
    assert ((found.mean(0) - (a * b).sum(-1).exp()).abs() < 5 * error).all()
    assert (error < 0.1).all()


def test_directions_are_orthogonal_and_repeat() -> None:
    first, again = (orthogonal_directions(10, 4, stream("d")) for _ in range(2))
    assert torch.equal(first, again)
    for group in (first[:4], first[4:8], first[8:]):
        products = group @ group.mT
        assert torch.allclose(products, products.diagonal().diag(), atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_many_features_come_close_to_softmax_attention(causal: bool) -> None:
    pattern = Causal(DIMS) if causal else Full(DIMS)
    gaps = []
    for features in (16, 256, 4096):
        part = performer(pattern, features, width=0.25)
        exact = functional.scaled_dot_product_attention(*heads(part, X), is_causal=causal)
        exact = part.out(exact.transpose(1, 2).flatten(2))
        gaps.append((run(part, X) - exact).square().mean().sqrt().item())
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]


@pytest.mark.parametrize("causal", [True, False])
def test_the_fast_sums_equal_the_features_definition(causal: bool) -> None:
    """φ(x) = exp(w·x − |x|²/2)/√M for queries and keys alike, pair by pair, without any stabiliser."""
    part = performer(Causal(DIMS) if causal else Full(DIMS), 12)
    x = X.clone().requires_grad_()
    q, k, v = heads(part, x)
    phi_q, phi_k = (
        ((y * HEAD_DIM**-0.25) @ part.directions.mT - (y * HEAD_DIM**-0.25).square().sum(-1, keepdim=True) / 2).exp()
        for y in (q, k)
    )
    similarity = phi_q @ phi_k.mT
    similarity = similarity.tril() if causal else similarity
    theirs = part.out((similarity / similarity.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(2))
    ours = run(part, x)
    leaves = [x, part.query.weight, part.key.weight, part.value.weight]
    grads = [torch.autograd.grad(out.square().sum(), leaves, retain_graph=True) for out in (ours, theirs)]
    assert (ours - theirs).abs().max() <= 1e-10
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_the_stabiliser_does_not_look_ahead() -> None:
    """A later key of huge norm must not change an earlier output, not even by underflow in float32."""
    part = performer(Causal(DIMS), 32).float()
    x = X.float()
    loud = x.clone()
    loud[:, 40:] *= 50
    assert torch.equal(run(part, x)[:, :40], run(part, loud)[:, :40])
    assert run(part, loud).isfinite().all()


@pytest.mark.parametrize("width", [16, 64, 128, 192])
@pytest.mark.parametrize("features", [16, 256])
def test_float32_tells_the_features_of_wide_heads_apart(width: int, features: int) -> None:
    """Queries, keys and values of variance 1: in float32 the mean is that of float64, and gradients are too."""
    dims, found, slopes = Dims(width, 1, 1, width, 32, 5), [], []
    for dtype in (torch.float64, torch.float32):
        part = Performer(dims, pattern=Causal(dims), features=features, seed=0).to(dtype)
        with torch.no_grad():
            for name, weight in part.named_parameters():
                weight.copy_(torch.randn(weight.shape, generator=stream(name), dtype=torch.float64) / width**0.5)
        x = torch.randn(1, 32, width, generator=stream("x"), dtype=torch.float64).to(dtype)
        out = run(part, x)
        out.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append(out.double())
        slopes.append(part.value.weight.grad.double())
    for exact, rounded in (found, slopes):
        assert (exact - rounded).norm() < 1e-3 * exact.norm()


def test_heads_too_wide_for_its_features_are_refused() -> None:
    with pytest.raises(UsageError, match="heads of at most 192 dimensions, but these have 256; raise"):
        check(compose(["task=copy", "model/attention=performer", "model.d_model=256", "model.num_heads=1"]))


def test_what_performer_cannot_take_is_refused_at_composition() -> None:
    with pytest.raises(UsageError, match="no scores that the position ALiBi could add to"):
        check(compose(["task=copy", "model/attention=performer", "model/position=alibi"]))
    check(compose(["task=copy", "model/attention=performer"]))
