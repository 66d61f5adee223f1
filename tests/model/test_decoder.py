"""The traps of what stands around attention: placements, residuals, feed-forward, initialisation, counts."""

from __future__ import annotations

import math

import pytest
import torch

from configs import small
from swapformer.model.dims import Dims
from swapformer.model.norm import LayerNorm, RMSNorm
from swapformer.model.residual import ReZero, Scaled
from swapformer.training.assemble import build_model, count_parameters

DIMS = Dims(d_model=16, num_layers=4, num_heads=2, head_dim=8, max_len=16, vocab_size=5)


def names(overrides: list[str]) -> list[str]:
    return [name for name, _ in build_model(small(overrides), 11).named_parameters()]


def test_pre_norm_has_a_final_norm_and_post_norm_has_no_extra_one() -> None:
    """Xiong et al. 2020, figure 1."""
    assert any("final_norm" in name for name in names(["model/placement=pre"]))
    post = names(["model/placement=post"])
    assert not any("final_norm" in name or "before" in name or "embed_norm" in name for name in post)
    assert sum(".after.weight" in name for name in post) == 2 * 2


def test_layer_norm_divides_by_the_root_of_variance_plus_epsilon() -> None:
    x, norm = torch.randn(3, 16, dtype=torch.float64) * 0.01, LayerNorm(DIMS, eps=1e-3, affine=False)
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-3).sqrt()
    assert torch.allclose(norm(x), expected, atol=1e-14)


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    x, norm = torch.randn(3, 16, dtype=torch.float64), RMSNorm(DIMS, eps=1e-6, affine=False)
    assert torch.allclose(norm(x), x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt(), atol=1e-14)


def test_rms_norm_keeps_its_statistics_in_float32() -> None:
    """Llama's RMSNorm in transformers squares in float32: 2¹⁴ squared is beyond half precision."""
    x = torch.full((1, 16), 300.0, dtype=torch.bfloat16)
    x[0, 0] = 2.0**14
    exact = x.double() / x.double().pow(2).mean(-1, keepdim=True).sqrt()
    assert torch.allclose(RMSNorm(DIMS, eps=1e-6, affine=False)(x).double(), exact, rtol=5e-3)


def test_scaled_residual_is_deepnorms_alpha_for_its_settings() -> None:
    """Wang et al. 2022, table 1: decoder-only α = (2N)^¼."""
    part = Scaled(DIMS, stream=2**0.25, stream_power=0.25, branch=1.0, branch_power=0.0)
    assert part.stream == pytest.approx((2 * 4) ** 0.25)


def test_rezero_is_the_identity_at_initialisation() -> None:
    part, x, update = ReZero(DIMS, start=0.0), torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    assert torch.equal(part.write(x, update), x)


def test_gpt2_scales_initial_weights_and_not_the_forward_pass() -> None:
    """Radford et al. 2019, section 2.3: the scaling is of weights, once, at initialisation."""
    plain, scaled = (build_model(small([f"model/init={init}"]), 11).state_dict() for init in ("normal", "gpt2"))
    for name in plain:
        ends = name.endswith(("attention.out.weight", "ffn.down.weight"))
        factor = 1 / math.sqrt(2 * 2) if ends else 1.0
        assert torch.allclose(scaled[name], plain[name] * factor, atol=1e-9), name


def test_schemes_scale_the_same_standard_normal() -> None:
    normal, xavier = (build_model(small([f"model/init={init}"]), 11).state_dict() for init in ("normal", "xavier"))
    name = "stack.layers.1.ffn.up.weight"
    assert torch.allclose(xavier[name] / math.sqrt(2 / (32 + 128)), normal[name] / 0.02, atol=1e-5)


def test_torchs_scheme_has_the_variance_of_torchs_own_layers() -> None:
    weights = build_model(small(["model/init=torch"]), 11).state_dict()
    linear = torch.nn.Linear(32, 128)
    assert weights["stack.layers.0.ffn.up.weight"].std().item() == pytest.approx(linear.weight.std().item(), rel=0.05)


def test_gated_layers_cost_as_much_as_plain_ones() -> None:
    """Shazeer 2020: width × ⅔ for three matrices."""
    mlp, glu = (
        count_parameters(build_model(small([f"model/ffn={f}", "model.bias=false"]), 11))["total"]
        for f in ("mlp", "glu")
    )
    assert abs(mlp - glu) / mlp < 0.01


def test_a_tied_table_is_counted_once_and_belongs_to_the_embedding() -> None:
    """Press & Wolf 2017: one table for input and output; nanoGPT counts it once."""
    tied, untied = (
        count_parameters(build_model(small([f"model.topology.tie_embeddings={flag}"]), 11))["total"]
        for flag in ("true", "false")
    )
    assert untied - tied == 11 * 32


def test_no_bias_means_none_anywhere() -> None:
    assert not any("bias" in name for name in names(["model.bias=false"]))


def test_the_loss_at_initialisation_is_that_of_a_uniform_guess() -> None:
    """N(0, 0.02), 65 symbols: 4.17–4.20, with ln 65 = 4.174."""
    config = small(["model/size=micro", "model.max_len=64", "model/position=learned", "model.bias=false"])
    model = build_model(config, 65)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(65, (12, 65), generator=generator)
    loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert 4.17 <= loss.item() <= 4.20


def test_seed_zero_is_a_seed() -> None:
    zero, other = (build_model({**small(), "seed": seed}, 11).state_dict() for seed in (0, 1))
    assert torch.equal(
        build_model({**small(), "seed": 0}, 11).state_dict()["embedding.weight"], zero["embedding.weight"]
    )
    assert not torch.equal(zero["embedding.weight"], other["embedding.weight"])


def test_positions_shared_by_layers_are_stored_once() -> None:
    """T5's layers share one table (Raffel et al. 2020, section 2.1)."""
    assert sum("positions" in name for name in names(["model/position=t5", "model.num_layers=4"])) == 1
