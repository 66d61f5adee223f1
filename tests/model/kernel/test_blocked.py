"""Blocked attention: the reference's outputs and gradients at the cost of the band."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from configs import accepted
from swapformer.errors import UsageError
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import SDPA, AttentionPlan, Auto, Blocked, Kernel, Reference
from swapformer.model.normaliser import Entmax15, Normaliser, Sigmoid, Sink, Softmax, TopK
from swapformer.model.pattern import AllOf, AnyOf, Causal, Dilated, Full, Longformer, Pattern, PerHead, Reach, Window
from swapformer.model.position import FIRE, T5, ALiBi, Position, RelativeKey, TransformerXL
from swapformer.model.score import Additive, Dot, Score
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import check, compose

DIMS = Dims(d_model=16, num_layers=1, num_heads=2, head_dim=8, max_len=512, vocab_size=5)
LENGTH = 150

PATTERNS: list[Pattern] = [
    Window(DIMS, before=7),
    Window(DIMS, before=40, after=50),
    Window(DIMS, before=1000),
    Dilated(DIMS, before=4, after=0, step=3),
    Dilated(DIMS, before=2, after=1, step=70),
    Longformer(DIMS, before=20, after=3, places=[0, 7, 149, 900]),
    AllOf(DIMS, patterns={"order": Causal, "reach": partial(Longformer, before=9, after=9, places=[40, 2])}),
    AnyOf(DIMS, patterns={"near": partial(Window, before=3), "far": partial(Dilated, before=3, after=1, step=8)}),
    PerHead(DIMS, patterns={"near": partial(Window, before=3), "far": partial(Dilated, before=5, after=0, step=4)}),
]
POSITIONS: list[Position] = [
    Position(DIMS),
    ALiBi(DIMS, decay=8.0),
    T5(DIMS, buckets=8, max_distance=30, bidirectional=True),
    FIRE(DIMS, width=4, rate=0.1, threshold=10.0),
    RelativeKey(DIMS, max_distance=9),
    TransformerXL(DIMS, base=100.0),
]
WEIGHTS: list[tuple[Score, Normaliser]] = [
    (Dot(DIMS, exponent=-0.5), Softmax(DIMS)),
    (Dot(DIMS, exponent=0.0), Entmax15(DIMS)),
    (Additive(DIMS, exponent=0.0), Sigmoid(DIMS, power=1.0)),
    (Dot(DIMS, exponent=-0.5), Sink(DIMS, start=0.3)),
    (Dot(DIMS, exponent=-0.5), TopK(DIMS, keys=12)),
]
PLACES: dict[str, dict[str, Tensor]] = {
    "plain": {},
    "moved": {"position": torch.arange(LENGTH)[None] * 2 + 5},
    "padding": {"padding": (torch.arange(LENGTH) < 3) | (torch.arange(LENGTH) >= torch.tensor([[149], [60]]))},
    "documents": {"document": (torch.arange(LENGTH) // 47)[None]},
}


def inputs(length: int = LENGTH) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, length, 8, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]


def widened(*parts: torch.nn.Module) -> list[Tensor]:
    """The parameters of parts in float64, drawn wide."""
    generator = torch.Generator().manual_seed(1)
    parameters = [parameter for part in parts for parameter in part.double().parameters()]
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return parameters


def computed(
    kernel: Kernel, plan: AttentionPlan, position: Position, tokens: Tokens, parameters: list[Tensor]
) -> list[Tensor]:
    """Output and the gradients that exist, of random inputs and a random direction."""
    given = inputs(len(tokens))
    out = kernel(*given, plan, position, Context(tokens, tokens, torch.float64), 0.0)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = torch.autograd.grad((out * direction).sum(), [*given, *parameters], allow_unused=True)
    return [out, *(gradient for gradient in found if gradient is not None)]


CASES = [
    pytest.param(pattern, position, *weights, places, id=f"{number}-{type(pattern).__name__}-{places}")
    for number, (pattern, position, weights, places) in enumerate(
        zip(PATTERNS * 4, cycle(POSITIONS), cycle(WEIGHTS), [name for name in PLACES for _ in PATTERNS], strict=False)
    )
]


@pytest.mark.parametrize(("pattern", "position", "score", "normaliser", "places"), CASES)
def test_blocks_give_the_outputs_and_gradients_of_the_reference(
    pattern: Pattern,
    position: Position,
    score: Score,
    normaliser: Normaliser,
    places: str,
    record_property: Any,
) -> None:
    """The reference is the specification: one matrix of logits, masked. Every row and column of cases is met."""
    parameters = widened(position, score, normaliser)
    plan, tokens = AttentionPlan(score, normaliser, pattern), Tokens.of(LENGTH, **PLACES[places])
    assert Blocked(DIMS).refuses(plan, position) is None
    fast, slow = (computed(kernel, plan, position, tokens, parameters) for kernel in (Blocked(DIMS), Reference(DIMS)))
    gap = max((a - b).abs().max().item() for a, b in zip(fast, slow, strict=True))
    record_property("largest_difference", gap)
    assert gap < 1e-10


def window(before: int = 15, position: Position | None = None) -> tuple[AttentionPlan, Position]:
    plan = AttentionPlan(Dot(DIMS, exponent=-0.5), Softmax(DIMS), Window(DIMS, before=before))
    return plan, position or Position(DIMS)


@pytest.mark.parametrize("queries", [1, 40])
def test_the_last_queries_of_a_longer_sequence_are_one_block(queries: int) -> None:
    """A cache: which places the queries are stands in a tensor that nobody should have to read."""
    plan, position = window(9, ALiBi(DIMS, decay=8.0))
    q, k, v = inputs()
    context = Context(Tokens.of(queries, start=LENGTH - queries), Tokens.of(LENGTH), torch.float64)
    found, exact = (
        kernel(q[:, :, -queries:], k, v, plan, position, context, 0.0) for kernel in (Blocked(DIMS), Reference(DIMS))
    )
    assert torch.allclose(found, exact, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that an operation makes, views of its inputs included."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize("position", POSITIONS[:4], ids=lambda position: type(position).__name__)
@pytest.mark.parametrize("padded", [False, True])
def test_nothing_is_formed_for_all_pairs_of_places(position: Position, padded: bool) -> None:
    """Forward and backward: neither logits nor mask nor bias, whatever tells blocks apart."""
    length, plan = 512, window(15)[0]
    padding = torch.arange(length)[None] >= 500 if padded else None
    tokens = Tokens.of(length, padding=padding)
    with Largest() as largest:
        computed(Blocked(DIMS), plan, position, tokens, widened(position))
    assert 0 < largest.elements <= 2 * 2 * length * 64


def operations(kernel: Kernel, length: int, pattern: Pattern) -> int:
    """Floating-point operations of the matrix products of a forward, counted without data."""
    q, k, v = (torch.empty(1, 2, length, 8, device="meta") for _ in range(3))
    tokens = Tokens.of(length, device="meta")
    plan = AttentionPlan(Dot(DIMS, exponent=-0.5), Softmax(DIMS), pattern)
    with FlopCounterMode(display=False) as counter:
        kernel(q, k, v, plan, Position(DIMS), Context(tokens, tokens), 0.0)
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("pattern", "pairs"),
    [
        (Window(DIMS, before=15), 64),
        (Window(DIMS, before=127, after=128), 320),
        (Dilated(DIMS, before=15, after=0, step=4), 64),
        (Longformer(DIMS, before=15, places=[0, 1]), 64 + 2 + 2),
    ],
    ids=["window", "wide", "dilated", "longformer"],
)
def test_work_grows_with_the_band_and_not_with_the_square(pattern: Pattern, pairs: int) -> None:
    """4·H·E operations a pair, and for each further query as many pairs: the band in whole blocks, and landmarks.

    A mask saves nothing: Beltagy et al. 2020 wrote a kernel for their window.
    """
    short, long, longer = (operations(Blocked(DIMS), length, pattern) for length in (1024, 1536, 2048))
    assert long - short == longer - long == 4 * 2 * 8 * 512 * pairs
    assert operations(SDPA(DIMS, backend="auto"), 1024, pattern) == 4 * 2 * 8 * 1024**2


def test_blocks_that_differ_only_in_where_they_stand_share_masks_and_biases() -> None:
    class Counting(Window):
        asked = 0

        def allowed(self, query: Tokens, key: Tokens) -> Tensor:
            self.asked += 1
            return super().allowed(query, key)

    counts = []
    for length in (512, 2048):
        pattern, tokens = Counting(DIMS, before=60), Tokens.of(length)
        context = Context(tokens, tokens, torch.float64)
        plan = AttentionPlan(Dot(DIMS, exponent=-0.5), Softmax(DIMS), pattern)
        for _ in range(2):  # two layers
            Blocked(DIMS)(*inputs(length), plan, ALiBi(DIMS, decay=8.0), context, 0.0)
        counts.append(pattern.asked)
    assert counts[0] == counts[1] < 6


def test_dropout_falls_on_the_weights() -> None:
    """A place that sees itself alone has weight 1, which is dropped or divided by what is kept."""
    plan, position = window(0)
    tokens = Tokens.of(1000)
    q, k, v = (torch.ones(1, 2, 1000, 8, dtype=torch.float64) for _ in range(3))
    torch.manual_seed(0)
    out = Blocked(DIMS)(q, k, v, plan, position, Context(tokens, tokens, torch.float64), 0.25)[..., 0]
    kept = out > 0
    assert torch.allclose(out[kept], torch.tensor(1 / 0.75, dtype=torch.float64))
    assert abs(kept.double().mean().item() - 0.75) < 0.05


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (Causal(DIMS), Reach(after=0)),
        (Full(DIMS), Reach()),
        (Dilated(DIMS, before=None, after=0, step=4), Reach(after=0, step=4)),
        (AllOf(DIMS, patterns={"a": Causal, "b": partial(Window, before=9, after=9)}), Reach(9, 0)),
        (
            AllOf(
                DIMS,
                patterns={
                    "a": partial(Dilated, before=9, after=9, step=4),
                    "b": partial(Longformer, before=5, places=[3]),
                },
            ),
            Reach(5, 0, 4, (3,)),
        ),
        (
            AnyOf(
                DIMS,
                patterns={
                    "a": partial(Dilated, before=1, after=0, step=4),
                    "b": partial(Dilated, before=1, after=1, step=6),
                },
            ),
            Reach(6, 6, 2),
        ),
        (PATTERNS[-1], Reach(20, 0)),
    ],
)
def test_patterns_know_how_far_they_reach_together(pattern: Pattern, expected: Reach) -> None:
    assert pattern.reach == expected


@pytest.mark.parametrize("padded", [False, True])
def test_terms_of_transformer_xl_cost_what_the_band_does(padded: bool) -> None:
    """Twice the length, twice the operations, padding or not: the map of the distances is made once, and of it a block
    meets those rows alone that its distances need. Reference meets 2T rows at each of T places.
    """

    def operations_of(kernel: Kernel, length: int) -> int:
        padding = torch.arange(length)[None] >= length - 40 if padded else None
        tokens = Tokens.of(length, padding=padding)
        plan, context = window(31)[0], Context(tokens, tokens, torch.float64)
        position = TransformerXL(DIMS, base=10_000.0).double()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            kernel(*inputs(length), plan, position, context, 0.0)
        return int(counter.get_total_flops())

    short, long = (operations_of(Blocked(DIMS), length) for length in (1024, 2048))
    assert 1.9 < long / short < 2.1
    assert operations_of(Reference(DIMS), 1024) > 5 * short


@pytest.mark.parametrize(
    ("length", "before", "blocks"), [(512, 15, True), (512, 255, True), (512, 256, False), (255, 15, False)]
)
def test_auto_takes_blocks_where_they_pay(length: int, before: int, blocks: bool) -> None:
    """From 256 places and two bands on, as measured on a CPU; told by the operations, of which sdpa has T²."""
    pattern = Window(DIMS, before=before)
    chosen = Blocked(DIMS) if blocks else SDPA(DIMS, backend="auto")
    assert operations(Auto(DIMS), length, pattern) == operations(chosen, length, pattern)


REFUSED = [
    (["model/pattern=causal"], "nothing bounds how far the pattern Causal sees; use model/kernel=auto"),
    (["model/pattern=strided"], "nothing bounds how far the pattern Strided sees"),
    (["model/pattern=window", "model/position=cope"], "those of CoPE for a pair depend on the keys between"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_has_no_blocks_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", "model/kernel=blocked", *overrides]))


@pytest.mark.parametrize("pattern", ["window", "dilated", "longformer_causal", "multi_scale"])
def test_bands_go_with_blocks(pattern: str) -> None:
    accepted("task=copy", "model/kernel=blocked", f"model/pattern={pattern}")
