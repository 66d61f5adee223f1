"""How the variance of the stream grows with depth, by initialisation: derived for linear branches, held to models.

A branch W₂W₁ whose weights are independent with variances s₂² and s₁² gives E‖W₂W₁x‖² = (D s₂²)(F s₁²) ‖x‖² = g ‖x‖²,
uncorrelated with x: reading fan_in inputs adds as many variances, and so E‖x + W₂W₁x‖² = (1 + g) ‖x‖². A single token
attends to itself, so that an attention is the branch W_O W_V, with F = D.
"""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch

from configs import small
from swapformer.model.taps import record
from swapformer.model.topology import Topology
from swapformer.training.assemble import build_model

D, F = 64, 256
LINEAR = [
    *("model/activation=identity", "model/position=none", "model.bias=false", "model.topology.tie_embeddings=false"),
    *(f"model.d_model={D}", f"model.ffn.width={F}", "model.num_heads=4"),
]
VOCABULARY, SEEDS = 256, 16
XAVIER = {"attention": 1.0, "ffn": 16 / 25}
"""g after Xavier: D · 2/(D + D) twice, and D · 2/(D + F) times F · 2/(D + F) with F = 4D."""


def growth(layers: int, *overrides: str) -> float:
    """E‖x_L‖² / E‖x_0‖², a mean over models and over tokens that stand alone."""
    sizes: list[tuple[float, float]] = []
    for seed in range(SEEDS):
        config = small([*LINEAR, f"model.num_layers={layers}", *overrides])
        model = build_model({**config, "seed": seed}, VOCABULARY).double().eval()
        sizes.append(first_and_last(model))
    first, last = (fmean(each) for each in zip(*sizes, strict=True))
    return last / first


def first_and_last(model: Topology) -> tuple[float, float]:
    with torch.no_grad(), record(model, "*.0.hook_resid_pre", "*.hook_resid_post") as seen:
        model(torch.arange(VOCABULARY)[:, None])
    values = [each.square().mean() for each in seen.values()]
    return float(values[0]), float(values[-1])


def test_without_a_norm_xavier_multiplies_the_variance_by_3_28_a_layer() -> None:
    a, f = XAVIER["attention"], XAVIER["ffn"]
    assert (1 + a) * (1 + f) == pytest.approx(3.28)
    assert math.log10(3.28**24) > 12, "over 24 layers"
    assert growth(3, "model/norm=none", "model/init=xavier") == pytest.approx(3.28**3, rel=0.1)


@pytest.mark.parametrize("layers", [4, 16])
def test_branches_scaled_by_depth_multiply_it_by_at_most_e_to_the_sum_of_gains(layers: int) -> None:
    """(1 + a/L)^L (1 + f/L)^L < e^(a + f), however deep: the forward factor 1/√L that the chapter means."""
    a, f = XAVIER["attention"], XAVIER["ffn"]
    right = ((1 + a / layers) * (1 + f / layers)) ** layers
    assert right < math.exp(a + f)
    found = growth(layers, "model/norm=none", "model/init=xavier", "model/residual=scaled")
    assert found == pytest.approx(right, rel=0.1)


@pytest.mark.parametrize("layers", [4, 16])
def test_t_fixup_multiplies_it_by_less_than_a_fifth_more(layers: int) -> None:
    """Both matrices of a branch have the factor (9L)^(−1/4), so g/√(9L)² = g/(9L) (Huang et al. 2020, section 4)."""
    a, f = (each / (9 * layers) for each in XAVIER.values())
    right = ((1 + a) * (1 + f)) ** layers
    assert 1 < right < math.exp((1 + 16 / 25) / 9) < 1.21
    assert growth(layers, "model/norm=none", "model/init=t_fixup") == pytest.approx(right, rel=0.03)


@pytest.mark.parametrize("preset", ["+preset=fixup", "model/residual=rezero"])
def test_fixup_and_rezero_leave_the_stream_as_it_is(preset: str) -> None:
    norm = [] if "fixup" in preset else ["model/norm=none", "model/init=xavier"]
    inner = ["model/activation@model.activation.inner=identity"] if "fixup" in preset else []
    overrides = [each for each in LINEAR if not (inner and each == "model/activation=identity")]
    config = small([preset, *norm, *overrides, *inner, "model.num_layers=6"])
    first, last = first_and_last(build_model(config, VOCABULARY).double().eval())
    assert last == first


@pytest.mark.parametrize(("layers", "init"), [(4, "xavier"), (16, "xavier"), (4, "gpt2"), (16, "gpt2")])
def test_behind_pre_norm_the_variance_grows_by_a_sum_not_a_product(layers: int, init: str) -> None:
    """Every branch reads a variance of 1, so L layers add L(a + f); GPT-2's add the same at any L.

    Its ends are divided by √(2L): a = (D·.0004)² / 2L and f = (D·.0004)(F·.0004) / 2L, to embeddings of variance .0004.
    """
    if init == "xavier":
        start, added = 2 / (VOCABULARY + D), layers * sum(XAVIER.values())
    else:
        start, added = 0.0004, (D * 0.0004) * (D * 0.0004 + F * 0.0004) / 2
    found = growth(layers, "model/placement=pre", f"model/init={init}")
    assert found == pytest.approx((start + added) / start, rel=0.05)


def squared_gradients(layers: int, *overrides: str) -> list[float]:
    """E‖∂L/∂W₂‖² of the feed-forward layer of each layer, for a loss Σ r·x_L with r ~ N(0, 1): means over models."""
    found: list[list[float]] = []
    for seed in range(SEEDS):
        config = small([*LINEAR, f"model.num_layers={layers}", *overrides])
        model = build_model({**config, "seed": seed}, VOCABULARY).double().eval()
        with record(model, f"*.{layers - 1}.hook_resid_post") as seen:
            model(torch.arange(VOCABULARY)[:, None])
        (last,) = seen.values()
        generator = torch.Generator().manual_seed(seed)
        (last * torch.randn(last.shape, generator=generator, dtype=last.dtype)).sum().backward()
        found.append([float(layer.ffn.down.weight.grad.square().sum()) for layer in model.stack.layers])
    return [fmean(each) for each in zip(*found, strict=True)]


def test_without_a_norm_xaviers_gradients_are_alike_in_all_layers_and_grow_with_depth_as_the_stream_does() -> None:
    """∂L/∂W₂ = δ hᵀ. Backwards a layer multiplies E‖δ‖² by (1 + a)(1 + f) too, for a product's g is that of its
    transpose; so what h has gained below layer l, δ gains above it, and the product is the same for all l:
    E‖∂L/∂W₂‖² = D F s₁² (1 + a) ((1 + a)(1 + f))^(L−1) Σ ‖x_0‖².
    """
    a, f = XAVIER["attention"], XAVIER["ffn"]
    start = VOCABULARY * D * 2 / (VOCABULARY + D)
    for layers in (1, 3):
        right = D * F * 2 / (D + F) * (1 + a) * ((1 + a) * (1 + f)) ** (layers - 1) * start
        found = squared_gradients(layers, "model/norm=none", "model/init=xavier")
        assert found == pytest.approx([right] * layers, rel=0.15)


def test_branches_scaled_by_depth_keep_gradients_alike_and_bounded() -> None:
    """With g/L in place of g, and one factor 1/L more for the branch that δ goes through."""
    layers = 8
    a, f = (each / layers for each in XAVIER.values())
    start = VOCABULARY * D * 2 / (VOCABULARY + D)
    right = D * F * 2 / (D + F) * (1 + a) * ((1 + a) * (1 + f)) ** (layers - 1) * start / layers
    found = squared_gradients(layers, "model/norm=none", "model/init=xavier", "model/residual=scaled")
    assert found == pytest.approx([right] * layers, rel=0.15)
