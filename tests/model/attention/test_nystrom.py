"""Nyströmformer: softmax attention through the means of segments (Xiong et al. 2021, arXiv:2102.03902).

Expected numbers come from the paper's equations head by head, from torch's pseudo-inverse, and from shorter rows
without padding.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.model.attention import Nystrom
from swapformer.model.attention.nystrom import inverse_by_iteration
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose

HEADS, HEAD_DIM, WIDTH, LENGTH = 2, 4, 6, 23
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, LENGTH, 5)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)


def nystrom(landmarks: int = 4, iterations: int = 6, convolution: int | None = 3, width: float = 1.0) -> Nystrom:
    part = Nystrom(DIMS, pattern=Full(DIMS), landmarks=landmarks, iterations=iterations, convolution=convolution)
    part = part.double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(width * torch.randn(parameter.shape, generator=stream("nystrom", name)))
    return part.eval()


def run(part: Nystrom, x: Tensor, **given: Tensor) -> Tensor:
    tokens = Tokens.of(x.shape[1], **given)
    return part(x, Context(tokens, tokens, torch.float64), Position(DIMS))


def definition(part: Nystrom, x: Tensor, segments: list[list[int]]) -> Tensor:
    """Equations 13 and 14 and the convolution tap by tap, for one row x [T, D]."""
    q, k, v = (layer(x).view(len(x), HEADS, HEAD_DIM).unbind(1) for layer in (part.query, part.key, part.value))
    outs = []
    for h in range(HEADS):
        means = [torch.stack([y[h][places].mean(0) for places in segments]) for y in (q, k)]
        pairs = ((q[h], means[1]), (means[0], means[1]), (means[0], k[h]))
        near, between, far = ((a @ b.T / HEAD_DIM**0.5).softmax(-1) for a, b in pairs)
        z, one = between.T / (between.sum(0).max() * between.sum(1).max()), torch.eye(len(segments))
        for _ in range(part.iterations):
            z = z @ (13 * one - between @ z @ (15 * one - between @ z @ (7 * one - between @ z))) / 4
        out = near @ z @ far @ v[h]
        if part.filters is not None:
            taps = part.filters.weight[h, 0]
            out = torch.stack(
                [
                    out[i] + sum(taps[t] * v[h][i + t - 1] for t in range(3) if 0 <= i + t - 1 < len(x))
                    for i in range(len(x))
                ]
            )
        outs.append(out)
    return part.out(torch.cat(outs, dim=-1))


SEGMENTS = {
    (23, 4): [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17], [18, 19, 20, 21, 22]],
    (6, 4): [[0, 1], [2], [3, 4], [5]],
    (3, 4): [[0], [1], [2]],
    (1, 4): [[0]],
}
"""The places of each landmark, by length and number of landmarks, worked out by hand."""


@pytest.mark.parametrize("convolution", [None, 3])
@pytest.mark.parametrize(("length", "landmarks"), SEGMENTS)
def test_any_length_is_the_definitions_with_gradients(length: int, landmarks: int, convolution: int | None) -> None:
    part, x = nystrom(landmarks, convolution=convolution), X[:, :length].clone().requires_grad_()
    ours = run(part, x)
    theirs = torch.stack([definition(part, row, SEGMENTS[length, landmarks]) for row in x])
    probe = torch.randn(ours.shape, generator=stream("probe"), dtype=torch.float64)
    leaves = [x, part.query.weight, part.key.weight, part.value.weight]
    grads = [torch.autograd.grad((out * probe).sum(), leaves) for out in (ours, theirs)]
    gap = max(
        ((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in [(ours, theirs), *zip(*grads, strict=True)]
    )
    print(f"largest difference {gap:.1e}")
    assert gap <= 1e-10


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("kept", [17, 3])
def test_padding_has_no_landmarks(left: bool, kept: int) -> None:
    """The others get what they get without it, also where fewer of them than landmarks are left."""
    part = nystrom()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1] = torch.arange(LENGTH) < LENGTH - kept if left else torch.arange(LENGTH) >= kept
    padded = run(part, X, padding=padding)
    assert torch.allclose(padded[0], run(part, X[:1])[0], atol=1e-12)
    assert torch.allclose(padded[1][~padding[1]], run(part, X[1:][:, ~padding[1]])[0], atol=1e-12)
    assert padded.isfinite().all()


def test_a_row_of_padding_is_finite_with_gradients() -> None:
    part, x = nystrom(), X.clone().requires_grad_()
    padding = torch.tensor([[False], [True]]).expand(2, LENGTH)
    run(part, x, padding=padding).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_documents_have_landmarks_of_their_own() -> None:
    part, cut = nystrom(), 9
    document = (torch.arange(LENGTH) >= cut).long()[None]
    alone = torch.cat([run(part, X[:, :cut]), run(part, X[:, cut:])], dim=1)
    assert torch.allclose(run(part, X, document=document), alone, atol=1e-12)


def test_a_landmark_for_each_place_makes_softmax_attention() -> None:
    """S S⁺ S = S, torch's attention, and fewer landmarks do not make it."""
    gaps = []
    for landmarks in (LENGTH - 1, LENGTH):
        part = nystrom(landmarks, 60, None)
        heads = (layer(X).view(2, LENGTH, HEADS, HEAD_DIM) for layer in (part.query, part.key, part.value))
        full = torch.nn.functional.scaled_dot_product_attention(*(y.transpose(1, 2) for y in heads))
        gaps.append((run(part, X) - part.out(full.transpose(1, 2).flatten(2))).abs().max().item())
    assert gaps[0] > 0.01
    assert gaps[1] < 1e-6


def test_the_iteration_ends_at_the_pseudo_inverse() -> None:
    """Also for a matrix with empty rows and columns, and for nothing but zeros."""
    s = torch.zeros(3, 6, 6, dtype=torch.float64)
    s[0] = torch.randn(6, 6, generator=stream("s"), dtype=torch.float64).softmax(-1)
    s[1, :4, :4] = torch.randn(4, 4, generator=stream("t"), dtype=torch.float64).softmax(-1)
    assert torch.allclose(inverse_by_iteration(s, 40), torch.linalg.pinv(s), atol=1e-8)


def test_autocast_leaves_the_inverse_its_digits() -> None:
    """Under autocast it loses no more than where the weights are bfloat16 and the mixing is float32."""
    part, x = nystrom(8, 12, None, width=0.4).float(), X.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = run(part, x)
    assert torch.equal(mixed, run(part.bfloat16(), x.bfloat16()))


def test_a_memory_of_another_length_can_be_read_without_the_convolution() -> None:
    part, memory, few = nystrom(convolution=None), X[:, :10], X[:, 10:]
    asks, asked = Tokens.of(few.shape[1]), Tokens.of(10)
    read = part(few, Context(asks, asked, torch.float64), Position(DIMS), memory)
    weights = part.weights(few, Context(asks, asked, torch.float64), Position(DIMS), memory)
    values = part.value(memory).view(2, 10, HEADS, HEAD_DIM).transpose(1, 2)
    assert part.crosses and not nystrom(convolution=3).crosses
    assert torch.allclose(read, part.out((weights @ values).transpose(1, 2).flatten(2)), atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"convolution": 4}, "must be an odd number of positions, for it is centred, but it is 4; null leaves it out"),
        ({"pattern": Causal(DIMS)}, "cannot follow the pattern Causal; use model/pattern=full"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    given = {"pattern": Full(DIMS), "landmarks": 3, "iterations": 6, "convolution": None, **settings}
    with pytest.raises(ValueError, match=message):
        Nystrom(DIMS, **given)  # type: ignore[arg-type]


def test_what_nystrom_cannot_take_is_refused_at_composition() -> None:
    encoding = ["task=copy", "model/attention=nystrom", "model/pattern=full", "allow=[future]"]
    with pytest.raises(
        UsageError, match="attention Nystrom mixes all positions of a row before any of them is a query"
    ):
        check(compose(encoding[:2]))
    with pytest.raises(UsageError, match="nystrom attention has no scores that the position T5 could add to"):
        check(compose([*encoding, "model/position=t5"]))
    check(compose(encoding))
