"""Options of multi-head attention by their formulas, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.attention import MultiHead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.random import stream

HEADS, HEAD_DIM, WIDTH, LENGTH = 4, 3, 10, 9
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 16, 5)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)


def attention(**options: Any) -> MultiHead:
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    part = MultiHead(DIMS, score=Dot(DIMS, exponent=-0.5), pattern=Causal(DIMS), **parts, **options).double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=stream("option", name), dtype=torch.float64))
    return part


def run(part: MultiHead, tokens: Tokens | None = None) -> Tensor:
    tokens = Tokens.of(LENGTH) if tokens is None else tokens
    return part(X, Context(tokens, tokens, torch.float64), Position(DIMS))


def by_definition(part: MultiHead, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads side by side [B, T, H·E] from projections [B, T, C], by torch's own attention."""
    q, k, v = (y.view(2, LENGTH, -1, HEAD_DIM).transpose(1, 2) for y in (q, k, v))
    groups = HEADS // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_a_masked_head_adds_nothing() -> None:
    part = attention(masked_heads=[1, 3])
    heads = by_definition(part, part.query(X), part.key(X), part.value(X)).view(2, LENGTH, HEADS, HEAD_DIM).clone()
    heads[:, :, [1, 3]] = 0
    assert torch.allclose(run(part), part.out(heads.flatten(2)), atol=1e-12)
    with pytest.raises(ValueError, match=r"heads from 0 to 3, but it names \[4\]"):
        attention(masked_heads=[0, 4])


def test_the_output_gate_multiplies_the_heads_before_the_last_matrix() -> None:
    """Qiu et al. 2025, section 2: elementwise, after the weighted sum, from the attention's input."""
    part = attention(output_gate=True)
    assert part.gate is not None
    heads = by_definition(part, part.query(X), part.key(X), part.value(X))
    gate = 1 / (1 + torch.exp(-(X @ part.gate.weight.T)))
    assert torch.allclose(run(part), part.out(heads * gate), atol=1e-12)


@pytest.mark.parametrize("width", [1, 3, 20])
@pytest.mark.parametrize("groups", [4, 2])
def test_the_convolution_is_torchs_depthwise_one(width: int, groups: int) -> None:
    """Primer, So et al. 2021, appendix: depthwise and causal, after the projections; torch's conv1d correlates."""
    part = attention(convolution=width, num_kv_heads=groups)

    def convolved(y: Tensor, taps: Tensor) -> Tensor:
        taps = taps + functional.one_hot(torch.tensor(0), len(taps))[:, None]
        kernel = taps.flip(0).T[:, None]
        return functional.conv1d(functional.pad(y.mT, (len(taps) - 1, 0)), kernel, groups=y.shape[-1]).mT

    filters = list(part.filters)
    assert len(filters) == 3
    q, k, v = (
        convolved(layer(X), taps) for layer, taps in zip((part.query, part.key, part.value), filters, strict=True)
    )
    ours, theirs = run(part), part.out(by_definition(part, q, k, v))
    assert (ours - theirs).abs().max() <= 1e-10
    grads = [torch.autograd.grad(out.square().sum(), filters, retain_graph=True) for out in (ours, theirs)]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_the_convolution_stops_where_a_document_begins() -> None:
    part = attention(convolution=3)
    document = (torch.arange(LENGTH) >= 4).long()[None]
    packed = run(part, Tokens.of(LENGTH, document=document))
    tokens = Tokens.of(LENGTH - 4)
    alone = part(X[:, 4:], Context(tokens, tokens, torch.float64), Position(DIMS))
    assert torch.allclose(packed[:, 4:], alone, atol=1e-12)


def test_a_convolution_without_width_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 place wide, but it is 0"):
        attention(convolution=0)
