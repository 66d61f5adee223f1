"""Linear attention: parallel equals recurrent, padding is nothing, and what it cannot take is refused.

Expected numbers come from the sums of Katharopoulos et al. 2020 (arXiv:2006.16236), equations 8, 9, 18 and 19, taken
one place at a time in float64.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from configs import accepted
from swapformer.errors import UsageError
from swapformer.model.attention import LinearAttention, linear_ops
from swapformer.model.cache import Cache
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full, Pattern, Window
from swapformer.model.position import Position, Rotary
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose

HEADS, HEAD_DIM, WIDTH, LENGTH = 2, 4, 6, 150
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, LENGTH, 5)
NOPE = Position(DIMS)


def linear(pattern: Pattern, convolution: int = 1) -> LinearAttention:
    part = LinearAttention(DIMS, pattern=pattern, convolution=convolution).double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=stream("linear", name), dtype=torch.float64))
    return part


def x(length: int = LENGTH) -> Tensor:
    return torch.randn(2, length, WIDTH, generator=stream("x"), dtype=torch.float64)


def context(tokens: Tokens) -> Context:
    return Context(tokens, tokens, torch.float64)


def heads(part: Any, inputs: Tensor) -> list[Tensor]:
    """φ(q), φ(k) and v, [B, H, T, E]."""
    q, k, v = (
        layer(inputs).view(len(inputs), -1, HEADS, HEAD_DIM).transpose(1, 2)
        for layer in (part.query, part.key, part.value)
    )
    return [torch.where(q > 0, q + 1, q.exp()), torch.where(k > 0, k + 1, k.exp()), v]


def recurrent(part: Any, inputs: Tensor) -> Tensor:
    """Equations 18 to 20: S_i = S_{i−1} + φ(k_i) v_iᵀ, z_i = z_{i−1} + φ(k_i), out_i = φ(q_i)ᵀS_i / φ(q_i)ᵀz_i."""
    q, k, v = heads(part, inputs)
    s = torch.zeros(len(inputs), HEADS, HEAD_DIM, HEAD_DIM, dtype=torch.float64)
    z = torch.zeros(len(inputs), HEADS, HEAD_DIM, dtype=torch.float64)
    outs = []
    for i in range(inputs.shape[1]):
        s = s + k[:, :, i, :, None] * v[:, :, i, None, :]
        z = z + k[:, :, i]
        outs.append(torch.einsum("bhe,bhef->bhf", q[:, :, i], s) / (q[:, :, i] * z).sum(-1, keepdim=True))
    return part.out(torch.stack(outs, dim=1).flatten(2))


def whole(part: LinearAttention, inputs: Tensor) -> Tensor:
    """Equation 4 with the similarity φ(q)·φ(k), over all places."""
    q, k, v = heads(part, inputs)
    similarity = torch.einsum("bhqe,bhke->bhqk", q, k)
    mixed = (similarity / similarity.sum(-1, keepdim=True)) @ v
    return part.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("length", [1, 63, 64, 65, LENGTH])
@pytest.mark.parametrize(("pattern", "definition"), [(Causal(DIMS), recurrent), (Full(DIMS), whole)])
def test_the_parallel_form_equals_the_definition_with_gradients(
    pattern: Pattern, definition: object, length: int
) -> None:
    assert callable(definition)
    part, inputs = linear(pattern), x(length).requires_grad_()
    ours, theirs = part(inputs, context(Tokens.of(length)), NOPE), definition(part, inputs)
    leaves = [inputs, part.query.weight, part.key.weight, part.value.weight, part.out.weight]
    grads = [torch.autograd.grad(out.square().sum(), leaves, retain_graph=True) for out in (ours, theirs)]
    assert (ours - theirs).abs().max() <= 1e-10
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_the_convolution_comes_before_the_features() -> None:
    """y_i + Σ_s f_s ⊙ y_{i−s} for q, k and v, one place at a time, and then equations 18 to 20."""
    part, inputs = linear(Causal(DIMS), convolution=3), x(20)

    class Convolved:
        out = part.out

        def __getattr__(self, name: str) -> object:
            layer, taps = getattr(part, name), part.filters[("query", "key", "value").index(name)]
            return lambda y: torch.stack(
                [
                    layer(y)[:, i] + sum(taps[s] * layer(y)[:, i - s] for s in range(3) if i >= s)
                    for i in range(y.shape[1])
                ],
                dim=1,
            )

    ours = part(inputs, context(Tokens.of(20)), NOPE)
    assert (ours - recurrent(Convolved(), inputs)).abs().max() <= 1e-10
    assert (ours - recurrent(part, inputs)).abs().max() > 1e-3


@pytest.mark.parametrize("pattern", [Causal(DIMS), Full(DIMS)])
def test_padding_has_no_features(pattern: Pattern) -> None:
    """Left padding: the others see what they would see without it."""
    part, inputs, pad = linear(pattern), x(40), 7
    padding = (torch.arange(40) < pad)[None]
    padded = part(inputs, context(Tokens.of(40, padding=padding)), NOPE)
    alone = part(inputs[:, pad:], context(Tokens.of(33)), NOPE)
    assert torch.allclose(padded[:, pad:], alone, atol=1e-12)
    assert padded.isfinite().all()


@pytest.mark.parametrize("position", [NOPE, Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False)])
def test_pairs_and_prefix_sums_agree(position: Position) -> None:
    """Few queries against many keys, as from a cache, are the last rows of the whole."""
    part, inputs = linear(Causal(DIMS)), x(30)
    whole_row = part(inputs, context(Tokens.of(30)), position)
    one_document = Tokens.of(30, document=torch.zeros(1, 30, dtype=torch.int64))
    assert torch.allclose(part(inputs, context(one_document), position), whole_row, atol=1e-12)


def test_a_token_behind_a_cache_costs_two_products_of_the_states_size() -> None:
    """Whatever the length of a chunk: 4 E² operations a head, for k vᵀ and for q S."""
    width = 32
    q, k, v = (
        torch.randn(2, HEADS, 1, width, generator=stream("step", name), dtype=torch.float64) for name in ("q", "k", "v")
    )
    before = torch.randn(2, HEADS, width, width, generator=stream("step", "state"), dtype=torch.float64)
    with FlopCounterMode(display=False) as counter:
        out, after = linear_ops._continued(q, k, v, before)
    assert counter.get_total_flops() == 2 * HEADS * 4 * width**2
    expected = before + torch.einsum("bhte,bhtf->bhef", k, v)
    assert torch.allclose(after, expected) and torch.allclose(out, torch.einsum("bhte,bhef->bhtf", q, expected))


def test_a_rotation_turns_the_numerator_alone() -> None:
    """Su et al. 2021, equation 19."""
    part, inputs = linear(Full(DIMS)), x(12)
    position = Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False)
    places = context(Tokens.of(12))
    q, k, v = heads(part, inputs)
    turned_q, turned_k = position.rotate(q, k, places)
    mixed = (turned_q @ turned_k.mT) @ v / (q @ k.mT).sum(-1, keepdim=True)
    assert torch.allclose(part(inputs, places, position), part.out(mixed.transpose(1, 2).flatten(2)), atol=1e-12)


def test_bfloat16_sums_are_taken_in_float32() -> None:
    part, inputs = linear(Causal(DIMS)), x()
    exact = part(inputs, context(Tokens.of(LENGTH)), NOPE)
    rough = part.bfloat16()(inputs.bfloat16(), context(Tokens.of(LENGTH)), NOPE)
    assert rough.dtype == torch.bfloat16
    assert functional.mse_loss(rough.double(), exact) < 1e-3 * exact.var()


def test_another_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot follow the pattern Window; use model/pattern=causal or full"):
        linear(Window(DIMS, before=3))


REFUSED = [
    ("model/position=alibi", "no scores that the position ALiBi could add to; use model/position=rope"),
    ("model/position=t5", "no scores that the position T5 could add to"),
    ("model/pattern=window", "cannot follow the pattern Window"),
    ("model/kernel=sdpa", "does not use a kernel, so SDPA with its settings would be ignored; use model/kernel=auto"),
    ("model.score.exponent=0.0", "does not use a score, so Dot with its settings would be ignored"),
]


@pytest.mark.parametrize(("override", "message"), REFUSED)
def test_what_linear_attention_cannot_take_is_refused_at_composition(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", "model/attention=linear", override]))


def test_linear_attention_goes_with_the_defaults() -> None:
    accepted("task=copy", "model/attention=linear")


def test_a_cache_of_sums_over_several_documents_is_refused() -> None:
    tokens = Tokens.of(4, document=torch.tensor([[0, 0, 1, 1]]))
    with pytest.raises(ValueError, match="caches sums over all keys, not by document; leave out the cache"):
        linear(Causal(DIMS))(torch.zeros(1, 4, WIDTH).double(), Context(tokens, tokens, cache=Cache()), NOPE)
