"""Initialisations: the numbers of the papers, and what they are for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from configs import small
from swapformer.interface import Interface
from swapformer.model.dims import Dims, Side, deepnorm_factors
from swapformer.model.init import Orthogonal, initialise
from swapformer.model.layers import Linear, Role, StackedLinear
from swapformer.model.norm import Norm
from swapformer.random import stream
from swapformer.training.assemble import build_model

N, D = 6, 64
SIZES = [f"model.num_layers={N}", f"model.d_model={D}", "model.num_heads=4", "model.ffn.width=256"]
UNTIED = "model.topology.tie_embeddings=false"


def deviations(*overrides: str) -> dict[str, float]:
    """Root mean square of the weights of layer 0, of the table and of the head, by the last words of their names."""
    model = build_model(small([*SIZES, UNTIED, *overrides]), 251)
    return {
        name.removeprefix("stack.layers.0.").removesuffix(".weight"): p.square().mean().sqrt().item()
        for name, p in model.named_parameters()
        if p.ndim == 2 and (name.startswith("stack.layers.0.") or not name.startswith("stack"))
    }


def near(value: float) -> object:
    return pytest.approx(value, rel=0.03)


SQUARE, FFN = math.sqrt(2 / (D + D)), math.sqrt(2 / (D + 256))


def test_kaiming_counts_the_inputs() -> None:
    std = deviations("model/init=kaiming")
    assert std["attention.query"] == near(math.sqrt(2 / D))
    assert (std["ffn.up"], std["ffn.down"]) == (near(math.sqrt(2 / D)), near(math.sqrt(2 / 256)))
    assert std["embedding"] == near(0.02)


def test_small_gives_attention_the_variance_of_the_feed_forward_layer() -> None:
    """Nguyen & Salazar 2019, section 2.2: N(0, 2/(5d)), Xavier's for a matrix of [4d, d]."""
    std = deviations("model/init=small")
    assert all(value == near(FFN) for value in std.values())


def sized(**sizes: Any) -> Dims:
    """Sizes of a stack, where only its depth and side matter."""
    return Dims(
        **{"d_model": 4, "num_layers": 6, "num_heads": 1, "head_dim": 4, "max_len": 1, "vocab_size": 2, **sizes}
    )


def test_deepnorm_has_the_numbers_of_table_1() -> None:
    """Wang et al. 2022, arXiv:2203.00555."""
    assert deepnorm_factors(sized()) == (pytest.approx(12**0.25), pytest.approx(48**-0.25))
    assert deepnorm_factors(sized(side=Side.ENCODER, num_layers=18)) == (
        pytest.approx(36**0.25),
        pytest.approx(144**-0.25),
    )
    both = {"encoder_layers": 3, "decoder_layers": 5}
    assert deepnorm_factors(sized(side=Side.ENCODER, num_layers=3, **both)) == (
        pytest.approx(0.81 * (81 * 5) ** (1 / 16)),
        pytest.approx(0.87 * (81 * 5) ** (-1 / 16)),
    )
    assert deepnorm_factors(sized(num_layers=5, **both)) == (pytest.approx(15**0.25), pytest.approx(60**-0.25))


@pytest.mark.parametrize("init", ["deepnorm", "t_fixup"])
def test_either_side_of_an_encoder_decoder_has_its_own_factors(init: str) -> None:
    """Wang et al. 2022, table 1; Huang et al. 2020, section 4. By the ratio of the widths of two value matrices."""
    norm = [] if init == "deepnorm" else ["model/norm=none"]
    config = small(
        [*SIZES, "model/topology=encoder_decoder", "model.num_layers=5", "model.encoder.num_layers=3",
         f"model/init={init}", f"model/residual={'deepnorm' if init == 'deepnorm' else 'add'}", *norm]
    )  # fmt: skip
    model = build_model(config, Interface(251, source=True))
    weights = dict(model.named_parameters())
    values = {name: weight.detach() for name, weight in weights.items() if "value.weight" in name}
    widths = [
        torch.stack([weight for name, weight in values.items() if name.startswith(f"{side}.")]).std()
        for side in ("encoder", "stack")
    ]
    expected = {
        "deepnorm": (0.87 * (81 * 5) ** (-1 / 16), 60**-0.25),
        "t_fixup": (0.67 * 3**-0.25, 45**-0.25),
    }[init]
    assert float(widths[0] / widths[1]) == pytest.approx(expected[0] / expected[1], rel=0.02)
    if init == "deepnorm":
        streams = [stack.layers[0].block.sublayer(0).residual.stream for stack in (model.encoder, model.stack)]
        assert streams == [pytest.approx(0.81 * (81 * 5) ** (1 / 16)), pytest.approx(15**0.25)]


def test_deepnorm_scales_values_outputs_and_feed_forward_weights_alone() -> None:
    """Wang et al. 2022: β is the gain of V, output and feed-forward weights, 1 that of Q and K."""
    std, beta = deviations("model/init=deepnorm"), (8 * N) ** -0.25
    for name in ("attention.query", "attention.key"):
        assert std[name] == near(SQUARE)
    for name in ("attention.value", "attention.out"):
        assert std[name] == near(beta * SQUARE)
    for name in ("ffn.up", "ffn.down"):
        assert std[name] == near(beta * FFN)


def test_the_preset_of_deepnorm_scales_the_stream_by_alpha_in_post_norm() -> None:
    """Wang et al. 2022: LayerNorm(α·x + f(x))."""
    model = build_model(small([*SIZES, "+preset=deepnorm"]), 11)
    sublayer = model.stack.layers[0].block.sublayer(0)
    assert sublayer.residual.stream == pytest.approx((2 * N) ** 0.25)
    assert sublayer.after is not None
    assert model.stack.final_norm is None


def test_fixup_zeroes_the_ends_and_scales_the_rest_of_a_branch() -> None:
    """Zhang et al. 2019, section 3: L = 2 · layers branches, m = 2 matrices, so the others shrink by L^(−1/2)."""
    std = deviations("model/init=fixup", "model/norm=none")
    assert std["attention.out"] == std["ffn.down"] == std["head"] == 0
    for name in ("attention.query", "attention.key", "attention.value", "ffn.up"):
        assert std[name] == near(math.sqrt(2 / D) * (2 * N) ** -0.5)
    four = deviations("model/init=fixup", "model/norm=none", "model.init.attention_matrices=4")
    assert four["attention.value"] == near(math.sqrt(2 / D) * (2 * N) ** (-1 / 6))
    assert std["embedding"] == near(D**-0.5)


def test_the_preset_of_fixup_has_multipliers_no_norm_and_starts_at_chance() -> None:
    """Zhang et al. 2019, section 3, rules 1 and 3."""
    model = build_model(small([*SIZES, "+preset=fixup"]), 11)
    alphas = [p for name, p in model.named_parameters() if name.endswith("residual.alpha")]
    assert [alpha.tolist() for alpha in alphas] == [[1.0]] * 2 * N
    assert not any(module.rescales for module in model.modules() if isinstance(module, Norm))
    assert torch.equal(model(torch.arange(5)[None]), torch.zeros(1, 5, 11)), "a zero head: every symbol is as likely"


def test_t_fixup_has_the_numbers_of_its_paper() -> None:
    """Huang et al. 2020, section 4: (9N)^(−1/4) in the decoder, 0.67 N^(−1/4) in the encoder, tables N(0, 1/d)."""
    nine = (9 * N) ** -0.25
    for topology, factor in (("decoder", nine), ("encoder", 0.67 * N**-0.25)):
        std = deviations("model/init=t_fixup", f"model/topology={topology}", "model/norm=none", "model/pattern=causal")
        assert std["embedding"] == near(nine * D**-0.5)
        assert std["attention.query"] == near(SQUARE)
        assert (std["attention.value"], std["attention.out"]) == (near(factor * SQUARE), near(factor * SQUARE))
        assert (std["ffn.up"], std["ffn.down"]) == (near(factor * FFN), near(factor * FFN))


def test_a_zero_branch_starts_as_the_identity_and_still_learns() -> None:
    model = build_model(small(["model/init=zero_branch", "model/norm=none"]), 11).double()
    ids = torch.arange(6)[None]
    embedded = model.embedding(ids)
    assert torch.equal(model(ids), embedded @ model.embedding.weight.T)
    model(ids).square().sum().backward()
    assert bool(model.stack.layers[0].ffn.down.weight.grad.any())


def test_a_low_rank_layer_with_zero_ends_still_gets_gradients() -> None:
    """Were both factors of W₂ zero, neither would ever learn."""
    model = build_model(small(["model/init=zero_branch", "model/ffn=low_rank"]), 11).double()
    model(torch.arange(6)[None]).square().sum().backward()
    assert bool(model.stack.layers[0].ffn.down[1].weight.grad.any())


def test_orthogonal_is_torchs_for_the_same_noise() -> None:
    dims = Dims(d_model=4, num_layers=1, num_heads=1, head_dim=4, max_len=1, vocab_size=2)
    for shape in ((4, 4), (3, 7), (7, 3)):
        model = nn.Sequential(Linear(shape[1], shape[0], Role.QUERY, bias=False))
        initialise(model, Orthogonal(dims, gain=1.5, table_std=0.02), 3)
        expected = nn.init.orthogonal_(torch.empty(shape), gain=1.5, generator=stream("weight", 3, "0.weight"))
        assert torch.allclose(model[0].weight, expected, atol=1e-6)
        weight = model[0].weight
        gram = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
        assert torch.allclose(gram, 1.5**2 * torch.eye(min(shape)), atol=1e-5)


def test_stacked_matrices_have_a_stream_and_a_fan_each() -> None:
    """The first of two experts starts as the first of eight, and torch's fan of [E, in, out] plays no part."""
    dims = Dims(d_model=4, num_layers=1, num_heads=1, head_dim=4, max_len=1, vocab_size=2)
    starts = []
    for slices in (2, 8):
        model = nn.Sequential(StackedLinear(slices, 4, 6, Role.FFN_IN, bias=False))
        initialise(model, Orthogonal(dims, gain=1.0, table_std=0.02), 3)
        starts.append(model[0].weight)
    assert torch.equal(starts[0], starts[1][:2])
    assert torch.allclose(starts[1].mT @ starts[1], torch.eye(4).expand(8, 4, 4), atol=1e-5)
    assert not torch.equal(starts[1][0], starts[1][1])
    std = build_model(small(["model/ffn=moe", "model/init=kaiming", "model.d_model=64"]), 11)
    up = std.stack.layers[0].ffn.up.weight
    assert up.square().mean().sqrt().item() == near(math.sqrt(2 / 64))


def test_natural_queries_and_keys_have_products_of_variance_one_without_scaling() -> None:
    """Chapter exercise 1.12: the variance of q·k, that 1/√d repairs afterwards, is 1 from the start."""
    x = torch.randn(1, 400, D, generator=torch.Generator().manual_seed(1))
    variance = {}
    for init in ("natural", "xavier"):
        model = build_model(small([*SIZES, f"model/init={init}", "model/score=dot_unscaled"]), 11)
        attention = model.stack.layers[0].attention
        q, k = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (attention.query, attention.key))
        variance[init] = (attention.score.scale * attention.score.raw(q, k)).var().item()
    assert variance["natural"] == pytest.approx(1, rel=0.1)
    assert variance["xavier"] == pytest.approx(16, rel=0.1)
