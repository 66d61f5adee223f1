"""The traps of norms: ε, parameters, and statistics over places that are not padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from configs import small, wide
from swapformer.model.dims import Dims
from swapformer.model.norm import BatchNorm, DyT, LayerNorm, RMSNorm, ScaleNorm
from swapformer.training.assemble import build_model

DIMS = Dims(d_model=12, num_layers=1, num_heads=2, head_dim=6, max_len=8, vocab_size=5)


def stream(*shape: int) -> Tensor:
    x = 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 1
    return x.requires_grad_()


def agree(one: Tensor, other: Tensor, *leaves: Tensor) -> None:
    """Outputs and gradients of the same leaves."""
    assert torch.allclose(one, other, rtol=0, atol=1e-10)
    probe = torch.randn(one.shape, generator=torch.Generator().manual_seed(3), dtype=one.dtype)
    mine, theirs = (torch.autograd.grad((y * probe).sum(), leaves) for y in (one, other))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_layernorm_puts_epsilon_inside_the_root_and_takes_the_population_variance() -> None:
    """Ba et al. 2016, section 3, and torch's LayerNorm; a known tutorial takes the sample deviation, ε outside."""
    part, x = wide(LayerNorm(DIMS, eps=0.3, affine=True)), stream(2, 3, 12)
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 0.3).sqrt()
    agree(part(x), expected * part.weight + part.bias, x, *part.parameters())


def test_rmsnorm_is_torchs() -> None:
    part, theirs, x = wide(RMSNorm(DIMS, eps=0.2, affine=True)), nn.RMSNorm(12, eps=0.2).double(), stream(2, 3, 12)
    theirs.weight = part.weight  # type: ignore[assignment]
    agree(part(x), theirs(x), x, part.weight)  # type: ignore[arg-type]


def test_scalenorm_divides_by_the_length_and_starts_at_the_root_of_the_width() -> None:
    part, x = ScaleNorm(DIMS, eps=1e-5, affine=True), stream(2, 3, 12)
    assert part.weight is not None
    assert part.weight.tolist() == pytest.approx([12**0.5])
    part = wide(part)
    expected = torch.stack([part.weight * row / sum(v * v for v in row) ** 0.5 for row in x.flatten(0, 1)])
    agree(part(x), expected.view_as(x), x, *part.parameters())
    fixed = ScaleNorm(DIMS, eps=1e-5, affine=False)
    assert not list(fixed.parameters())
    assert torch.allclose(fixed(x).norm(dim=-1), torch.full((2, 3), 12**0.5, dtype=torch.float64))
    assert not ScaleNorm(DIMS, eps=1e-5, affine=True)(torch.zeros(1, 1, 12)).isnan().any()


def test_dyt_is_a_scaled_tanh_of_the_scaled_input() -> None:
    part, x = wide(DyT(DIMS, start=0.5, affine=True)), stream(2, 3, 12)
    expected = torch.tanh(part.alpha * x) * part.weight + part.bias
    agree(part(x), expected, x, *part.parameters())
    assert torch.equal(DyT(DIMS, start=0.5, affine=False)(x), torch.tanh(0.5 * x))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_batchnorm_is_torchs_over_the_places_that_are_not_padding(padded: bool, affine: bool) -> None:
    """torch's BatchNorm1d over the kept places alone; over all places padding would be counted as data."""
    part, theirs = BatchNorm(DIMS, eps=0.1, momentum=0.3, affine=affine), nn.BatchNorm1d(12, 0.1, 0.3, affine=affine)
    wide(part), theirs.double()
    if affine:
        theirs.weight, theirs.bias = part.weight, part.bias  # type: ignore[assignment]
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = padding[2, 1:] = padded
    for seed in range(3):
        x = (stream(3, 5, 12) + seed).detach().requires_grad_()
        kept, expected = part(x, padding if padded else None)[~padding], theirs(x[~padding])
        agree(kept, expected, x, *part.parameters())
    assert torch.allclose(part.running_mean, theirs.running_mean, rtol=0, atol=1e-12)
    assert torch.allclose(part.running_var, theirs.running_var, rtol=0, atol=1e-12)
    part.eval(), theirs.eval()
    agree(part(x, padding)[~padding], theirs(x[~padding]), x)


def test_batchnorm_of_a_model_does_not_see_what_stands_at_padded_places() -> None:
    from swapformer.model.tokens import Tokens

    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0, 6:] = True
    ids = torch.arange(18).view(2, 9) % 7
    other = torch.where(padding, (ids + 3) % 7, ids)
    model = build_model(small(["model/norm=batchnorm", "model/pattern=full"]), 7).double().train()
    one, two = (model(x, Tokens.of(9, padding=padding)) for x in (ids, other))
    assert torch.allclose(one[~padding], two[~padding], rtol=0, atol=1e-12)


def test_batchnorm_survives_a_batch_of_one_place() -> None:
    part, x = BatchNorm(DIMS, eps=1e-5, momentum=0.1, affine=True), torch.randn(1, 1, 12, requires_grad=True)
    part(x).sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert bool(part.running_var.isfinite().all())


def test_statistics_in_bfloat16_are_taken_in_float32() -> None:
    x = torch.randn(2, 3, 12).bfloat16() * 100
    part = RMSNorm(DIMS, eps=1e-6, affine=False)
    assert torch.equal(part(x), part(x.float()).bfloat16())


def test_peri_norms_the_embeddings_too_and_post_has_no_final_norm() -> None:
    counts = {}
    for option in ("pre", "post", "sandwich", "inside", "peri"):
        model = build_model(small([f"model/placement={option}"]), 7)
        counts[option] = sum(isinstance(module, LayerNorm) for module in model.modules())
    assert counts == {"pre": 5, "post": 4, "sandwich": 9, "inside": 5, "peri": 10}
    model = build_model(small(["model/placement=peri"]), 7).double()
    seen: list[Tensor] = []
    model.stack.layers[0].register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    ids = torch.arange(6)[None]
    model(ids)
    assert torch.allclose(seen[0], functional.layer_norm(model.embedding(ids), (32,)), atol=1e-12)
