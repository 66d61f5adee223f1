"""Reformer: attention within buckets, by its definition (Kitaev et al. 2020, arXiv:2001.04451, section 3).

Expected numbers come from sets of places worked out one by one in Python.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.model.attention import Reformer, reformer
from swapformer.model.cache import Cache
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full, Pattern, Window
from swapformer.model.position import Position, Rotary
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose

HEADS, HEAD_DIM, WIDTH, LENGTH = 2, 4, 6, 27
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, LENGTH, 5)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)
PATTERNS = [Causal(DIMS), Full(DIMS)]
NOPE = Position(DIMS)
ROPE = Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False)


def make(pattern: Pattern, **settings: Any) -> Reformer:
    given = {"buckets": 4, "rounds": 3, "chunk": 2, "seed": 0, **settings}
    part = Reformer(DIMS, pattern=pattern, **given).double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=stream("reformer", name)))
    return part.eval()


def run(part: Reformer, x: Tensor, encoding: Position = NOPE, **given: Tensor) -> Tensor:
    tokens = Tokens.of(x.shape[1], **given)
    return part(x, Context(tokens, tokens, torch.float64), encoding)


def definition(part: Reformer, x: Tensor, groups: Tensor, hidden: Tensor) -> Tensor:
    """Every place, one by one; places of another of the groups [B, T], and hidden ones, are not there."""
    batch, length = groups.shape
    q, v = (layer(x).view(batch, length, HEADS, HEAD_DIM) for layer in (part.query, part.value))
    k = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    rows = []
    for b in range(batch):
        for i in range(length):
            outs = []
            for h in range(HEADS):
                seen: set[int] = set()
                for turn in part.rotations[h].double():
                    sides = q[b, :, h].detach() @ turn
                    bucket = torch.cat([sides, -sides], -1).argmax(-1)
                    mates = [
                        j
                        for j in range(length)
                        if bucket[j] == bucket[i] and groups[b, j] == groups[b, i] and hidden[b, j] == hidden[b, i]
                    ]
                    chunks = [mates[n : n + part.chunk] for n in range(0, len(mates), part.chunk)]
                    own = next(n for n, chunk in enumerate(chunks) if i in chunk)
                    seen.update(chunks[own], chunks[own - 1] if own else [])
                if part.pattern.causal:
                    seen = {j for j in seen if j < i}
                places = sorted(seen - {i}) or [i]
                logits = torch.stack([q[b, i, h] @ k[b, j, h] / HEAD_DIM**0.5 for j in places])
                outs.append(logits.softmax(0) @ v[b, places, h])
            rows.append(part.out(torch.cat(outs)))
    return torch.stack(rows).view(batch, length, WIDTH)


@pytest.mark.parametrize("rowed", [False, True], ids=["plain", "padding-and-documents"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("chunk", "rounds"), [(1, 2), (2, 3), (5, 1), (50, 2)])
def test_every_place_sees_what_the_definition_says_with_gradients(
    chunk: int, rounds: int, pattern: Pattern, rowed: bool
) -> None:
    part, x = make(pattern, chunk=chunk, rounds=rounds), X.clone().requires_grad_()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    document = torch.zeros(2, LENGTH, dtype=torch.int64)
    given = {}
    if rowed:
        padding[0, :4] = padding[1, 20:] = True
        document[:, 11:] = 1
        given = {"padding": padding, "document": document}
    kept = ~padding
    ours, theirs = run(part, x, **given)[kept], definition(part, x, document, padding)[kept]
    probe = torch.randn(ours.shape, generator=stream("probe"), dtype=torch.float64)
    leaves = [x, part.query.weight, part.value.weight, part.out.weight]
    grads = [torch.autograd.grad((out * probe).sum(), leaves) for out in (ours, theirs)]
    gap = max(
        ((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in [(ours, theirs), *zip(*grads, strict=True)]
    )
    print(f"largest difference {gap:.1e}")
    assert gap <= 1e-10


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_no_place_sees_a_later_one_however_short_the_chunks(chunk: int) -> None:
    """Later places fall into other buckets, which must not move what earlier ones see."""
    part, later = make(Causal(DIMS), chunk=chunk), X.clone()
    later[:, 13:] = torch.randn(2, LENGTH - 13, WIDTH, generator=stream("later"), dtype=torch.float64)
    assert (run(part, X) - run(part, later))[:, :13].abs().max() < 1e-12


@pytest.mark.parametrize("pattern", PATTERNS)
def test_places_may_come_in_any_order(pattern: Pattern) -> None:
    """Causality and chunks go by `order`, not by where a place stands in the tensor."""
    part, shuffled = make(pattern), torch.randperm(LENGTH, generator=stream("shuffled"))
    tokens = Tokens.of(LENGTH)
    mixed = Tokens(order=tokens.order[:, shuffled], position=tokens.position[:, shuffled], extent=LENGTH)
    found = part(X[:, shuffled], Context(mixed, mixed, torch.float64), ROPE)
    assert torch.allclose(found, run(part, X, ROPE)[:, shuffled], atol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_bucket_as_long_as_the_row_is_full_attention_with_shared_queries(
    pattern: Pattern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's attention with a mask that leaves out the place itself, unless it sees nothing else."""
    monkeypatch.setattr(reformer, "hashes", lambda x, rotations: torch.zeros(2, HEADS, 3, LENGTH, dtype=torch.int64))
    part = make(pattern, chunk=LENGTH)
    q, v = (layer(X).view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2) for layer in (part.query, part.value))
    mask = ~torch.eye(LENGTH, dtype=torch.bool)
    if pattern.causal:
        mask = mask.tril()
        mask[0, 0] = True
    k = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    full = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(run(part, X), part.out(full.transpose(1, 2).flatten(2)), atol=1e-12)


def test_shared_queries_point_the_same_way_in_one_bucket() -> None:
    """The hash goes by direction alone: a longer query falls into the same bucket, the opposite one never does."""
    part = make(Causal(DIMS), buckets=8)
    q = torch.randn(2, HEADS, 50, HEAD_DIM, generator=stream("q"), dtype=torch.float64)
    found = reformer.hashes(q, part.rotations)
    assert torch.equal(reformer.hashes(3 * q, part.rotations), found)
    assert torch.equal(reformer.hashes(-q, part.rotations), (found + 4) % 8)


def test_directions_come_from_the_seed_alone() -> None:
    """The same in every process, so the numbers of one stand here; others for another seed, layer, round and head."""
    part = make(Causal(DIMS)).float()
    assert torch.allclose(part.rotations[0, 0, 0], torch.tensor([-1.1131483, 1.8394277]), atol=1e-6)
    other = Reformer(Dims(WIDTH, 2, HEADS, HEAD_DIM, LENGTH, 5, layer=1), pattern=Causal(DIMS), buckets=4, rounds=3,
                     chunk=2, seed=0)  # fmt: skip
    different = [make(Causal(DIMS), seed=1).rotations, other.rotations, part.rotations.flip(0), part.rotations.flip(1)]
    assert not any(torch.equal(part.rotations, drawn.float()) for drawn in different)


def test_a_rotation_turns_queries_and_keys_but_moves_no_place_to_another_bucket() -> None:
    """So a relative encoding stays relative: moving all positions changes nothing."""
    part, position = make(Causal(DIMS)), torch.arange(LENGTH)[None]
    turned = run(part, X, ROPE)
    assert (turned - run(part, X)).abs().max() > 1e-3
    assert torch.allclose(run(part, X, ROPE, position=position + 5), turned, atol=1e-12)


@pytest.mark.parametrize("sizes", [[LENGTH - 2, 1, 1], [1, 5, 7, LENGTH - 13]])
def test_places_read_one_after_the_other_get_what_the_whole_row_gets(sizes: list[int]) -> None:
    """Padding on the left, as prompts have it; buckets and chunks of earlier places stay what they were."""
    part, cache, padding = make(Causal(DIMS)), Cache(), torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, :3] = True
    whole, parts, start = run(part, X, ROPE, padding=padding), [], 0
    for size in sizes:
        end = start + size
        new = Tokens.of(size, start=start, padding=padding[:, start:end])
        parts.append(part(X[:, start:end], Context(new, cache.extend(new), torch.float64, cache), ROPE))
        start = end
    assert torch.allclose(torch.cat(parts, dim=1)[~padding], whole[~padding], atol=1e-12)


def test_weights_behind_padding_are_those_of_the_row_alone() -> None:
    """Padding on the left has the first token's order, but nobody sees it."""
    part, padded = make(Causal(DIMS)), torch.zeros(1, LENGTH, dtype=torch.bool)
    padded[:, :4] = True
    order = (torch.arange(LENGTH)[None] - 4).clamp(min=0)
    found = []
    for x, tokens in (
        (X[:1], Tokens(order, order.clone(), LENGTH, padding=padded)),
        (X[:1, 4:], Tokens.of(LENGTH - 4)),
    ):
        context = Context(tokens, tokens, torch.float64)
        q, k, _, index = part._project(x, context, NOPE)
        found.append(part._by_pairs(q, k, index, context))
    behind, alone = found
    assert behind[:, :, 4:, :4].abs().max() == 0
    assert torch.allclose(behind[:, :, 4:, 4:], alone, atol=1e-12)


def test_dropout_falls_on_the_weights() -> None:
    """It draws in training, and the mean over draws is the output without it, to within five standard errors."""
    part = Reformer(
        Dims(WIDTH, 1, HEADS, HEAD_DIM, LENGTH, 5, dropout=0.5),
        pattern=Causal(DIMS),
        buckets=2,
        rounds=2,
        chunk=4,
        seed=0,
    ).double()
    part.dropout.p = 0.0
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=stream("reformer", name)))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        exact, draws = run(part.eval(), X), torch.stack([run(part.train(), X) for _ in range(225)])
    error = draws.std(0) / 15
    assert draws.std() > 0
    assert ((draws.mean(0) - exact).abs() <= 5 * error + 1e-12).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buckets": 3}, "`buckets` of reformer attention must be even, but it is 3"),
        ({"pattern": Window(DIMS, before=3)}, "cannot follow the pattern Window"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**{"pattern": Causal(DIMS), **settings})


def test_what_reformer_cannot_take_is_refused_at_composition() -> None:
    with pytest.raises(UsageError, match="reformer attention has no scores that the position ALiBi could add to"):
        check(compose(["task=copy", "model/attention=reformer", "model/position=alibi"]))
    check(compose(["task=copy", "model/attention=reformer"]))
