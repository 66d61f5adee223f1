"""Biases a block of queries at a time: the reference's outputs and gradients in memory that grows with the length."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from swapformer.model.cache import Cache
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import SDPA, AttentionPlan, Auto, Kernel, Reference, bias_blocks
from swapformer.model.kernel.bias_blocks import LARGE, ROWS, BiasTerms
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Longformer, Pattern, PerHead, Strided, Window
from swapformer.model.position import (
    FIRE,
    T5,
    ALiBi,
    KerpleLog,
    KerplePower,
    Position,
    Randomized,
    RelativeBias,
    Rotary,
    Sum,
)
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose, task_of
from swapformer.training.assemble import build_model

HEADS, WIDTH, LENGTH, BLOCK = 2, 8, 150, 64
DIMS = Dims(d_model=16, num_layers=1, num_heads=HEADS, head_dim=WIDTH, max_len=2048, vocab_size=5)
DOT = Dot(DIMS, exponent=-0.5)


def alibi() -> ALiBi:
    return ALiBi(DIMS, decay=8.0)


POSITIONS: list[Position] = [
    alibi(),
    T5(DIMS, buckets=8, max_distance=60, bidirectional=False),
    T5(DIMS, buckets=16, max_distance=60, bidirectional=True),
    KerpleLog(DIMS, scale=1.0, rate=1.0),
    KerplePower(DIMS, scale=1.0, power=1.0),
    RelativeBias(DIMS, max_distance=40, symmetric=False),
    FIRE(DIMS, width=4, rate=0.1, threshold=10.0),
    Sum(DIMS, first=Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False), second=alibi()),
    Sum(DIMS, first=RelativeBias(DIMS, max_distance=9, symmetric=True), second=alibi()),
    Randomized(DIMS, encoding=alibi(), drawn_from=2048),
]
PATTERNS: list[Pattern] = [
    Causal(DIMS),
    Full(DIMS),
    Window(DIMS, before=120, after=5),
    PerHead(DIMS, patterns={"near": partial(Window, before=40), "all": Causal}),
    Strided(DIMS, stride=7),
    Longformer(DIMS, before=60, after=3, places=[0, 149]),
]
ORDER = torch.arange(LENGTH)
TOKENS: dict[str, dict[str, Tensor]] = {
    "plain": {},
    "moved": {"position": ORDER[None] * 3 + 500},
    "padding": {"padding": (ORDER < 3) | (torch.tensor([[149], [60]]) <= ORDER)},
    "documents": {"document": (ORDER // 37)[None]},
    "documents with positions of their own": {"document": (ORDER // 37)[None], "position": (ORDER % 37)[None]},
    "drawn": {
        "position": torch.randperm(2048, generator=torch.Generator().manual_seed(0))[:LENGTH].sort().values[None]
    },
}
CASES = [
    pytest.param(position, pattern, kind, id=f"{type(position).__name__}-{type(pattern).__name__}-{kind}")
    for position, pattern, kind in zip(POSITIONS * 6, cycle(PATTERNS[:5] + PATTERNS), sorted(TOKENS) * 10, strict=False)
]


@pytest.fixture(autouse=True)
def _every_bias_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few tokens too; and weights are drawn wide, in float64."""
    monkeypatch.setattr(bias_blocks, "ROWS", BLOCK)
    monkeypatch.setattr(bias_blocks, "LARGE", 1)
    for position in POSITIONS:
        for parameter in position.double().parameters():
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel()))


class Dense(SDPA):
    """sdpa with one bias for all pairs."""

    def in_blocks(self, *_: Any) -> bool:
        return False


def plan_of(pattern: Pattern) -> AttentionPlan:
    return AttentionPlan(DOT, Softmax(DIMS), pattern)


def heads(queries: int, keys: int, groups: int = HEADS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = (HEADS, queries), (groups, keys), (groups, keys)
    return tuple(torch.randn(2, *shape, WIDTH, generator=generator).to(dtype).requires_grad_() for shape in shapes)


def computed(
    kernel: Kernel, position: Position, pattern: Pattern, context: Context, groups: int = HEADS
) -> list[Tensor]:
    """Output, and gradients of random heads and of the encoding's weights for a random direction."""
    given = heads(len(context.query), len(context.key), groups, context.dtype)
    out = kernel(*given, plan_of(pattern), position, context, 0.0)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(context.dtype)
    learned = [parameter for parameter in position.parameters() if parameter.requires_grad]
    found = torch.autograd.grad((out * direction).sum(), [*given, *learned], allow_unused=True)
    return [out.detach(), *(gradient for gradient in found if gradient is not None)]


def gap(fast: list[Tensor], slow: list[Tensor]) -> float:
    return max((ours - theirs).abs().max().item() for ours, theirs in zip(fast, slow, strict=True))


def contexts(kind: str, dtype: torch.dtype = torch.float64) -> tuple[Context, Context]:
    """Two fresh contexts of the same tokens, in which nothing is remembered."""
    tokens = Tokens.of(LENGTH, **TOKENS[kind])
    return Context(tokens, tokens, dtype), Context(tokens, tokens, dtype)


@pytest.mark.parametrize(("position", "pattern", "kind"), CASES)
def test_blocks_have_the_outputs_and_gradients_of_the_reference(
    position: Position, pattern: Pattern, kind: str, record_property: Any
) -> None:
    """The reference is the specification: one matrix of logits."""
    ours, theirs = contexts(kind)
    assert bias_blocks.pays(position, ours)
    fast = computed(SDPA(DIMS, backend="auto"), position, pattern, ours)
    slow = computed(Reference(DIMS), position, pattern, theirs)
    record_property("largest_difference", gap(fast, slow))
    assert gap(fast, slow) < 1e-10


@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: type(position).__name__)
def test_blocks_have_the_outputs_and_gradients_of_the_reference_in_single_precision(position: Position) -> None:
    """Both against float64: blocks lose no more digits than one matrix of logits does."""
    exact = computed(Reference(DIMS), position, PATTERNS[0], contexts("plain")[0])
    position.float()
    ours, theirs = contexts("plain", torch.float32)
    fast = computed(SDPA(DIMS, backend="auto"), position, PATTERNS[0], ours)
    slow = computed(Reference(DIMS), position, PATTERNS[0], theirs)
    for quick, plain, true in zip(fast, slow, exact, strict=True):
        scale = true.abs().max().clamp(min=1)
        assert (quick - true).abs().max() / scale < max(2e-5, 3 * float((plain - true).abs().max() / scale))


def test_blocks_go_with_bfloat16_under_autocast() -> None:
    """As near to float64 as the dense kernel, in output and gradients: fixed and learned bias, and with padding."""
    for position, kind in ((POSITIONS[0], "plain"), (POSITIONS[1], "plain"), (POSITIONS[0], "padding")):
        exact = computed(Reference(DIMS), position.double(), PATTERNS[0], contexts(kind)[0])
        position.float()
        with torch.autocast("cpu", torch.bfloat16):
            fast, slow = (
                computed(kernel(DIMS, backend="auto"), position, PATTERNS[0], context)
                for kernel, context in zip((SDPA, Dense), contexts(kind, torch.bfloat16), strict=True)
            )
        for quick, plain, true in zip(fast, slow, exact, strict=True):
            worst = max((plain - true).abs().max().item(), 1e-3 * true.abs().max().item())
            assert (quick - true).abs().max() < 2 * worst


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("position", [POSITIONS[0], POSITIONS[1], POSITIONS[6]], ids=lambda part: type(part).__name__)
def test_queries_may_be_other_tokens_than_the_keys(position: Position, groups: int) -> None:
    """The last 130 of 150 tokens, as with a cache, and other tokens, as in cross-attention; shared keys too."""
    whole = Tokens.of(LENGTH, padding=TOKENS["padding"]["padding"])
    for query, pattern in ((whole.at(slice(20, None)), Causal(DIMS)), (Tokens.of(BLOCK + 7), Full(DIMS))):
        fast, slow = (
            computed(kernel, position, pattern, Context(query, whole, torch.float64), groups)
            for kernel in (SDPA(DIMS, backend="auto"), Reference(DIMS))
        )
        assert gap(fast, slow) < 1e-10


SMALL = Tokens.of(ROWS - 1)
LONG, MOVED = Tokens.of(ROWS), Tokens.of(ROWS, position=torch.arange(ROWS)[None])
WAYS: list[tuple[str, Position, Tokens, float, bool]] = [
    ("a bias by distance", POSITIONS[0], LONG, 0.0, True),
    ("a learned bias by distance", POSITIONS[1], LONG, 0.0, True),
    ("fewer queries than a block", POSITIONS[0], SMALL, 0.0, False),
    ("dropped weights", POSITIONS[0], LONG, 0.1, False),
    ("no bias", Position(DIMS), LONG, 0.0, False),
    ("a bias that is no function of distance, of few pairs", POSITIONS[6], LONG, 0.0, False),
    ("positions of their own, of few pairs", POSITIONS[0], MOVED, 0.0, False),
    ("a bias that is no function of distance, of many pairs", POSITIONS[6], Tokens.of(1500), 0.0, True),
]  # fmt: skip


class Taken(Exception):
    """The bias of a block is asked for."""


@pytest.mark.parametrize("kernel", [SDPA(DIMS, backend="auto"), Auto(DIMS)], ids=["sdpa", "auto"])
@pytest.mark.parametrize(
    ("position", "tokens", "dropout", "blocks"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS]
)
def test_blocks_are_taken_where_they_pay(
    kernel: Kernel, position: Position, tokens: Tokens, dropout: float, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(*_: Any) -> Tensor:
        raise Taken

    monkeypatch.setattr(bias_blocks, "ROWS", ROWS)
    monkeypatch.setattr(bias_blocks, "LARGE", LARGE)
    monkeypatch.setattr(BiasTerms, "of", of)
    context = Context(tokens, tokens, torch.float64)
    with pytest.raises(Taken) if blocks else nullcontext():
        kernel(*heads(len(tokens), len(tokens)), plan_of(PATTERNS[0]), position, context, dropout)


def test_a_bias_that_depends_on_the_number_of_tokens_is_formed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has fewer keys than the whole, and so would have another bias."""
    position, context = alibi(), contexts("plain")[0]
    assert bias_blocks.pays(position, context)
    for fact, value in (("depends_on_length", True), ("pairwise", False), ("has_bias", False)):
        with monkeypatch.context() as patch:
            patch.setattr(position, fact, value)
            assert not bias_blocks.pays(position, context)


class Largest(TorchDispatchMode):
    """Bytes of the largest memory that an operation makes; views of other tensors need none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


def largest_bytes(kernel: Kernel, position: Position, tokens: Tokens) -> int:
    with Largest() as largest:
        computed(kernel, position, PATTERNS[0], Context(tokens, tokens, torch.float64))
    return largest.bytes


@pytest.mark.parametrize("kind", ["plain", "padding", "moved"])
@pytest.mark.parametrize("position", [*POSITIONS[:2], POSITIONS[3], POSITIONS[6]], ids=lambda part: type(part).__name__)
def test_nothing_is_formed_for_all_pairs(position: Position, kind: str) -> None:
    """Forward and backward: no more than the logits of a block of two sequences, or FIRE's 4 units for its pairs."""
    length, places = 8 * BLOCK, torch.arange(8 * BLOCK)[None]
    kinds = {"padding": {"padding": places >= length - 9}, "moved": {"position": places + 5}, "plain": {}}
    tokens = Tokens.of(length, **kinds[kind])
    logits = 2 * HEADS * BLOCK * length * 8
    assert largest_bytes(SDPA(DIMS, backend="auto"), position, tokens) <= logits
    assert largest_bytes(Dense(DIMS, backend="auto"), position, tokens) >= 4 * logits


def test_memory_of_a_fixed_bias_grows_with_the_length_alone() -> None:
    """Twice the tokens, twice the bytes of queries, the largest tensor; a bias for all pairs has four times as many."""
    short, long = Tokens.of(4 * BLOCK), Tokens.of(8 * BLOCK)
    for kernel, growth in ((SDPA(DIMS, backend="auto"), 2), (Dense(DIMS, backend="auto"), 4)):
        assert largest_bytes(kernel, POSITIONS[0], long) == growth * largest_bytes(kernel, POSITIONS[0], short)


def test_a_block_of_a_learned_bias_has_no_more_pairs_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of two sequences, float64: as many for 8 blocks of tokens as for 16; without the limit, twice as many."""
    short, long = Tokens.of(8 * BLOCK), Tokens.of(16 * BLOCK)
    kernel, pairs = SDPA(DIMS, backend="auto"), 16 * 16 * BLOCK
    for limit, most in ((pairs, 1), (2**30, 2)):
        monkeypatch.setattr(bias_blocks, "PAIRS", limit)
        assert largest_bytes(kernel, POSITIONS[1], long) == most * largest_bytes(kernel, POSITIONS[1], short)
        assert largest_bytes(kernel, POSITIONS[1], short) == 2 * HEADS * min(limit, 8 * BLOCK * BLOCK) * 8


class Uphill(ALiBi):
    """ALiBi with the wrong sign of its slopes."""

    def bias(self, context: Context) -> Tensor:
        return -super().bias(context)


class Slides(ALiBi):
    """A bias by the key's position alone: the constant of a row is missing, and yet it is stated to be relative."""

    def bias(self, context: Context) -> Tensor:
        first = context.key.position[:, :1]
        return (0.3 * (context.key.position - first)).sin()[:, None, None].to(context.dtype).expand(-1, HEADS, -1, -1)


def _shifted(function: Callable[..., Any], change: Callable[..., Any]) -> Any:
    return staticmethod(lambda ctx, *given: change(function, ctx, *given))


WINDOW_FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "a block's neighbour": ("forward", lambda f, ctx, table, first, *size: f(ctx, table, max(first - BLOCK, 0), *size)),
    "one distance further": ("forward", lambda f, ctx, table, first, *size: f(ctx, table, max(first - 1, 0), *size)),
    "first query first": ("forward", lambda f, ctx, *given: f(ctx, *given).flip(2)),
    "gradients of another row": ("backward", lambda f, ctx, gradient: f(ctx, gradient.roll(1, dims=2))),
    "a gradient without rows": ("backward", lambda f, ctx, gradient: f(ctx, gradient[:, :, :1].expand_as(gradient))),
}


@pytest.mark.parametrize("fault", WINDOW_FAULTS)
def test_a_wrong_window_shows(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above sees each of these faults, in outputs or in gradients of the weights."""
    name, change = WINDOW_FAULTS[fault]
    ours, theirs = contexts("plain")
    slow = computed(Reference(DIMS), POSITIONS[5], PATTERNS[0], theirs)
    monkeypatch.setattr(bias_blocks._Window, name, _shifted(getattr(bias_blocks._Window, name), change))
    assert gap(computed(SDPA(DIMS, backend="auto"), POSITIONS[5], PATTERNS[0], ours), slow) > 1e-3


def test_a_wrong_sign_and_a_bias_by_keys_alone_show() -> None:
    """Outputs differ from ALiBi's; a bias by keys alone, which no table of distances holds, differs from its own."""
    for wrong, right in ((Uphill(DIMS, decay=8.0), alibi()), (Slides(DIMS, decay=8.0),) * 2):
        ours, theirs = contexts("plain")
        fast = computed(SDPA(DIMS, backend="auto"), wrong, PATTERNS[0], ours)
        assert gap(fast, computed(Reference(DIMS), right, PATTERNS[0], theirs)) > 1e-3


def test_keys_cut_too_short_show(monkeypatch: pytest.MonkeyPatch) -> None:
    keys_of = BiasTerms.keys_of
    monkeypatch.setattr(BiasTerms, "keys_of", lambda self, queries: keys_of(self, queries)[BLOCK // 4 :])
    ours, theirs = contexts("plain")
    fast, slow = (computed(SDPA(DIMS, backend="auto"), POSITIONS[5], PATTERNS[0], ours),
                  computed(Reference(DIMS), POSITIONS[5], PATTERNS[0], theirs))  # fmt: skip
    assert gap(fast, slow) > 1e-3


@pytest.mark.parametrize("option", ["alibi", "t5"])
def test_a_prompt_of_several_blocks_and_a_cache_change_nothing(option: str) -> None:
    """150 tokens at once fill the cache, 5 follow one by one: their logits are those of reading 155 at once."""
    sizes = ["model.d_model=16", "model.num_heads=2", "model.num_layers=2", "model.max_len=200"]
    config = compose(["task=copy", f"model/position={option}", *sizes])
    model = build_model(config, task_of(config).interface).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    symbols = torch.randint(5, (2, LENGTH + 5), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = model(symbols, Tokens.of(LENGTH + 5), None, None, None)
        cache, logits = Cache(), []
        for start, stop in [(0, LENGTH), *((token, token + 1) for token in range(LENGTH, LENGTH + 5))]:
            logits.append(model(symbols[:, start:stop], Tokens.of(stop - start, start=start), None, None, cache))
    torch.testing.assert_close(torch.cat(logits, 1), whole, rtol=1e-10, atol=1e-10)
