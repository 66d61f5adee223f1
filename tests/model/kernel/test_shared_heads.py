"""Keys and values that heads share: every kernel equals itself on copies for each head, and makes no copies."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from swapformer.model.cache import BLOCK, Cache
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import SDPA, AttentionPlan, Auto, Blocked, Kernel, Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, PerHead, Window
from swapformer.model.position import T5, ALiBi, CoPE, Position, RelativeKey, RelativeKeyQuery, TransformerXL
from swapformer.model.score import Additive, Bilinear, Cosine, Dot, Gaussian, LearnedDot, Score, Softcap
from swapformer.model.tokens import Tokens

HEADS, WIDTH, KEYS = 4, 8, 40
DIMS = Dims(d_model=32, num_layers=1, num_heads=HEADS, head_dim=WIDTH, max_len=64, vocab_size=5)
SCORES: list[Score] = [
    Dot(DIMS, exponent=-0.5),
    Gaussian(DIMS, exponent=-0.5),
    Softcap(DIMS, exponent=-0.5, cap=2.0),
    LearnedDot(DIMS, exponent=-0.5),
    Cosine(DIMS, start=3.0, eps=1e-6),
    Additive(DIMS, exponent=0.0),
    Bilinear(DIMS, exponent=-0.5),
]
POSITIONS: list[Position] = [
    Position(DIMS),
    ALiBi(DIMS, decay=8.0),
    T5(DIMS, buckets=8, max_distance=30, bidirectional=False),
    RelativeKey(DIMS, max_distance=9),
    RelativeKeyQuery(DIMS, max_distance=9),
    TransformerXL(DIMS, base=100.0),
    CoPE(DIMS, rows=8, gate_exponent=0.0),
]
PATTERNS = [Causal(DIMS), Full(DIMS), Window(DIMS, before=9), PerHead(DIMS, patterns={"a": Causal, "b": Full})]
KERNELS: list[Kernel] = [Reference(DIMS), SDPA(DIMS, backend="auto"), Blocked(DIMS), Auto(DIMS)]
for part in (*SCORES, *POSITIONS):
    for weight in part.double().parameters():
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(len(weight)))


def heads(groups: int, queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """q [2, H, Q, E] and k, v [2, G, K, E] in float64."""
    generator = torch.Generator().manual_seed(groups)
    shapes = (HEADS, queries), (groups, KEYS), (groups, KEYS)
    q, k, v = (torch.randn(2, n, t, WIDTH, dtype=torch.float64, generator=generator) for n, t in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_shared_keys_and_values_give_what_a_copy_for_each_head_gives(kernel: Kernel) -> None:
    """Outputs and gradients, for every two of score, encoding and pattern, of one new token and of a whole sequence."""
    tried = 0
    plain = SCORES[0], POSITIONS[0], PATTERNS[0]
    for score, position, pattern, queries, groups in product(SCORES, POSITIONS, PATTERNS, (1, KEYS), (1, 2)):
        if not any(part is first for part, first in zip((score, position, pattern), plain, strict=True)):
            continue
        plan = AttentionPlan(score, Softmax(DIMS), pattern)
        if kernel.refuses(plan, position):
            continue
        tokens = Tokens.of(KEYS)
        query = tokens if queries == KEYS else tokens.at(slice(-1, None))
        q, k, v = heads(groups, queries)
        copies = (x.repeat_interleave(HEADS // groups, dim=1) for x in (k, v))
        shared = kernel(q, k, v, plan, position, Context(query, tokens, torch.float64), 0.0)
        copied = kernel(q, *copies, plan, position, Context(query, tokens, torch.float64), 0.0)
        torch.testing.assert_close(shared, copied, rtol=1e-10, atol=1e-10)
        direction = torch.linspace(-1, 1, shared.numel(), dtype=torch.float64).view(shared.shape)
        ours, theirs = (torch.autograd.grad(out, [q, k, v], direction) for out in (shared, copied))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
        tried += 1
    assert tried >= 24


class Largest(TorchDispatchMode):
    """Records the most numbers that an operation writes: into memory of its own, or into a tensor that it copies to."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        read = {value.untyped_storage().data_ptr() for value in args if isinstance(value, Tensor)}
        for value in out if isinstance(out, tuple | list) else (out,):
            written = isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in read
            if (written and func is not torch.ops.aten.new_empty.default) or func is torch.ops.aten.copy_.default:
                self.numbers = max(self.numbers, value.numel())
        return out


@pytest.mark.parametrize("kernel", KERNELS[:2], ids=lambda kernel: type(kernel).__name__)
def test_the_step_of_a_new_token_makes_nothing_as_large_as_the_keys_of_all_heads(kernel: Kernel) -> None:
    wide = Dims(d_model=512, num_layers=1, num_heads=8, head_dim=64, max_len=512, vocab_size=5)
    q, k, v = torch.randn(1, 8, 1, 64), torch.randn(1, 1, 512, 64), torch.randn(1, 1, 512, 64)
    tokens = Tokens.of(512)
    plan = AttentionPlan(Dot(wide, exponent=-0.5), Softmax(wide), Causal(wide))

    def largest(k: Tensor, v: Tensor, *, copies: bool) -> int:
        with torch.no_grad(), Largest() as seen:
            if copies:  # what this holds against: a copy for each head
                k, v = (x.repeat_interleave(8, dim=1) for x in (k, v))
            kernel(q, k, v, plan, Position(wide), Context(tokens.at(slice(-1, None)), tokens), 0.0)
        return seen.numbers

    assert largest(k, v, copies=False) < 512 * 64
    assert largest(k, v, copies=True) == 8 * 512 * 64


def test_a_cache_copies_what_it_holds_once_in_a_block_of_tokens() -> None:
    cache, owner, whole = Cache(), object(), torch.randn(2, 3, BLOCK * 2 + 9, 5)
    copied = 0
    for token in range(whole.shape[2]):
        with torch.no_grad(), Largest() as seen:
            (held,) = cache.append(owner, whole[:, :, token : token + 1])
        copied += seen.numbers > BLOCK
        assert torch.equal(held, whole[:, :, : token + 1])
    assert copied == 2


def test_a_cache_keeps_what_it_returned_before_and_the_last_tokens_alone() -> None:
    cache, owner, whole = Cache(), object(), torch.randn(2, 3, BLOCK + 40, 5)
    returned = [cache.append(owner, whole[:, :, t : t + 1], last=4)[0] for t in range(whole.shape[2])]
    for token, held in enumerate(returned):
        assert torch.equal(held, whole[:, :, max(0, token - 4) : token + 1])
    cache.select(torch.tensor([1]))
    (held,) = cache.append(owner, whole[1:, :, :1])
    assert torch.equal(held, torch.cat([whole[1:, :, -4:], whole[1:, :, :1]], 2))


def test_gradients_flow_through_what_a_cache_holds() -> None:
    cache, owner = Cache(), object()
    pieces = [torch.randn(1, 1, 2, 3, requires_grad=True) for _ in range(3)]
    for piece in pieces:
        (held,) = cache.append(owner, piece)
    held.sum().backward()
    assert all(piece.grad is not None and bool((piece.grad == 1).all()) for piece in pieces)
