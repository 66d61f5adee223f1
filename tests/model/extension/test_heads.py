"""Extensions that change what heads compute, by their formulas, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from configs import small
from swapformer.conformance.subject import VOCABULARY, ids
from swapformer.interface import Interface
from swapformer.model.attention import MultiHead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension import Convolution, Extension, HeadMask, OutputGate, ValueResidual
from swapformer.model.kernel import Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.training.assemble import build_model

HEADS, HEAD_DIM, WIDTH, LENGTH = 4, 3, 10, 9
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 16, 5)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)


def attention(*extensions: Extension, name: str = "", **options: Any) -> MultiHead:
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    parts["extension"] = {type(part).__name__: part for part in extensions}
    part = MultiHead(DIMS, score=Dot(DIMS, exponent=-0.5), pattern=Causal(DIMS), **parts, **options).double()
    with torch.no_grad():
        for key, parameter in part.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("option", name, key), dtype=torch.float64)
            parameter.copy_(0.5 * noise)
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
    part = attention(HeadMask(DIMS, heads=[1, 3]))
    heads = by_definition(part, part.query(X), part.key(X), part.value(X)).view(2, LENGTH, HEADS, HEAD_DIM).clone()
    heads[:, :, [1, 3]] = 0
    assert torch.allclose(run(part), part.out(heads.flatten(2)), atol=1e-12)
    with pytest.raises(ValueError, match=r"heads from 0 to 3, but it names \[4\]"):
        HeadMask(DIMS, heads=[0, 4])


def test_the_output_gate_multiplies_the_heads_before_the_last_matrix() -> None:
    """Qiu et al. 2025, section 2: elementwise, after the weighted sum, from the attention's input."""
    part: Any = attention(OutputGate(DIMS))
    heads = by_definition(part, part.query(X), part.key(X), part.value(X))
    gate = 1 / (1 + torch.exp(-(X @ part.gate.weight.T)))
    assert torch.allclose(run(part), part.out(heads * gate), atol=1e-12)


@pytest.mark.parametrize("width", [1, 3, 20])
@pytest.mark.parametrize("groups", [4, 2])
def test_the_convolution_is_torchs_depthwise_one(width: int, groups: int) -> None:
    """Primer, So et al. 2021, appendix: depthwise and causal, after the projections; torch's conv1d correlates."""
    part: Any = attention(Convolution(DIMS, width=width), num_kv_heads=groups)

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
    part = attention(Convolution(DIMS, width=3))
    document = (torch.arange(LENGTH) >= 4).long()[None]
    packed = run(part, Tokens.of(LENGTH, document=document))
    tokens = Tokens.of(LENGTH - 4)
    alone = part(X[:, 4:], Context(tokens, tokens, torch.float64), Position(DIMS))
    assert torch.allclose(packed[:, 4:], alone, atol=1e-12)


def test_later_layers_mix_in_the_first_layers_values() -> None:
    """ResFormer, Zhou et al. 2024: the weights are the layer's own, the values λ V₁ + (1 − λ) V_n."""
    shares = {"a": 0.5, "b": 0.25, "c": 0.75}
    parts = [attention(ValueResidual(DIMS, share=share), name=name) for name, share in shares.items()]
    inputs = [X, X.flip(1), X.roll(1, 1)]
    tokens = Tokens.of(LENGTH)
    shared = Context(tokens, tokens, torch.float64)
    ours = [part(x, shared, Position(DIMS)) for part, x in zip(parts, inputs, strict=True)]
    first = parts[0].value(X)
    theirs = []
    for part, x, share in zip(parts, inputs, (0.0, 0.25, 0.75), strict=True):
        values = share * first + (1 - share) * part.value(x)
        q, k, v = (y.view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2) for y in (part.query(x), part.key(x), values))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        theirs.append(part.out(mixed.transpose(1, 2).flatten(2)))
    leaves = [parameter for part in parts for parameter in part.parameters()]
    grads = [torch.autograd.grad(sum(out.square().sum() for out in outs), leaves) for outs in (ours, theirs)]
    assert max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)) <= 1e-12
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_values_of_one_forward_are_not_those_of_the_next() -> None:
    model: nn.Module = build_model(small(["model/attention=value_residual"]), Interface(VOCABULARY)).double().eval()
    once = model(ids(seed=1))
    model(ids(seed=2))
    assert torch.equal(model(ids(seed=1)), once)
