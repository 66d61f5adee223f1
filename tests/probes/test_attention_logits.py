"""Variance of attention logits and slope of their softmax: closed forms, and a loop over numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small, wide
from padded_batches import PaddedBatches
from swapformer.conformance.subject import VOCABULARY, Subject
from swapformer.model.topology import Topology
from swapformer.probes import attention_logits
from swapformer.probes.analysis import logit_variance, slope_of_weights
from swapformer.probes.attention_logits import AttentionLogits
from swapformer.probes.base import finding_of
from swapformer.results.shapes import Finding, Profile
from swapformer.task.base import Batch
from swapformer.training.assemble import build_model

HEADS, WIDTH, LENGTH = 2, 4, 4
PLAIN = [
    *("model/norm=none", "model/position=none", "model.bias=false", "model.num_layers=1", "model.d_model=8"),
    f"model.num_heads={HEADS}",
]
PADDING = torch.tensor([[False] * LENGTH, [False, False, True, True]])
TASK: Any = PaddedBatches(PADDING)


@pytest.fixture(scope="module")
def model() -> Topology:
    found: Topology = wide(build_model(small(PLAIN), VOCABULARY))
    return found


def measured(model: Topology) -> Finding:
    with torch.no_grad():
        return AttentionLogits(batches=2).measure(model, TASK)


def by_hand(model: Topology) -> dict[str, float]:
    """q·k/√E of every query of a real token with the keys up to it, number by number."""
    roles = {str(p.origin.role): p.detach() for p in model.parameters()}  # type: ignore[attr-defined]
    variances, slopes = [], []
    for index in range(2):
        batch = TASK.batch(index)
        for row in range(2):
            x = roles["token_embedding"][batch.inputs[row]]
            q, k = (x @ roles[role].T for role in ("query", "key"))
            for head in range(HEADS):
                part = slice(head * WIDTH, (head + 1) * WIDTH)
                for query in range(1, LENGTH):  # the first has one key
                    if PADDING[row, query]:
                        continue
                    logits = [float(q[query, part] @ k[key, part]) / math.sqrt(WIDTH) for key in range(query + 1)]
                    mean = sum(logits) / len(logits)
                    variances.append(sum((each - mean) ** 2 for each in logits) / len(logits))
                    total = sum(math.exp(each - max(logits)) for each in logits)
                    weights = [math.exp(each - max(logits)) / total for each in logits]
                    slopes.append(sum(a * (1 - a) for a in weights) / (1 - 1 / len(weights)))
    return {
        "probe/logit_variance": sum(variances) / len(variances),
        "probe/softmax_slope": sum(slopes) / len(slopes),
    }


def test_the_numbers_are_those_of_a_loop_over_queries_and_keys(model: Topology) -> None:
    found, right = measured(model), by_hand(model)
    assert {name: found.metrics[name] for name in right} == pytest.approx(right, rel=1e-9)
    for name, value in right.items():
        assert found.metrics[f"{name}_by_layer@1"] == pytest.approx(value, rel=1e-9), "there is one layer"
        profile = found.shapes[name.removeprefix("probe/")]
        assert isinstance(profile, Profile) and profile.values[0] == pytest.approx([value])


@pytest.mark.parametrize("fault", ["padding_counts", "masked_keys_count", "sample_variance", "slope_of_all_keys"])
def test_a_planted_fault_is_caught(fault: str, model: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = attention_logits._sums

    def all_rows(logits: Tensor, weights: Tensor, batch: Batch) -> Tensor:
        return sums(logits, weights, Batch(inputs=batch.inputs, targets=batch.targets))

    def variance_of_all(logits: Tensor, allowed: Tensor) -> Tensor:
        return logits.double().masked_fill(~allowed, 0.0).var(-1, correction=0)

    def sample_variance(logits: Tensor, allowed: Tensor) -> Tensor:
        keys = allowed.sum(-1).clamp(min=2)
        return logit_variance(logits, allowed) * keys / (keys - 1)

    def slope_of_all(weights: Tensor, allowed: Tensor) -> Tensor:
        return slope_of_weights(weights, torch.ones_like(allowed))

    name, planted = {
        "padding_counts": ("_sums", all_rows),
        "masked_keys_count": ("logit_variance", variance_of_all),
        "sample_variance": ("logit_variance", sample_variance),
        "slope_of_all_keys": ("slope_of_weights", slope_of_all),
    }[fault]
    monkeypatch.setattr(attention_logits, name, planted)
    right = by_hand(model)
    assert {key: measured(model).metrics[key] for key in right} != pytest.approx(right, rel=1e-6)


def test_the_slope_is_the_trace_of_softmaxs_jacobian_over_that_of_uniform_weights() -> None:
    """1 for uniform weights, 0 for one key, and the trace that automatic differentiation gives between them."""
    allowed = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    logits = torch.zeros(1, 1, 3, 5, dtype=torch.float64)
    logits[..., 1, 2] = 1e3
    logits[..., 2, :] = torch.randn(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = slope_of_weights(logits.softmax(-1), allowed).flatten().tolist()
    jacobian = torch.autograd.functional.jacobian(lambda row: row.softmax(-1), logits[0, 0, 2])
    assert found == pytest.approx([1.0, 0.0, float(jacobian.trace()) / (1 - 1 / 5)], abs=1e-12)


@pytest.mark.parametrize("option", ["softmax1", "sink", "topk", "sigmoid"])
def test_the_slope_is_that_of_each_normalisers_own_jacobian(option: str) -> None:
    """Whatever a sink takes is lost: of weights near 0 hardly a slope is left."""
    normaliser = build_model(small([f"model/normaliser={option}"]), 9).double().stack.layers[0].attention.normaliser
    noise = torch.randn(1, 4, 1, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for logits in (noise, noise - 5.0, noise - 20.0):
        normaliser.requires_grad_(False)
        weights, slopes = normaliser(logits), torch.autograd.functional.jacobian(normaliser, logits)
        found = slope_of_weights(weights, torch.ones_like(weights, dtype=torch.bool))
        trace = sum(float(slopes[0, 0, 0, key, 0, 0, 0, key]) for key in range(4))
        assert float(found[0, 0, 0]) == pytest.approx(trace / (1 - 1 / 4), abs=1e-9)


def test_a_normaliser_with_another_jacobian_is_refused() -> None:
    model = build_model(small(["model/normaliser=sparsemax"]), 9)
    problem = AttentionLogits(batches=1).unsuited(model, TASK)
    assert problem is not None and "the normaliser is Sparsemax" in problem


def test_a_product_without_scale_has_the_variance_of_its_width_and_a_flatter_softmax_with_it() -> None:
    """Of q and k with unit variance, q·k has variance E; 1/√E makes that 1 (Vaswani et al. 2017, section 3.2.1)."""
    q, k = torch.randn(2, 1, 1, 400, 64, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    allowed = torch.ones(1, 1, 400, 400, dtype=torch.bool)
    raw = q @ k.mT
    assert float(logit_variance(raw, allowed).mean()) == pytest.approx(64, rel=0.05)
    assert float(logit_variance(raw / 8, allowed).mean()) == pytest.approx(1, rel=0.05)
    slopes = [float(slope_of_weights(each.softmax(-1), allowed).mean()) for each in (raw, raw / 8)]
    assert slopes[0] < 0.5 < 0.98 < slopes[1]


def test_models_without_logits_are_told_so() -> None:
    linear = Subject(small(["model/attention=linear"]), "attention").build()
    with pytest.raises(ValueError, match=r"attention_logits looks at attention logits: .*hook_attn_scores"):
        finding_of(AttentionLogits(batches=1), linear, TASK)
