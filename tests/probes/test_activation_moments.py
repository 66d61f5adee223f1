"""Moments of the stream: of a network whose stream is a product of its matrices, as a loop over numbers in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small, wide
from padded_batches import PaddedBatches
from swapformer.conformance.subject import VOCABULARY
from swapformer.model.topology import Topology
from swapformer.probes import activation_moments
from swapformer.probes.activation_moments import ActivationMoments
from swapformer.results.shapes import Finding, Profile
from swapformer.training.assemble import build_model

LINEAR = [
    *("model/norm=none", "model/residual=none", "model/activation=identity", "model/position=none"),
    *("model.bias=false", "model.num_layers=2", "model.d_model=8", "model.num_heads=2"),
]
PADDING = torch.tensor([[False] * 4, [False, True, True, True]])
TASK: Any = PaddedBatches(PADDING, equal=True)


@pytest.fixture(scope="module")
def model() -> Topology:
    found: Topology = wide(build_model(small(LINEAR), VOCABULARY))
    return found


def measured(model: Topology) -> Finding:
    with torch.no_grad():
        return ActivationMoments(batches=2).measure(model, TASK)


def by_hand(model: Topology) -> dict[str, float]:
    """The stream of each token is W₂W₁·W_O·W_V of the one before; its numbers one by one."""
    named = {
        (name.split("layers.")[-1].split(".")[0], str(p.origin.role)): p.detach()  # type: ignore[attr-defined]
        for name, p in model.named_parameters()
    }
    table = next(p for (_, role), p in named.items() if role == "token_embedding")
    found: dict[str, float] = {}
    entries: list[list[float]] = [[], [], []]
    before: list[list[float]] = [[], []]
    for index in range(2):
        batch = TASK.batch(index)
        for row in range(2):
            for place in range(4):
                if PADDING[row, place]:
                    continue
                x: Tensor = table[batch.inputs[row, place]]
                entries[0] += x.tolist()
                for layer in range(2):
                    for role in ("value", "attention_out", "ffn_in", "ffn_out"):
                        x = named[str(layer), role] @ x
                        if role == "ffn_in":
                            before[layer] += x.tolist()
                    entries[layer + 1] += x.tolist()
    for layer, values in enumerate(entries):
        mean = sum(values) / len(values)
        moments = {
            "mean": mean,
            "variance": sum((value - mean) ** 2 for value in values) / len(values),
            "rms": math.sqrt(sum(value * value for value in values) / len(values)),
            "rank": 1.0,  # the tokens of a row are equal
        }
        for kind, value in moments.items():
            names = [f"{kind}_first"] if layer == 0 else [f"{kind}_by_layer@{layer}"]
            for name in [*names, *([f"{kind}_last"] if layer == 2 else [])]:
                found[f"probe/stream_{name}"] = value
    for layer, values in enumerate(before):
        size = math.sqrt(sum(value * value for value in values) / len(values))
        found[f"probe/preactivation_rms_{('first', 'last')[layer]}"] = size
        found[f"probe/preactivation_rms_by_layer@{layer + 1}"] = size
    return found


def test_the_stream_has_the_moments_of_a_loop_over_the_tokens_that_are_no_padding(model: Topology) -> None:
    found, right = measured(model), by_hand(model)
    assert found.metrics == pytest.approx(right, rel=1e-9)
    profile = found.shapes["rms"]
    assert isinstance(profile, Profile) and profile.layers == ("0", "1", "2")
    names = ("rms_first", "rms_by_layer@1", "rms_by_layer@2")
    assert profile.values[0] == pytest.approx([right[f"probe/stream_{name}"] for name in names])


def test_the_rank_is_that_of_each_sequence_s_own_tokens(model: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first layer, where a state is its token's row of the table: singular values from the Gram matrix."""
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    task: Any = PaddedBatches(padding)
    table = next(p.detach() for p in model.parameters() if p.origin.role == "token_embedding")  # type: ignore[attr-defined]
    ranks = []
    for index in range(2):
        for row, tokens in enumerate(task.batch(index).inputs):
            states = table[tokens[~padding[row]]].double()
            sigma = torch.linalg.eigvalsh(states @ states.T).clamp(min=0).sqrt().tolist()
            shares = [value / sum(sigma) for value in sigma]
            ranks.append(math.exp(-sum(share * math.log(share) for share in shares if share > 0)))

    def first() -> float:
        with torch.no_grad():
            return float(ActivationMoments(batches=2).measure(model, task).metrics["probe/stream_rank_first"])

    assert first() == pytest.approx(sum(ranks) / 4, rel=1e-6) and 1.5 < first() < 3
    monkeypatch.setattr(activation_moments, "counted_places", lambda name, batch: None)
    assert first() != pytest.approx(sum(ranks) / 4, rel=1e-3), "padding has no part in it"


def test_a_stream_that_overflows_has_no_rank() -> None:
    streams = build_model(small(LINEAR), VOCABULARY)
    with torch.no_grad():
        for parameter in streams.parameters():
            parameter.fill_(1e30)
        found = ActivationMoments(batches=1).measure(streams, TASK).metrics
    assert math.isfinite(found["probe/stream_rank_first"]) and math.isnan(found["probe/stream_rank_last"])


@pytest.mark.parametrize("fault", ["padding_counts", "last_layer_left_out", "sample_variance", "no_preactivations"])
def test_a_planted_fault_is_caught(fault: str, model: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = activation_moments._statistics

    def sample_variance(sums: Tensor) -> dict[str, float]:
        found, count = statistics(sums), float(sums[0])
        return found | {"variance": found["variance"] * count / (count - 1)}

    planted: dict[str, tuple[str, Any]] = {
        "padding_counts": ("counted_places", lambda name, batch: None),
        "last_layer_left_out": ("_PLACES", ("*.hook_resid_pre",)),
        "sample_variance": ("_statistics", sample_variance),
        "no_preactivations": ("_PREACTIVATION", "hook_mlp_out"),
    }
    monkeypatch.setattr(activation_moments, *planted[fault])
    assert measured(model).metrics != pytest.approx(by_hand(model), rel=1e-9)


def test_each_stack_and_streams_of_several_tensors_have_their_own() -> None:
    both = ActivationMoments(batches=1)
    streams = build_model(small(["model/residual=hyper_connections"]), VOCABULARY).eval()
    with torch.no_grad():
        assert "probe/stream_rms_last" in both.measure(streams, TASK).metrics
        assert both.unsuited(streams, TASK) is None
        experts = both.measure(build_model(small(["model/ffn=moe"]), VOCABULARY).eval(), TASK).metrics
        assert not any("preactivation" in name for name in experts)
