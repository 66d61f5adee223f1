"""Gradient norms of a linear network, whose gradient by layer is known in closed form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from configs import small, wide
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes import gradient_norms
from swapformer.probes.gradient_norms import GradientNorms
from swapformer.results.shapes import Finding, Profile
from swapformer.training.assemble import build_model

LINEAR = [
    *("model/norm=none", "model/residual=none", "model/activation=identity", "model/position=none"),
    *("model.bias=false", "model.num_layers=3", "model.d_model=8", "model.num_heads=2"),
]
TOKEN, TARGET = 3, 5


@pytest.fixture(scope="module")
def model() -> Topology:
    """One token attends to itself alone, so that layer l is x ← W₂W₁·W_O·W_V·x; weights from N(0, 1), float64."""
    found: Topology = wide(build_model(small(LINEAR), 7))
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.div_(3.0)  # far from a softmax that is 0 or 1
    return found


def matrices(model: Topology, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_V, W_O, W₁, W₂ of a layer."""
    named = dict(model.named_parameters())
    found = {}
    for role in ("value", "attention_out", "ffn_in", "ffn_out"):
        (found[role],) = [
            p.detach()
            for name, p in named.items()
            if f"layers.{layer}." in name and str(p.origin.role) == role  # type: ignore[attr-defined]
        ]
    return found["value"], found["attention_out"], found["ffn_in"], found["ffn_out"]


def closed_form(model: Topology) -> dict[str, float]:
    """‖∂L/∂W‖ = ‖δ‖·‖a‖ for y = W·a with δ = ∂L/∂y, since the gradient of one token is δ·aᵀ; W_Q and W_K have none."""
    table = next(p.detach() for name, p in model.named_parameters() if str(p.origin.role) == "token_embedding")  # type: ignore[attr-defined]
    chain = [matrix for layer in range(3) for matrix in matrices(model, layer)]
    inputs = [table[TOKEN]]
    for matrix in chain:
        inputs.append(matrix @ inputs[-1])
    logits = model.answers(torch.tensor([[TOKEN]]), Tokens.of(1))[""][0, 0].detach()
    head = next((p.detach() for _, p in model.named_parameters() if str(p.origin.role) == "head"), table)  # type: ignore[attr-defined]
    assert torch.allclose(logits, head @ inputs[-1], atol=1e-12), "the network is the product of its matrices"
    delta = head.T @ (logits.softmax(-1) - torch.eye(7, dtype=torch.float64)[TARGET])
    squares = []
    for matrix, given in zip(reversed(chain), reversed(inputs[:-1]), strict=True):
        squares.append(float(delta.square().sum() * given.square().sum()))
        delta = matrix.T @ delta
    squares.reverse()
    found = {}
    for layer in range(3):
        value, out, first, second = squares[4 * layer : 4 * layer + 4]
        found[f"probe/gradient_attention_by_layer@{layer + 1}"] = math.sqrt(value + out)
        found[f"probe/gradient_ffn_by_layer@{layer + 1}"] = math.sqrt(first + second)
    for part in ("attention", "ffn"):
        found[f"probe/gradient_first_{part}"] = found[f"probe/gradient_{part}_by_layer@1"]
        found[f"probe/gradient_last_{part}"] = found[f"probe/gradient_{part}_by_layer@3"]
    return found


def measured(model: Topology) -> Finding:
    task: Any = None
    model.zero_grad()
    logits = model.answers(torch.tensor([[TOKEN]]), Tokens.of(1))[""]
    cross_entropy(logits[0], torch.tensor([TARGET])).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return GradientNorms(batch="train").measure(model, task)


def test_every_layer_of_a_linear_network_has_the_gradient_of_the_closed_form(model: Topology) -> None:
    found, right = measured(model), closed_form(model)
    assert found.metrics == pytest.approx(right, rel=1e-9)
    assert len({round(value, 9) for value in right.values()}) == 6, "all layers differ"
    profile = found.shapes["ffn"]
    assert isinstance(profile, Profile) and profile.layers == ("1", "2", "3") and profile.log
    assert profile.values[0] == pytest.approx([right[f"probe/gradient_ffn_by_layer@{n}"] for n in (1, 2, 3)])


@pytest.mark.parametrize("fault", ["sum_of_norms", "mean_square", "layers_reversed"])
def test_a_planted_fault_is_caught(fault: str, model: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    norm, layers = gradient_norms.gradient_norm, gradient_norms.named_layers
    planted: dict[str, tuple[str, Any]] = {
        "sum_of_norms": ("gradient_norm", lambda weights: sum(norm([weight]) for weight in weights)),
        "mean_square": ("gradient_norm", lambda weights: norm(held := list(weights)) / len(held)),
        "layers_reversed": (
            "named_layers",
            lambda model: zip("123", reversed([v for _, v in layers(model)]), strict=True),
        ),
    }
    monkeypatch.setattr(gradient_norms, *planted[fault])
    assert measured(model).metrics != pytest.approx(closed_form(model), rel=1e-9)
