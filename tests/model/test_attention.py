"""The traps of attention: sharing, masks, kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small
from swapformer.model.attention import MultiHead, multihead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.ffn import dense
from swapformer.model.kernel import SDPA, Auto, Kernel, Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Pattern, Window
from swapformer.model.position import ALiBi, Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.training.assemble import build_model, count_parameters

DIMS = Dims(d_model=32, num_layers=1, num_heads=4, head_dim=8, max_len=64, vocab_size=5, bias=False)


def attention(
    dims: Dims = DIMS, *, num_kv_heads: int | None = None, kernel: Kernel | None = None, pattern: Pattern | None = None
) -> MultiHead:
    part = MultiHead(
        dims,
        score=Dot(dims, exponent=-0.5),
        normaliser=Softmax(dims),
        pattern=pattern or Causal(dims),
        kernel=kernel or Reference(dims),
        qk_norm=QKNorm(dims),
        extension={},
        num_kv_heads=num_kv_heads,
    ).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return part


@pytest.mark.parametrize("settings", [[], ["model/attention=gqa"], ["model/ffn=glu"]], ids=str)
def test_an_input_that_autocast_casts_once_gives_the_bits_of_one_cast_for_each_product(
    settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = build_model(small(["model/position=rope", *settings]), 11), torch.randint(11, (2, 12))

    def logits() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            out: Tensor = model(ids, Tokens.of(12))
        return out

    once = logits()
    for module in (multihead, dense):
        monkeypatch.setattr(module, "lowered", lambda x: x)
    assert torch.equal(logits(), once)


def by_loop(part: MultiHead, x: Tensor, groups: int) -> Tensor:
    """Causal attention by its definition, one number at a time."""
    rows, length, _ = x.shape
    heads, head_dim = 4, 8
    q, k, v = (layer(x) for layer in (part.query, part.key, part.value))
    mixed = torch.zeros(rows, length, heads * head_dim, dtype=x.dtype)
    for b in range(rows):
        for h in range(heads):
            g = h // (heads // groups)
            for i in range(length):
                logits = [
                    sum(q[b, i, h * 8 + e] * k[b, j, g * 8 + e] for e in range(head_dim)) / head_dim**0.5
                    for j in range(i + 1)
                ]
                weights = torch.stack(logits).exp()
                weights = weights / weights.sum()
                for e in range(head_dim):
                    mixed[b, i, h * 8 + e] = sum(weights[j] * v[b, j, g * 8 + e] for j in range(i + 1))
    return part.out(mixed)


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_attention_equals_its_definition_with_interleaved_groups(groups: int) -> None:
    """Ainslie et al. 2023, figure 2: neighbouring query heads share a head of keys, as transformers' repeat_kv does."""
    part, x = attention(num_kv_heads=groups), torch.randn(1, 5, 32, dtype=torch.float64)
    tokens = Tokens.of(5)
    with torch.no_grad():
        out = part(x, Context(tokens, tokens, torch.float64), Position(DIMS))
        assert torch.allclose(out, by_loop(part, x, groups), atol=1e-10)


@pytest.mark.parametrize(("groups", "expected"), [(8, 786_432), (4, 524_288), (1, 327_680)])
def test_projections_of_shared_heads_have_the_papers_sizes(groups: int, expected: int) -> None:
    """d = 512, h = 8: W_q stays d×d, W_k and W_v are d×(g·d_k) (Ainslie et al. 2023)."""
    part = attention(Dims(512, 1, 8, 64, 16, 5, bias=False), num_kv_heads=groups)
    assert sum(layer.weight.numel() for layer in (part.query, part.key, part.value)) == expected


@pytest.mark.parametrize("heads", [1, 2, 8, 32])
def test_the_number_of_heads_changes_no_parameter_count(heads: int) -> None:
    """Vaswani et al. 2017, section 3.2.2: d_k = d_model/h, so that h heads cost what one does."""
    counts = count_parameters(build_model(small([f"model.num_heads={heads}", "model/position=alibi"]), 11))
    assert counts == count_parameters(build_model(small(["model/position=alibi"]), 11))


@pytest.mark.parametrize("groups", [3, 8])
def test_groups_that_do_not_divide_the_heads_are_refused(groups: int) -> None:
    with pytest.raises(ValueError, match=r"`num_kv_heads` must divide `num_heads`.*\[1, 2, 4\]"):
        attention(num_kv_heads=groups)


@pytest.mark.parametrize("pattern", [Causal(DIMS), Full(DIMS), Window(DIMS, before=2, after=1)])
@pytest.mark.parametrize("position", [Position(DIMS), ALiBi(DIMS, decay=8.0)], ids=["none", "alibi"])
@pytest.mark.parametrize("queries", [1, 3, 7])
def test_kernels_agree_when_there_are_fewer_queries_than_keys(
    pattern: Pattern, position: Position, queries: int
) -> None:
    """torch's `is_causal` is aligned to the top left: wrong for the last queries of a longer sequence."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, n, 8, generator=generator, dtype=torch.float64) for n in (queries, 7, 7))
    query, key = Tokens.of(queries, start=7 - queries), Tokens.of(7)
    plan = attention(pattern=pattern).plan
    outs: list[Tensor] = []
    for kernel in (Reference(DIMS), SDPA(DIMS, backend="auto"), SDPA(DIMS, backend="math"), Auto(DIMS)):
        outs.append(kernel(q, k, v, plan, position, Context(query, key, torch.float64), 0.0))
    assert all(torch.allclose(out, outs[0], atol=1e-12) for out in outs[1:])


@pytest.mark.parametrize("kernel", [Reference(DIMS), SDPA(DIMS, backend="auto")], ids=["reference", "sdpa"])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(kernel: Kernel) -> None:
    padding = torch.tensor([[True, True, False, False]])
    tokens = Tokens.of(4, padding=padding)
    q, k, v = (torch.randn(1, 4, 4, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    out = kernel(q, k, v, attention().plan, Position(DIMS), Context(tokens, tokens, torch.float64), 0.0)
    assert torch.equal(out[:, :, :2], torch.zeros(1, 4, 2, 8, dtype=torch.float64))
    out.sum().backward()  # type: ignore[no-untyped-call]
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (q, k, v))


def test_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    """torch's scaled_dot_product_attention drops whatever dropout_p says, in evaluation too."""
    for kernel in ("reference", "sdpa"):
        model = build_model(small(["model.dropout=0.5", f"model/kernel={kernel}"]), 11)
        ids = torch.arange(10)[None]
        model.eval()
        assert torch.equal(model(ids), model(ids))
        model.train()
        assert not torch.equal(model(ids), model(ids))


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of auto, math"):
        SDPA(DIMS, backend="warp")


def test_reference_weights_sum_to_one_over_what_the_pattern_allows() -> None:
    part: Any = attention(pattern=Window(DIMS, before=1, after=0))
    tokens = Tokens.of(6)
    weights = part.weights(
        torch.randn(1, 6, 32, dtype=torch.float64), Context(tokens, tokens, torch.float64), Position(DIMS)
    )
    assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 6, dtype=torch.float64))
    assert bool((weights[0, 0].triu(1) == 0).all())
    assert bool((weights[0, 0].tril(-2) == 0).all())
