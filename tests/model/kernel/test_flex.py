"""Flex attention: the forward on a CPU, where torch has it unfused; forward, backward and fusion on a GPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from configs import accepted, small
from swapformer.conformance import examine
from swapformer.errors import UsageError
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import AttentionPlan, Flex, Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Longformer, Pattern, PerHead, Window
from swapformer.model.position import FIRE, T5, ALiBi, Position
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import check, compose

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

DIMS = Dims(d_model=32, num_layers=1, num_heads=2, head_dim=16, max_len=512, vocab_size=5)
LENGTH = 140

CASES: list[tuple[Pattern, Position, dict[str, Tensor]]] = [
    (Causal(DIMS), Position(DIMS), {}),
    (Full(DIMS), ALiBi(DIMS, decay=8.0), {"padding": torch.arange(LENGTH) >= torch.tensor([[130], [90]])}),
    (Window(DIMS, before=20), T5(DIMS, buckets=8, max_distance=30, bidirectional=False), {}),
    (
        Longformer(DIMS, before=20, places=[0, 50]),
        FIRE(DIMS, width=4, rate=0.1, threshold=10.0),
        {"document": (torch.arange(LENGTH) // 47)[None]},
    ),
    (
        PerHead(DIMS, patterns={"near": partial(Window, before=3), "far": partial(Window, before=60)}),
        ALiBi(DIMS, decay=8.0),
        {"position": torch.arange(LENGTH)[None] * 2 + 5},
    ),
]
NAMES = [f"{type(pattern).__name__}-{type(position).__name__}" for pattern, position, _ in CASES]


def computed(
    kernel: Flex | Reference, pattern: Pattern, position: Position, places: dict[str, Tensor], given: list[Tensor]
) -> Tensor:
    tokens = Tokens.of(LENGTH, device=given[0].device, **places)
    plan = AttentionPlan(Dot(DIMS, exponent=-0.5), Softmax(DIMS), pattern)
    assert kernel.refuses(plan, position) is None
    return kernel(*given, plan, position, Context(tokens, tokens, given[0].dtype), 0.0)


def widened(position: Position) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in position.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return list(position.parameters())


@pytest.mark.parametrize(("pattern", "position", "places"), CASES, ids=NAMES)
def test_the_forward_is_that_of_the_reference(pattern: Pattern, position: Position, places: dict[str, Tensor]) -> None:
    """By torch's own unfused form, in float64: what is asked of flex is right, whatever fuses it."""
    widened(position.double())
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(2, 2, LENGTH, 16, generator=generator, dtype=torch.float64) for _ in range(3)]
    with torch.no_grad():
        found, exact = (computed(kernel(DIMS), pattern, position, places, given) for kernel in (Flex, Reference))
    assert (found - exact).abs().max() < 1e-12


def test_beyond_the_lengths_that_torch_compiles_it_says_so_in_place_of_another_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On CUDA torch would go on unfused without a word; here its compiler runs without a backend."""
    kernel, real = Flex(DIMS), torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: real(function, backend="eager", **options))
    monkeypatch.setattr("swapformer.model.kernel.flex.flex_attention", kernel._fused)
    plan = AttentionPlan(Dot(DIMS, exponent=-0.5), Softmax(DIMS), Causal(DIMS))

    def attend(length: int) -> None:
        tokens, given = Tokens.of(length), [torch.ones(1, 2, length, 16) for _ in range(3)]
        kernel(*given, plan, Position(DIMS), Context(tokens, tokens, torch.float32), 0.0)

    with torch._dynamo.config.patch(recompile_limit=2):
        for length in (128, 140):
            attend(length)
        with pytest.raises(ValueError, match="kernel flex is compiled once for each length, and torch stops at 2"):
            attend(150)


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # of torch, in what its compiler imports
@pytest.mark.skipif(not torch.cuda.is_available(), reason="flex trains on CUDA alone, and there is no such device")
@pytest.mark.parametrize(("pattern", "position", "places"), CASES, ids=NAMES)
def test_fused_on_a_gpu_it_has_the_outputs_and_gradients_of_the_reference(
    pattern: Pattern, position: Position, places: dict[str, Tensor]
) -> None:
    """Against the reference in float64 on the CPU; float32 with full products."""
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(2, 2, LENGTH, 16, generator=generator, dtype=torch.float64) for _ in range(4)]
    results = []
    for kernel, device, dtype in ((Flex(DIMS), "cuda", torch.float32), (Reference(DIMS), "cpu", torch.float64)):
        parameters = widened(position.to(device, dtype))
        given = [x.to(device, dtype).requires_grad_() for x in drawn[:3]]
        there = {name: value.to(device) for name, value in places.items()}
        out = computed(kernel, pattern, position, there, given)
        found = torch.autograd.grad((out * drawn[3].to(device, dtype)).sum(), [*given, *parameters])
        results.append([x.detach().double().cpu() for x in (out, *found)])
    for fused, exact in zip(*results, strict=True):
        assert (fused - exact).abs().max() < 1e-4 * (1 + exact.abs().max())


REFUSED = [
    (["trainer=cpu"], "Flex needs trainer.accelerator=gpu, but it is cpu; use trainer=gpu, or model/kernel=auto"),
    (["trainer=gpu", "model.dropout=0.1"], "cannot drop weights, but model.dropout=0.1; use model/kernel=auto"),
    (["trainer=gpu", "model.head_dim=8"], "at least 16 wide, but they are 8"),
    (["trainer=gpu", "model/normaliser=entmax15"], "kernel flex computes softmax only, not Entmax15"),
    (["trainer=gpu", "model/score=softcap"], "kernel flex computes dot products only, not Softcap"),
    (["trainer=gpu", "model/position=relative_key"], "content-dependent scores of RelativeKey"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[case[0][-1] for case in REFUSED])
def test_what_flex_cannot_do_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", "model/kernel=flex", *overrides]))


def test_flex_goes_with_patterns_and_biases_on_a_gpu() -> None:
    accepted("task=copy", "model/kernel=flex", "trainer=gpu", "model/pattern=window", "model/position=t5")


def test_without_a_gpu_no_law_is_said_to_hold() -> None:
    verdicts = examine(small(["model/kernel=flex"]), "kernel")
    assert {verdict.holds for verdict in verdicts} == {None}
    assert all("needs a GPU" in verdict.message for verdict in verdicts)
