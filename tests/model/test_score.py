"""Scores and norms of queries and keys by their definitions, one number at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from configs import every_part, small, wide
from swapformer.model.dims import Dims
from swapformer.model.qk_norm import L2, HeadRMSNorm, QKNorm, WidthRMSNorm
from swapformer.model.score import Additive, Bilinear, Cosine, Dot, Gaussian, LearnedDot, Score, Softcap
from swapformer.training.assemble import build_model

DIMS = Dims(d_model=12, num_layers=1, num_heads=3, head_dim=4, max_len=8, vocab_size=5)
Pair = Callable[[Score, int, Tensor, Tensor], Tensor]
ROOT = 0.5  # 1/√E


def length(x: Tensor) -> Tensor:
    return sum(a * a for a in x) ** 0.5  # type: ignore[return-value]


def product(q: Tensor, k: Tensor) -> Tensor:
    return sum(a * b for a, b in zip(q, k, strict=True))  # type: ignore[return-value]


# The logit of head h for one query and one key, written from the paper that the class names.
DEFINITIONS: dict[str, tuple[Callable[[], Score], Pair]] = {
    "dot": (lambda: Dot(DIMS, exponent=-0.5), lambda _s, _h, q, k: ROOT * product(q, k)),
    "dot_unscaled": (lambda: Dot(DIMS, exponent=0.0), lambda _s, _h, q, k: product(q, k)),
    "dot_learned": (lambda: LearnedDot(DIMS, exponent=-0.5), lambda s, h, q, k: s.scale[h, 0, 0] * product(q, k)),  # type: ignore[index]
    "gaussian": (
        lambda: Gaussian(DIMS, exponent=-0.5),
        lambda _s, _h, q, k: -ROOT * sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / 2,
    ),
    "softcap": (
        lambda: Softcap(DIMS, exponent=-0.5, cap=1.5),
        lambda _s, _h, q, k: 1.5 * torch.tanh(ROOT * product(q, k) / 1.5),
    ),
    "cosine": (
        lambda: Cosine(DIMS, start=10.0, eps=1e-6),
        lambda s, h, q, k: s.scale[h, 0, 0] * product(q, k) / (length(q) * length(k)),  # type: ignore[index]
    ),
    "additive": (
        lambda: Additive(DIMS, exponent=0.0),
        lambda s, h, q, k: sum(s.weigh.weight[h, 0, e] * torch.tanh(q[e] + k[e]) for e in range(4)),
    ),
    "bilinear": (
        lambda: Bilinear(DIMS, exponent=0.0),
        lambda s, h, q, k: sum(q[d] * s.mix.weight[h, d, e] * k[e] for d in range(4) for e in range(4)),
    ),
}


def test_every_score_is_tested_here() -> None:
    assert {option for slot, option in every_part() if slot == "score"} == set(DEFINITIONS)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_score_is_its_definition(name: str) -> None:
    make, definition = DEFINITIONS[name]
    part = make()
    wide(part)
    generator = torch.Generator().manual_seed(2)
    q, k = (torch.randn(2, 3, n, 4, generator=generator, dtype=torch.float64).requires_grad_() for n in (5, 6))
    logits = part.scale * part.raw(q, k)
    expected = torch.stack(
        [
            definition(part, h, q[b, h, i], k[b, h, j])
            for b in range(2)
            for h in range(3)
            for i in range(5)
            for j in range(6)
        ]
    ).view(2, 3, 5, 6)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
    probe = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    leaves = [q, k, *part.parameters()]
    mine, theirs = (torch.autograd.grad((y * probe).sum(), leaves) for y in (logits, expected))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_learned_factors_start_where_their_settings_say() -> None:
    assert LearnedDot(DIMS, exponent=-0.5).scale.flatten().tolist() == [0.5] * 3  # type: ignore[union-attr]
    assert Cosine(DIMS, start=10.0, eps=1e-6).scale.flatten().tolist() == [10.0] * 3  # type: ignore[union-attr]


def heads() -> tuple[Tensor, Tensor, Tensor]:
    """q of three heads, k and v of one, of five places."""
    generator = torch.Generator().manual_seed(3)
    return tuple(3 * torch.randn(2, n, 5, 4, generator=generator, dtype=torch.float64) for n in (3, 1, 1))  # type: ignore[return-value]


@pytest.mark.parametrize("values", [True, False])
def test_rms_norm_of_heads_and_of_the_full_width(values: bool) -> None:
    given = heads()
    by_head, by_width = (
        wide(make(DIMS, eps=0.1, affine=True, values=values).sized(1)) for make in (HeadRMSNorm, WidthRMSNorm)
    )
    for part, whole in ((by_head, False), (by_width, True)):
        weights = [part.query, part.key, part.value]
        for x, y, weight, normed in zip(given, part(*given), weights, (True, True, values), strict=True):
            if not normed:
                assert torch.equal(x, y)
                assert weight is None
                continue
            for b in range(2):
                for t in range(5):
                    rows = [x[b, :, t].flatten()] if whole else list(x[b, :, t])
                    expected = torch.cat([r / (r.square().mean() + 0.1).sqrt() * weight for r in rows])
                    assert torch.allclose(y[b, :, t].flatten(), expected, atol=1e-12)


@pytest.mark.parametrize("values", [True, False])
def test_l2_gives_henrys_logits_with_an_unscaled_product(values: bool) -> None:
    """Henry et al. 2020, eq. 3: g · q̂ · k̂."""
    q, k, v = heads()
    part = L2(DIMS, start=7.0, eps=1e-6, values=values).double()
    q2, k2, v2 = part(q, k, v)
    logits = Dot(DIMS, exponent=0.0).raw(q2, k2)
    assert torch.allclose(logits, 7.0 * nn.functional.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1))
    assert torch.allclose(v2.norm(dim=-1), torch.ones_like(v2[..., 0])) is values


def test_a_norm_of_queries_and_keys_comes_before_rotation_so_distances_still_rule() -> None:
    """With each norm, the logits of a rotary model depend on differences of positions alone."""
    from swapformer.model.tokens import Tokens

    ids = torch.arange(10)[None] % 7
    for option in ("l2", "rmsnorm", "rmsnorm_width"):
        model = build_model(small([f"model/qk_norm={option}", "model/attention=gqa"]), 7).double()
        assert torch.allclose(model(ids), model(ids, Tokens.of(10, start=100)), atol=1e-10)


def test_without_parameters_and_for_any_number_of_key_heads() -> None:
    for make in (HeadRMSNorm, WidthRMSNorm):
        assert not list(make(DIMS, eps=1e-6, affine=False, values=True).parameters())
    sizes = [p.numel() for p in WidthRMSNorm(DIMS, eps=1e-6, affine=True, values=True).sized(2).parameters()]
    assert sizes == [12, 8, 8]
    assert QKNorm(DIMS).sized(1)(*heads())[0].shape == (2, 3, 5, 4)
    assert math.isclose(L2(DIMS, start=7.0, eps=1e-6, values=False).gain.item(), 7.0)
