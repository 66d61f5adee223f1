"""Recurrent mixers: chunks equal the loop over places, which equals the papers' equations; states can be carried on.

Expected numbers come from Yang et al. 2024 (arXiv:2412.06464, equation 10) and Dao & Gu 2024 (arXiv:2405.21060,
equation 2 with a scalar A), taken one place at a time in float64.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from configs import accepted
from swapformer.errors import UsageError
from swapformer.model.attention import Attention, GatedDeltaNet, Mamba2
from swapformer.model.attention.recurrence import StateUpdates, by_chunk, by_step
from swapformer.model.attention.recurrent_state import RecurrentState
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import origin_of
from swapformer.model.pattern import Causal, Full, Window
from swapformer.model.position import Position, Rotary
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.cost import measure

HEADS, HEAD_DIM, WIDTH, LENGTH = 4, 4, 6, 21
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 64, 5)
NOPE = Position(DIMS)
SETTINGS: dict[str, Any] = {"expand": 2, "convolution": 3, "rate_min": 1.0, "rate_max": 16.0, "norm_eps": 1e-6}
SETTINGS |= {"step_min": 0.001, "step_max": 0.1, "pattern": Causal(DIMS)}


def noise(*shape: int, name: str = "x") -> Tensor:
    return torch.randn(*shape, generator=stream("recurrent", name), dtype=torch.float64)


def widened(part: Attention) -> Any:
    part = part.double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(origin_of(name, parameter).start + 0.5 * noise(*parameter.shape, name=name))
    return part


def delta(**changes: Any) -> GatedDeltaNet:
    part: GatedDeltaNet = widened(GatedDeltaNet(DIMS, **{**SETTINGS, **changes}))
    return part


def mamba(**changes: Any) -> Mamba2:
    part: Mamba2 = widened(Mamba2(DIMS, **{**SETTINGS, "state_dim": 6, "num_groups": 2, **changes}))
    return part


MIXERS = pytest.mark.parametrize("make", [delta, mamba])


def context(tokens: Tokens) -> Context:
    return Context(tokens, tokens, torch.float64)


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def convolved(part: Any, x: Tensor) -> list[list[Tensor]]:
    """silu(convolution(W x)) of one sequence [T, D] for q, k and v, place by place; before the first is nothing."""
    taps, start, found = part.taps, 0, []
    for project in (part.query, part.key, part.value):
        y = x @ project.weight.T + project.bias
        own = taps[:, start : start + y.shape[-1]]
        start += y.shape[-1]
        past = [y[t] + sum(own[s] * y[t - s] for s in range(len(taps)) if t >= s) for t in range(len(x))]
        found.append([silu(place) for place in past])
    return found


def delta_by_definition(part: GatedDeltaNet, x: Tensor) -> Tensor:
    """One sequence [T, D] → [T, D]."""
    q, k, v = convolved(part, x)
    rate = (part.decay.rates + part.decay.rate).exp()
    outs = []
    states = [torch.zeros(HEAD_DIM, 2 * HEAD_DIM, dtype=torch.float64)] * HEADS
    for t in range(len(x)):
        step = torch.log1p(torch.exp(x[t] @ part.decay.map.weight.T + part.decay.steps + part.decay.step))
        strength, heads = torch.sigmoid(x[t] @ part.strength.weight.T), []
        for h in range(HEADS):
            own = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
            q_h, k_h = (y[t][own] / (y[t][own].square().sum() + part.norm_eps).sqrt() for y in (q, k))
            v_h = v[t][2 * h * HEAD_DIM : 2 * (h + 1) * HEAD_DIM]
            identity = torch.eye(HEAD_DIM, dtype=torch.float64)
            forget = torch.exp(-rate[h] * step[h]) * (identity - strength[h] * torch.outer(k_h, k_h))
            states[h] = forget @ states[h] + strength[h] * torch.outer(k_h, v_h)
            out = q_h @ states[h] / HEAD_DIM**0.5
            heads.append(part.gain * out / (out.square().mean() + part.norm_eps).sqrt())
        outs.append(part.out(torch.cat(heads) * silu(x[t] @ part.gate.weight.T)))
    return torch.stack(outs)


def mamba_by_definition(part: Mamba2, x: Tensor) -> Tensor:
    """One sequence [T, D] → [T, D]."""
    q, k, v = convolved(part, x)
    rate = (part.decay.rates + part.decay.rate).exp()
    outs = []
    states = [torch.zeros(6, 2 * HEAD_DIM, dtype=torch.float64)] * HEADS
    for t in range(len(x)):
        step = torch.log1p(torch.exp(x[t] @ part.decay.map.weight.T + part.decay.steps + part.decay.step))
        heads = []
        for h in range(HEADS):
            group = slice(6 * (h // 2), 6 * (h // 2) + 6)
            v_h = v[t][2 * h * HEAD_DIM : 2 * (h + 1) * HEAD_DIM]
            states[h] = torch.exp(-rate[h] * step[h]) * states[h] + torch.outer(k[t][group], step[h] * v_h)
            heads.append(q[t][group] @ states[h] + part.skip[h] * v_h)
        gated = (torch.cat(heads) * silu(x[t] @ part.gate.weight.T)).view(2, -1)
        normed = gated / (gated.square().mean(-1, keepdim=True) + part.norm_eps).sqrt()
        outs.append(part.out(part.gain * normed.flatten()))
    return torch.stack(outs)


@pytest.mark.parametrize(("make", "definition"), [(delta, delta_by_definition), (mamba, mamba_by_definition)])
def test_the_mixer_is_its_papers_equation_with_gradients(make: Any, definition: Any) -> None:
    part, x = make(), noise(2, LENGTH, WIDTH).requires_grad_()
    ours = part(x, context(Tokens.of(LENGTH)), NOPE)
    theirs = torch.stack([definition(part, row) for row in x])
    leaves = [x, *part.parameters()]
    grads = [torch.autograd.grad(out.square().sum(), leaves, retain_graph=True) for out in (ours, theirs)]
    assert (ours - theirs).abs().max() <= 1e-10
    assert max(((a - b).abs() / (1 + b.abs())).max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


@pytest.mark.parametrize("corrects", [True, False], ids=["delta", "sum"])
@pytest.mark.parametrize("length", [2, 63, 64, 65, 150])
def test_chunks_equal_the_loop_with_gradients(length: int, corrects: bool) -> None:
    """From a state that is not zero, with documents that begin within, at the edge of, and twice in a chunk."""
    q, k, v = (noise(2, 3, length, width, name=f"{width}") for width in (4, 5, 6))
    leaves = [q, k[..., :4] / k[..., :4].norm(dim=-1, keepdim=True), v, -noise(2, 3, length, name="decay").abs()]
    leaves += [noise(2, 3, length, name="strength").sigmoid(), noise(2, 3, 4, 6, name="state")]
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    fresh = torch.zeros(2, length, dtype=torch.bool)
    fresh[0, [place for place in (5, 40, 64, 130) if place < length]] = True
    steps = StateUpdates(*leaves[:4], leaves[4] if corrects else None, fresh)
    found = [form(steps, leaves[5]) for form in (by_step, by_chunk)]
    totals = [out.square().sum() + state.square().sum() for out, state in found]
    grads = [torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True) for total in totals]
    for slow, quick in zip(*found, strict=True):
        assert (slow - quick).abs().max() <= 1e-10
    for slow, quick in zip(*grads, strict=True):
        assert slow is None if quick is None else ((slow - quick).abs() / (1 + slow.abs())).max() <= 1e-10


@MIXERS
@pytest.mark.parametrize("position", [NOPE, Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False)])
def test_a_state_advanced_piece_by_piece_gives_the_whole(make: Any, position: Position) -> None:
    """In pieces of one and of several places, across a document's beginning, behind padding in one of the rows."""
    part = make() if make is delta else make(state_dim=HEAD_DIM)
    x, document = noise(2, LENGTH, WIDTH), (torch.arange(LENGTH) >= 9).long()[None].expand(2, -1)
    padding = torch.arange(LENGTH)[None] < torch.tensor([[4], [0]])
    whole = part(x, context(Tokens.of(LENGTH, document=document, padding=padding)), position)
    carry: RecurrentState | None = None
    outs, begin = [], 0
    for end in (3, 4, 5, 9, 10, 12, LENGTH):
        own = slice(begin, end)
        tokens = Tokens.of(end - begin, start=begin, document=document[:, own], padding=padding[:, own])
        out, carry = part.advance(x[:, own], context(tokens), position, carry)
        outs.append(out)
        begin = end
    assert torch.allclose(torch.cat(outs, dim=1)[~padding], whole[~padding], atol=1e-12)
    assert carry is not None
    assert carry.state[0].numel() + carry.recent[0].numel() == part.state_width


@MIXERS
def test_padding_before_a_sequence_changes_nothing(make: Any) -> None:
    part, x, pad = make(), noise(1, LENGTH, WIDTH), 5
    padded = part(x, context(Tokens.of(LENGTH, padding=torch.arange(LENGTH)[None] < pad)), NOPE)
    assert torch.allclose(padded[:, pad:], part(x[:, pad:], context(Tokens.of(LENGTH - pad)), NOPE), atol=1e-12)
    assert padded.isfinite().all()


@MIXERS
def test_a_document_starts_from_nothing(make: Any) -> None:
    """Also when it is the first of several in a chunk, and when the one before was left long ago."""
    part, x = make(), noise(1, LENGTH, WIDTH)
    document = torch.tensor([[0] * 6 + [1] * 7 + [2] * (LENGTH - 13)])
    packed = part(x, context(Tokens.of(LENGTH, document=document)), NOPE)
    for begin, end in ((0, 6), (6, 13), (13, LENGTH)):
        alone = part(x[:, begin:end], context(Tokens.of(end - begin)), NOPE)
        assert torch.allclose(packed[:, begin:end], alone, atol=1e-12)


@MIXERS
def test_heads_start_with_memories_of_different_lengths(make: Any) -> None:
    """Rates are spread evenly, steps by equal factors: 1, 6, 11, 16 and 10^(−3, −7/3, −5/3, −1) for four heads."""
    decay = {delta: GatedDeltaNet, mamba: Mamba2}[make](
        DIMS, **SETTINGS, **({} if make is delta else {"state_dim": 6, "num_groups": 1})
    ).decay
    torch.nn.init.zeros_(decay.map.weight)
    log_decay, step = decay(torch.zeros(1, 1, WIDTH), None)
    expected = 10 ** torch.tensor([-3, -7 / 3, -5 / 3, -1])
    assert torch.allclose(step.flatten(), expected, rtol=1e-4)
    assert torch.allclose(log_decay.flatten(), -torch.tensor([1.0, 6.0, 11.0, 16.0]) * expected, rtol=1e-4)


@MIXERS
def test_the_state_is_kept_in_float32_under_autocast(make: Any) -> None:
    part, x = make().float(), noise(1, 70, WIDTH).float()
    exact, _ = part.advance(x, context(Tokens.of(70)), NOPE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, carry = part.advance(x, context(Tokens.of(70)), NOPE)
    assert carry.state.dtype == torch.float32
    assert out.dtype == torch.bfloat16
    assert (out - exact).abs().mean() < 0.05 * exact.abs().mean()


@MIXERS
def test_keys_from_a_cache_are_no_state(make: Any) -> None:
    with pytest.raises(AssertionError, match="keeps a state, not keys, and so needs a cache"):
        make()(noise(1, 1, WIDTH), Context(Tokens.of(1, start=4), Tokens.of(5)), NOPE)


@pytest.mark.parametrize("attention", ["gated_delta", "mamba2"])
def test_operations_grow_with_the_length_and_the_state_does_not(attention: str) -> None:
    config = compose(["task=copy", f"model/attention={attention}"])
    short, long = measure(config, task_of(config).vocab_size, 1, [256, 1024], "float32")["lengths"]
    assert long["forward"] == 4 * short["forward"]
    assert long["kv_cache"] == short["kv_cache"] > 0


@pytest.mark.parametrize("pattern", [Window(DIMS, before=3), Full(DIMS)])
@MIXERS
def test_another_pattern_than_causal_is_refused(make: Any, pattern: Any) -> None:
    with pytest.raises(ValueError, match=f"cannot follow the pattern {type(pattern).__name__}; use model/pattern=caus"):
        make(pattern=pattern)


REFUSED = [
    (["model/attention=gated_delta", "model/position=alibi"], "no scores that the position ALiBi could add to"),
    (["model/attention=mamba2", "model/position=relative_key"], "no scores that the position RelativeKey could add to"),
    (["model/attention=mamba2", "model.attention.num_groups=3"], "`num_groups` of mamba2 must divide `num_heads`"),
    (["model/attention=mamba2", "model.attention.state_dim=0"], "state_dim` must be a whole number of at least 1"),
    (["model/attention=gated_delta", "model.attention.expand=1.5"], "expand` must be a whole number of at least 1"),
    (
        ["model/attention=gated_delta", "model.attention.convolution=0"],
        "convolution` must be a whole number of at least 1",
    ),
    (["model/attention=gated_delta", "model.attention.step_min=0.5"], "`step_max` not below it, but they are 0.5 and"),
    (["model/attention=gated_delta", "model/qk_norm=l2"], "does not use a qk_norm"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_a_recurrent_mixer_cannot_take_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", *overrides]))


@pytest.mark.parametrize("attention", ["gated_delta", "mamba2"])
@pytest.mark.parametrize("position", ["rope", "none", "learned"])
def test_recurrent_mixers_go_with_positions_that_turn_or_are_embedded(attention: str, position: str) -> None:
    accepted("task=copy", f"model/attention={attention}", f"model/position={position}")
