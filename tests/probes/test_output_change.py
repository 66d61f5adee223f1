"""How far an output moves with all weights: a product of matrices by hand, in float64, and its law of depth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small, wide
from padded_batches import PaddedBatches
from swapformer.conformance.subject import VOCABULARY
from swapformer.model.layers import origin_of
from swapformer.model.topology import Topology
from swapformer.probes import output_change
from swapformer.probes.gradient_norms import GradientNorms
from swapformer.probes.output_change import FirstStep, OutputChange
from swapformer.random import stream
from swapformer.training.assemble import build_model

LAYERS, LENGTH, SIZE, DRAWS = 2, 4, 1e-3, 2
PRODUCT = [
    *("model/norm=none", "model/residual=none", "model/activation=identity", "model/position=none"),
    *("model.bias=false", f"model.num_layers={LAYERS}", "model.d_model=8", "model.num_heads=2"),
]
PADDING = torch.tensor([[False] * LENGTH, [False, True, True, True]])
NAMES = {"value": "attention.value", "attention_out": "attention.out", "ffn_in": "ffn.up", "ffn_out": "ffn.down"}
TASK: Any = PaddedBatches(PADDING, equal=True)


@pytest.fixture
def model() -> Topology:
    found: Topology = wide(build_model(small(PRODUCT), VOCABULARY))
    return found


def measured(model: Topology) -> float:
    with torch.no_grad():
        return OutputChange(size=SIZE, draws=DRAWS).measure(model, TASK).metrics["probe/output_change"]


def by_hand(model: Topology) -> float:
    """The answer of a token is H · Π W₂W₁W_OW_V · e, matrix by matrix, before and after each matrix has moved."""
    named = {name: p.detach() for name, p in model.named_parameters()}
    table = named["embedding.weight"]
    batch = TASK.batch(0)

    def answer(token: int, draw: int | None) -> list[float]:
        x: Tensor = table[token]
        for layer in range(LAYERS):
            for own in NAMES.values():
                weight = named[f"stack.layers.{layer}.{own}.weight"]
                if draw is not None:
                    rms = math.sqrt(sum(float(w) ** 2 for w in weight.flatten()) / weight.numel())
                    key = ("output_change", draw, f"{layer + 1} {own}.weight")
                    noise = torch.randn(weight.shape, generator=stream(*key), dtype=torch.float32)
                    weight = weight + SIZE * rms * noise.double()
                x = weight @ x
        return (table @ x).tolist()

    changes = []
    for draw in range(DRAWS):
        off = whole = 0.0
        for row in range(2):
            for place in range(LENGTH):
                if not PADDING[row, place]:
                    token = int(batch.inputs[row, place])
                    before, after = answer(token, None), answer(token, draw)
                    off += sum((a - b) ** 2 for a, b in zip(after, before, strict=True))
                    whole += sum(b * b for b in before)
        changes.append(math.sqrt(off / whole) / SIZE)
    return sum(changes) / len(changes)


def test_the_change_is_that_of_a_product_of_matrices_that_all_move(model: Topology) -> None:
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert measured(model) == pytest.approx(by_hand(model), rel=1e-9)
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters()), "the model is as it was"


def test_a_product_of_n_matrices_moves_by_about_the_square_root_of_n(model: Topology) -> None:
    """Each of n independent random matrices that moves by δ moves the product by δ, and the moves add as random steps.

    Wide matrices and many logits are needed for that, so the model is made anew, with four matrices a layer.
    """
    found = {}
    for layers in (1, 4):
        sizes = [f"model.num_layers={layers}", "model.d_model=256", "model/init=xavier"]
        found[layers] = measured(build_model(small([*PRODUCT, *sizes]), 1000).double())
    assert found[1] == pytest.approx(math.sqrt(4), rel=0.1)
    assert found[4] == pytest.approx(math.sqrt(16), rel=0.1)


@pytest.mark.parametrize("fault", ["padding_counts", "one_layer_stays", "one_noise_for_all"])
def test_a_planted_fault_is_caught(fault: str, model: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = output_change.named_layers
    planted: dict[str, tuple[str, Any]] = {
        "padding_counts": ("_answer", lambda model, batch: model(batch.inputs).double()),
        "one_layer_stays": ("named_layers", lambda model: list(layers(model))[1:]),
        "one_noise_for_all": ("stream", lambda *key: stream("output_change")),
    }
    monkeypatch.setattr(output_change, *planted[fault])
    assert measured(model) != pytest.approx(by_hand(model), rel=1e-3)


def test_an_output_of_zeros_has_no_relative_change() -> None:
    fixup = build_model(small(["+preset=fixup"]), VOCABULARY)
    with torch.no_grad():
        assert OutputChange(size=SIZE, draws=1).measure(fixup, TASK).metrics == {}


def stepped(model: Topology, rate: float) -> float:
    """The metric of a model of PRODUCT's layers whose loss is half the squared size of its answers."""
    model.zero_grad()
    (0.5 * model(TASK.batch(0).inputs).square().sum()).backward()  # type: ignore[no-untyped-call]
    return FirstStep(rates=[rate], batch="val").measure(model, TASK).metrics[f"probe/first_step/{rate:g}"]


def test_the_first_step_is_that_of_torchs_adam_on_the_matrices_of_the_layers(model: Topology) -> None:
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    found, batch = stepped(model, 1e-3), TASK.batch(0)
    real = ~PADDING
    before = model(batch.inputs)[real].detach()
    moved = [p for name, p in model.named_parameters() if name.startswith("stack.layers") and p.dim() > 1]
    assert len(moved) == LAYERS * 6, "queries and keys too, whose scores the mask of one token in sight ignores not"
    torch.optim.Adam(moved, lr=1e-3).step()
    after = model(batch.inputs)[real].detach()
    assert found == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-9)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
    assert stepped(model, 1e-3) == pytest.approx(found, rel=1e-12), "the model was as it was"


def test_no_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="must list at least one number"):
        FirstStep(rates=[], batch="train")


def test_the_size_of_a_gradient_changes_nothing_and_twice_the_rate_moves_twice_as_far(model: Topology) -> None:
    found = stepped(model, 1e-5)
    for p in model.parameters():
        p.grad = None if p.grad is None else 1000 * p.grad
    larger = FirstStep(rates=[1e-5], batch="val").measure(model, TASK).metrics
    assert larger["probe/first_step/1e-05"] == pytest.approx(found, rel=1e-3)
    assert stepped(model, 2e-5) == pytest.approx(2 * found, rel=1e-2)


def test_biases_of_experts_and_mixes_of_streams_are_no_matrices() -> None:
    """They have two axes too; `first_step`, `output_change` and `gradient_norms` are about matrices only."""
    for overrides in (["model/ffn=moe"], ["model/residual=hyper_connections"], ["model/attention=gated_delta"]):
        model = build_model(small(overrides), 7)
        roles = {origin_of(name, weight).role for name, weight in output_change._matrices(model).items()}
        assert roles and all(role.is_matrix for role in roles), overrides
        assert any(
            weight.dim() > 1 and not origin_of(name, weight).role.is_matrix for name, weight in model.named_parameters()
        )
    silent = build_model(small(["model/ffn=moe"]), 7)
    for name, weight in silent.named_parameters():
        weight.grad = torch.zeros_like(weight) if origin_of(name, weight).role.is_matrix else torch.ones_like(weight)
    found = GradientNorms(batch="train").measure(silent, TASK)
    assert set(found.metrics.values()) == {0.0}
