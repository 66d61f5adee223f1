"""Multi-head latent attention by the equations of DeepSeek-V2 (arXiv:2405.04434, section 2.1), pair by pair."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from configs import accepted
from swapformer.errors import UsageError
from swapformer.model.attention import MLA
from swapformer.model.cache import Cache
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import SDPA, Blocked, Kernel, Reference
from swapformer.model.layers import origin_of
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Pattern, Window
from swapformer.model.position import ALiBi, Position, Rotary
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.cost import measure
from swapformer.training.assemble import build_model

HEADS, HEAD_DIM, TURNING, VALUES, WIDTH, LENGTH = 3, 7, 4, 5, 6, 9
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 64, 5)
TURNED = Dims(WIDTH, 1, HEADS, TURNING, 64, 5)
NOPE, ALIBI = Position(TURNED), ALiBi(TURNED, decay=8.0)
ROPE = Rotary(TURNED, base=100.0, fraction=1.0, interleaved=True)


def noise(*shape: int, name: str = "x") -> Tensor:
    return torch.randn(*shape, generator=stream("latent", name), dtype=torch.float64)


def mla(pattern: Pattern | None = None, kernel: Kernel | None = None, **changes: Any) -> MLA:
    settings: dict[str, Any] = {"kv_rank": 5, "query_rank": None, "rotary_dim": TURNING, "value_dim": VALUES}
    settings |= {"norm_eps": 1e-5, **changes}
    parts: dict[str, Any] = {"score": Dot(DIMS, exponent=-0.5), "normaliser": Softmax(DIMS)}
    parts |= {"pattern": pattern or Causal(DIMS), "kernel": kernel or Reference(DIMS)}
    part = MLA(DIMS, **parts, **settings).double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(origin_of(name, parameter).start + 0.7 * noise(*parameter.shape, name=name))
    return part


def normed(c: Tensor, weight: Tensor | None) -> Tensor:
    return c if weight is None else weight * c / (c.square().mean() + 1e-5).sqrt()


def turned(pairs: Tensor, place: int, base: float) -> Tensor:
    """Each neighbouring pair as a complex number, times e^{i·place·ω}."""
    omega = base ** -(torch.arange(0, TURNING, 2, dtype=torch.float64) / TURNING)
    complex_pairs = torch.complex(pairs[::2], pairs[1::2]) * torch.polar(torch.ones_like(omega), place * omega)
    return torch.view_as_real(complex_pairs).flatten()


def by_definition(part: MLA, x: Tensor, y: Tensor, position: Position, causal: bool) -> Tensor:
    """One sequence of queries x [Q, D] against one of keys y [K, D]."""
    outs = []
    still = HEAD_DIM - TURNING
    slopes = [2 ** (-8 * k / 2) for k in (1, 2)] + [2 ** (-8 / 4)]  # ALiBi for three heads: those of 2, then of 4
    for i, x_i in enumerate(x):
        query = x_i if part.query_latent is None else normed(part.query_latent(x_i), part.query_gain)
        q, heads = part.query(query).view(HEADS, HEAD_DIM), []
        for h in range(HEADS):
            logits, values = [], []
            for j, y_j in enumerate(y[: i + 1] if causal else y):
                c, r = normed(part.latent(y_j), part.gain), part.rotary_key(y_j)
                a, b = q[h, :still], q[h, still:]
                if position is ROPE:
                    b, r = turned(b, i, 100.0), turned(r, j, 100.0)
                own = part.key.weight.view(HEADS, still, -1)[h] @ c
                bias = -slopes[h] * abs(i - j) if position is ALIBI else 0.0
                logits.append((a @ own + b @ r) / HEAD_DIM**0.5 + bias)
                values.append(part.value.weight.view(HEADS, VALUES, -1)[h] @ c)
            weights = torch.stack(logits).softmax(0)
            heads.append(weights @ torch.stack(values))
        outs.append(part.out(torch.cat(heads)))
    return torch.stack(outs)


CASES = [({}, ROPE), ({"query_rank": 4}, ROPE), ({"query_rank": 4, "norm_eps": None}, ALIBI), ({}, NOPE)]


@pytest.mark.parametrize(("changes", "position"), CASES, ids=["rope", "compressed queries", "no norms, alibi", "nope"])
def test_the_attention_is_the_papers_with_gradients(changes: dict[str, Any], position: Position) -> None:
    part, x = mla(**changes), noise(LENGTH, WIDTH).requires_grad_()
    tokens = Tokens.of(LENGTH)
    ours = part(x[None], Context(tokens, tokens, torch.float64), position)[0]
    theirs = by_definition(part, x, x, position, causal=True)
    leaves = [x, *part.parameters()]
    grads = [torch.autograd.grad(out.square().sum(), leaves, retain_graph=True) for out in (ours, theirs)]
    assert (ours - theirs).abs().max() <= 1e-10
    assert max(((a - b).abs() / (1 + b.abs())).max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_a_memory_is_what_keys_and_values_are_made_of() -> None:
    part, x, memory = mla(Full(DIMS)), noise(4, WIDTH), noise(LENGTH, WIDTH, name="memory")
    crossed = Context(Tokens.of(4), Tokens.of(LENGTH), torch.float64)
    ours = part(x[None], crossed, NOPE, memory[None])[0]
    assert (ours - by_definition(part, x, memory, NOPE, causal=False)).abs().max() <= 1e-10
    assert part.weights(x[None], crossed, NOPE, memory[None]).shape == (1, HEADS, 4, LENGTH)


@pytest.mark.parametrize("kernel", [SDPA(DIMS, backend="auto"), Blocked(DIMS)])
@pytest.mark.parametrize("pattern", [Causal(DIMS), Window(DIMS, before=2)])
def test_a_fast_kernel_takes_values_of_another_width(kernel: Kernel, pattern: Pattern) -> None:
    x, tokens = noise(2, LENGTH, WIDTH), Tokens.of(LENGTH)
    context = Context(tokens, tokens, torch.float64)
    slow, fast = (mla(pattern, kernel=kernel)(x, context, ROPE) for kernel in (Reference(DIMS), kernel))
    assert (slow - fast).abs().max() <= 1e-12


def test_a_window_of_places_is_all_that_is_kept() -> None:
    """Written place by place from a cache of c and r, cut to the window, equals all places at once."""
    part, x, tokens = mla(Window(DIMS, before=2)), noise(2, LENGTH, WIDTH), Tokens.of(LENGTH)
    whole, cache, outs = part(x, Context(tokens, tokens, torch.float64), ROPE), Cache(), []
    for place in range(LENGTH):
        new = Tokens.of(1, start=place)
        context = Context(new, cache.extend(new), torch.float64, cache)
        outs.append(part(x[:, place : place + 1], context, ROPE))
    kept = cache.get(part)
    assert (torch.cat(outs, dim=1) - whole).abs().max() <= 1e-12
    assert kept is not None and [tuple(each.shape) for each in kept] == [(2, 3, 5), (2, 3, TURNING)]


def test_generation_keeps_the_compressed_vector_and_the_shared_key() -> None:
    """DeepSeek-V2, table 1: (d_c + d_R) elements a place and layer; here 3 layers, 40 places, 24 + 4 in bfloat16."""
    settings = ["model.attention.kv_rank=24", "model.attention.rotary_dim=4", "model.num_layers=3"]
    config = compose(["task=copy", "model/attention=mla", *settings])
    report = measure(config, task_of(config).vocab_size, 2, [40], "bfloat16")
    assert report["lengths"][0]["kv_cache"] == 2 * 40 * 3 * (24 + 4) * 2


def test_layers_of_both_kinds_share_a_bias_and_not_a_rotation() -> None:
    """A T5 table depends on the heads alone; a rotation on the width that turns."""
    counts = []
    for position in ("t5", "rope"):
        settings = ["task=copy", f"model/position={position}", "model.layers=[{at: 0, attention: mla}]"]
        config = compose(settings)
        check(config)
        counts.append(len(build_model(config, task_of(config).vocab_size).stack.positions))
    assert counts == [1, 2]


REFUSED = [
    (["model.attention.rotary_dim=3"], "even, above 0 and below `head_dim` = 16, but it is 3"),
    (["model.attention.rotary_dim=16"], "even, above 0 and below `head_dim` = 16, but it is 16"),
    (["model.attention.kv_rank=0"], "kv_rank` must be a whole number of at least 1, but it is 0"),
    (["model.attention.query_rank=-2"], "query_rank` must be a whole number of at least 1"),
    (["model.attention.norm_eps=0.0"], "norm_eps` must be a number above 0"),
    (
        ["model/position=cope"],
        "mla shows a position encoding only the 4 dimensions .* scores of CoPE; use model/positi",
    ),
    (["model/kernel=sdpa", "model/normaliser=sparsemax"], "softmax only, not Sparsemax; use model/kernel=auto"),
    (["model/qk_norm=rmsnorm"], "MLA does not use a qk_norm"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_it_cannot_take_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", "model/attention=mla", *overrides]))


@pytest.mark.parametrize("position", ["rope", "xpos", "alibi", "t5", "none", "learned", "sum"])
def test_it_goes_with_positions_that_turn_add_a_bias_or_are_embedded(position: str) -> None:
    accepted("task=copy", "model/attention=mla", f"model/position={position}")
