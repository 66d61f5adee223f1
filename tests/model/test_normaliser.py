"""The traps of normalisers: −∞, rows without keys, exact zeros, gradients; oracles: entmax, torch and gpt-oss."""

from __future__ import annotations

from collections.abc import Callable

import entmax
import pytest
import torch
from torch import Tensor

from configs import every_part
from swapformer.model.dims import Dims
from swapformer.model.normaliser import Entmax15, Normaliser, Sigmoid, Sink, Softmax, Softmax1, Sparsemax, TopK
from swapformer.model.normaliser.functions import entmax15, sparsemax
from swapformer.model.ops import cumulative_sum, sum_by_triangles

DIMS = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5)
INF = float("inf")
ALL: dict[str, Callable[[], Normaliser]] = {
    "softmax": lambda: Softmax(DIMS),
    "softmax1": lambda: Softmax1(DIMS),
    "sink": lambda: Sink(DIMS, start=0.7).double(),
    "topk": lambda: TopK(DIMS, keys=3),
    "sparsemax": lambda: Sparsemax(DIMS),
    "entmax15": lambda: Entmax15(DIMS),
    "sigmoid": lambda: Sigmoid(DIMS, power=1.0),
}


def logits(scale: float = 2.0) -> Tensor:
    """[2, 2, 5, 7]: some keys forbidden, and one query without any."""
    generator = torch.Generator().manual_seed(4)
    s = scale * torch.randn(2, 2, 5, 7, generator=generator, dtype=torch.float64)
    s[:, :, 1, 3:] = s[:, 0, 4, ::2] = s[0, 1, 2] = -INF
    return s


def test_every_normaliser_is_tested_here() -> None:
    assert {option for slot, option in every_part() if slot == "normaliser"} == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_forbidden_keys_and_blind_queries_get_zero_and_no_nan(name: str) -> None:
    part, s = ALL[name](), logits().requires_grad_()
    weights = part(s)
    assert not weights[s.isneginf()].any(), "a forbidden key must get no weight"
    assert bool((weights >= 0).all())
    (weights * torch.arange(7.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert s.grad is not None
    assert bool(s.grad.isfinite().all())
    assert not s.grad[s.isneginf()].any()
    rows = weights.sum(-1)
    seen = ~s.isneginf().all(-1)
    assert torch.allclose(rows[seen], torch.ones_like(rows[seen])) is part.sums_to_one


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    allowed = ~logits().isneginf()
    free = logits()[allowed].requires_grad_()
    part = ALL[name]()

    def weights(values: Tensor) -> Tensor:
        return part(torch.full(allowed.shape, -INF, dtype=torch.float64).masked_scatter(allowed, values))

    assert torch.autograd.gradcheck(weights, (free,))


@pytest.mark.parametrize(("name", "theirs"), [("sparsemax", entmax.sparsemax), ("entmax15", entmax.entmax15)])
def test_sparse_normalisers_are_those_of_entmax(name: str, theirs: Callable[..., Tensor]) -> None:
    s = logits().requires_grad_()
    weights = ALL[name]()(s)
    probe = torch.randn(s.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (weights * probe).sum().backward()  # type: ignore[no-untyped-call]
    assert s.grad is not None
    zeros = 0
    for row in [(b, h, i) for b in range(2) for h in range(2) for i in range(5)]:
        kept = ~s[row].isneginf()
        if not kept.any():
            continue
        free = s[row][kept].detach().requires_grad_()
        expected = theirs(free, dim=-1)
        (expected * probe[row][kept]).sum().backward()  # type: ignore[no-untyped-call]
        assert torch.allclose(weights[row][kept], expected, rtol=0, atol=1e-12)
        assert free.grad is not None
        assert torch.allclose(s.grad[row][kept], free.grad, rtol=0, atol=1e-12)
        zeros += int((expected == 0).sum())
    assert zeros > 20, "sparse normalisers give exact zeros"


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize(("ours", "theirs"), [(sparsemax, entmax.sparsemax), (entmax15, entmax.entmax15)])
def test_what_cuda_computes_is_what_entmax_gives(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], scale: float
) -> None:
    """CUDA refuses the cumulative sum of the package; ours is held to it on the CPU, gradients and ties too."""
    logits = scale * torch.randn(3, 5, 70, dtype=torch.float64)
    logits[0, 0, :4] = logits[0, 0, 4]
    logits.requires_grad_()
    weight = torch.randn_like(logits)
    found, expected = ours(logits, dim=-1), theirs(logits, dim=-1)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    gradients = [torch.autograd.grad((weight * each).sum(), logits)[0] for each in (found, expected)]
    assert torch.allclose(*gradients, rtol=0, atol=1e-10)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200, 5000])
@pytest.mark.parametrize("dim", [1, -1])
def test_a_sum_by_triangles_is_the_cumulative_sum(length: int, dim: int) -> None:
    shape = [2, 3, 2]
    shape[dim] = length
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found, expected = sum_by_triangles(x, dim), x.cumsum(dim)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    weight = torch.randn_like(x)
    gradients = [torch.autograd.grad((weight * each).sum(), x)[0] for each in (found, expected)]
    assert torch.allclose(*gradients, rtol=0, atol=1e-10)
    assert torch.equal(cumulative_sum(x, dim), expected), "on a CPU no number moves"


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_sparse_normalisers_stand_logits_of_any_size(name: str) -> None:
    s = torch.tensor([[[[1e4, 1e4 - 0.5, -INF], [-1e4, -INF, -1e4]]]])
    weights = ALL[name]()(s)
    assert torch.allclose(weights.sum(-1), torch.ones(1, 1, 2))
    assert weights[0, 0, 1, 1] == 0
    assert weights[0, 0, 1].tolist() == pytest.approx([0.5, 0.0, 0.5])


def test_softmax1_and_the_sink_are_softmax_over_one_key_more_that_has_no_value() -> None:
    s = logits()
    sink = Sink(DIMS, start=0.0).double()
    assert torch.allclose(sink(s), Softmax1(DIMS)(s))
    exponentials = s.exp()
    assert torch.allclose(Softmax1(DIMS)(s), exponentials / (1 + exponentials.sum(-1, keepdim=True)), atol=1e-14)
    with torch.no_grad():
        sink.sink.copy_(torch.tensor([0.5, -2.0]))
    total = sink.sink.exp()[:, None, None] + exponentials.sum(-1, keepdim=True)
    assert torch.allclose(sink(s), exponentials / total, atol=1e-14)


def test_the_sink_is_that_of_gpt_oss() -> None:
    gpt_oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, 2, 6, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    part = Sink(DIMS, start=0.0).double()
    with torch.no_grad():
        part.sink.copy_(torch.tensor([0.5, -2.0]))
    module = torch.nn.Module()
    module.sinks, module.num_key_value_groups = part.sink, 1
    mask = torch.full((6, 6), -INF, dtype=torch.float64).triu(1)[None, None]
    _, expected = gpt_oss.eager_attention_forward(module.eval(), q, k, v, mask, scaling=0.5)
    assert torch.allclose(part(0.5 * q @ k.mT + mask), expected, rtol=0, atol=1e-12)


def test_topk_keeps_the_k_largest_and_is_softmax_where_there_are_no_more() -> None:
    s, part = logits(), TopK(DIMS, keys=3)
    weights = part(s)
    for row, given in zip(weights.flatten(0, 2), s.flatten(0, 2), strict=True):
        kept = given.topk(3).indices
        expected = torch.zeros(7, dtype=torch.float64)
        if not given.isneginf().all():
            expected[kept] = given[kept].softmax(-1)
        assert torch.allclose(row, expected, atol=1e-14)
    assert torch.equal(TopK(DIMS, keys=9)(s), Softmax(DIMS)(s))
    with pytest.raises(ValueError, match="`keys` must be a whole number of at least 1"):
        TopK(DIMS, keys=0)


def test_sigmoid_divides_by_the_keys_that_a_query_sees() -> None:
    s = torch.tensor([0.3, -1.0, 2.0, -INF, -INF], dtype=torch.float64)[None, None, None]
    expected = [torch.tensor(x).sigmoid().item() for x in (0.3 - 1.0986122886681098, -2.0986122886681098)]
    weights = Sigmoid(DIMS, power=1.0)(s)[0, 0, 0]
    assert weights[:2].tolist() == pytest.approx(expected, rel=1e-6)
    assert torch.equal(weights[:3], Sigmoid(DIMS, power=1.0)(s[..., :3])[0, 0, 0]), "places to come change nothing"
    assert torch.equal(Sigmoid(DIMS, power=0.0)(s), s.sigmoid())


def test_bfloat16_logits_are_normalised_in_float32() -> None:
    s = logits().bfloat16()
    for name in ("sparsemax", "entmax15"):
        assert torch.equal(ALL[name]()(s), ALL[name]()(s.float()).bfloat16())
