"""Sparsity of hidden units: as a loop over numbers in float64, and of units that are dead by construction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small, wide
from padded_batches import PaddedBatches
from swapformer.conformance.subject import VOCABULARY
from swapformer.model.taps import record
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes import activation_sparsity
from swapformer.probes.activation_sparsity import ActivationSparsity
from swapformer.results.shapes import Finding, Histogram, Profile
from swapformer.training.assemble import build_model

SIZES = ["model.num_layers=2", "model.d_model=8", "model.num_heads=2", "model/norm=none", "model.ffn.width=10"]
PADDING = torch.tensor([[False] * 5, [False, False, True, True, True], [False] * 5])
TASK: Any = PaddedBatches(PADDING)


def model_of(*overrides: str) -> Topology:
    """A model with large weights, so that its units differ, the first of each layer never firing with relu."""
    found: Topology = wide(build_model(small([*SIZES, *overrides]), VOCABULARY)).eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
        layers: Any = found.stack.layers
        for layer in layers:
            layer.ffn.up.weight[0] = 0.0
            layer.ffn.up.bias[0] = -1.0
    return found


def measured(model: Topology, **settings: Any) -> Finding:
    with torch.no_grad():
        return ActivationSparsity(**{"batches": 2, "threshold": 0.0, "share": 0.95} | settings).measure(model, TASK)


def by_hand(model: Topology, share: float) -> list[dict[str, float]]:
    """relu(W₁x + b₁) of each token, number by number, from what the layer reads."""
    found = []
    layers: Any = model.stack.layers
    for number, layer in enumerate(layers):
        rows: list[list[list[float]]] = []
        for index in range(2):
            batch = TASK.batch(index)
            with torch.no_grad(), record(model, f"blocks.{number}.hook_resid_mid") as seen:
                model(batch.inputs, Tokens.of(5, padding=PADDING))
            (stream,) = seen.values()
            for row in range(3):
                tokens: list[list[float]] = []
                for place in range(5):
                    if not PADDING[row, place]:
                        x: Tensor = stream[row, place]
                        sums = [
                            float((w @ x + b).detach())
                            for w, b in zip(layer.ffn.up.weight, layer.ffn.up.bias, strict=True)
                        ]
                        tokens.append([max(value, 0.0) for value in sums])
                rows.append(tokens)
        every = [token for tokens in rows for token in tokens]
        often = [sum(token[unit] > 0 for token in every) / len(every) for unit in range(10)]
        carried = []
        for token in every:
            left, count, reached = sorted(token, reverse=True), 0, 0.0
            while left and sum(token) > 0 and reached < share * sum(token) - 1e-9:
                reached, count = reached + left.pop(0), count + 1
            carried.append(count / 10)
        touched = [sum(any(token[unit] > 0 for token in tokens) for unit in range(10)) / 10 for tokens in rows]
        found.append({
            "density": sum(often) / 10,
            "sequence": sum(touched) / len(touched),
            "dead": sum(value == 0 for value in often) / 10,
            "rare": sum(value < 0.01 for value in often) / 10,
            "frequent": sum(value > 0.5 for value in often) / 10,
            "carriers": sum(carried) / len(carried),
        })  # fmt: skip
    return found


def require_loops(share: float) -> None:
    model = model_of("model/activation=relu")
    metrics, expected = measured(model, share=share).metrics, by_hand(model, share)
    assert expected[0]["dead"] >= 0.1 and expected[0]["density"] not in (0, 1), "the comparison compares something"
    for kind, value in expected[0].items():
        assert metrics[f"probe/sparsity/{kind}_first"] == pytest.approx(value, abs=1e-9), kind
        assert metrics[f"probe/sparsity/{kind}_by_layer@2"] == pytest.approx(expected[1][kind], abs=1e-9), kind
        assert metrics[f"probe/sparsity/{kind}_last"] == metrics[f"probe/sparsity/{kind}_by_layer@2"]
        assert metrics[f"probe/sparsity/{kind}"] == pytest.approx((value + expected[1][kind]) / 2, abs=1e-9), kind


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_every_statistic_is_that_of_a_loop_over_tokens_and_units(share: float) -> None:
    require_loops(share)


def test_a_probe_that_counts_padding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_sparsity, "counted_places", lambda name, batch: None)
    with pytest.raises(AssertionError):
        require_loops(0.95)


def test_a_probe_that_takes_the_sign_for_the_size_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_sparsity, "carriers", lambda hidden, share: (hidden > 0).sum(-1))
    with pytest.raises(AssertionError):
        require_loops(0.5)


def test_only_a_threshold_makes_units_of_gelu_silent() -> None:
    """gelu(−1) = −Φ(−1) = −0.1587, the value of each layer's first unit at every token."""
    model = model_of("model/activation=gelu")
    assert measured(model).metrics["probe/sparsity/dead"] == 0
    assert measured(model, threshold=0.15).metrics["probe/sparsity/dead"] == 0
    assert measured(model, threshold=0.16).metrics["probe/sparsity/dead"] == pytest.approx(0.1, abs=0.05)


def test_half_of_the_units_of_relu_fire_before_training() -> None:
    """W₁x is symmetric about 0 for weights that are, and biases start at 0."""
    config = small(["model/activation=relu", "model.num_layers=1", "model.ffn.width=4096"])
    assert measured(build_model(config, VOCABULARY).eval()).metrics["probe/sparsity/density"] == pytest.approx(
        0.5, abs=0.03
    )


def test_topk_keeps_the_share_that_it_is_told() -> None:
    """Softplus-like values without ties: gelu of other numbers; a quarter of 40 units is ten."""
    model = build_model(small(["model/ffn=topk", "model.ffn.fraction=0.25", "model.ffn.width=40"]), VOCABULARY).eval()
    assert measured(model).metrics["probe/sparsity/density"] == pytest.approx(0.25)


def test_shapes_have_every_layer_and_all_units() -> None:
    shapes = measured(model_of("model/activation=relu")).shapes
    density, frequency = shapes["density"], shapes["frequency"]
    assert isinstance(density, Profile) and isinstance(frequency, Histogram)
    assert density.layers == ("1", "2") and set(frequency.counts) == {"layer 1", "layer 2"}
    for shares in frequency.counts.values():
        assert sum(share for share in shares if share) == pytest.approx(1)


@pytest.mark.parametrize(("ffn", "words"), [("moe", "those of chosen experts"), ("none", "hidden units")])
def test_a_model_without_the_same_units_for_each_token_is_refused(ffn: str, words: str) -> None:
    model = build_model(small([f"model/ffn={ffn}"]), VOCABULARY)
    problem = ActivationSparsity(batches=1, threshold=0.0, share=0.95).unsuited(model, TASK)
    assert problem is not None and words in problem
