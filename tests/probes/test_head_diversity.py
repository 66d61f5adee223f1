"""Ranks, patterns and agreement of heads against matrices and maps whose answer is known, and against loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small
from copying_heads import HEADS, LENGTH, Next, copying
from swapformer.conformance.subject import Subject, ids
from swapformer.model.topology import Topology
from swapformer.probes import head_diversity
from swapformer.probes.analysis import (
    effective_rank,
    head_similarity,
    mean_over_pairs,
    pattern_divergence,
    shuffled_keys,
    singular_values_of_product,
)
from swapformer.probes.base import finding_of
from swapformer.probes.head_diversity import HeadDiversity, head_matrices
from swapformer.results.shapes import Matrix
from swapformer.task.base import Batch, EvaluationSet


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_effective_rank_has_its_closed_forms() -> None:
    values = torch.tensor([[1.0, 1, 1, 1], [5, 0, 0, 0], [2, 2, 0, 0], [3, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    mixed = math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert effective_rank(values).tolist() == pytest.approx([4, 1, 2, mixed, 0], abs=1e-12)
    assert effective_rank(7 * values).tolist() == pytest.approx([4, 1, 2, mixed, 0], abs=1e-12), "whatever the size"


@pytest.mark.parametrize("width", [3, 9])
def test_singular_values_of_a_product_are_those_of_the_product(width: int) -> None:
    left, right = torch.randn(2, 4, 6, width, generator=generator(), dtype=torch.float64)
    found = singular_values_of_product(left, right)
    expected = torch.linalg.svdvals(left @ right.mT)
    assert torch.allclose(found, expected[..., : found.shape[-1]], atol=1e-12)
    assert found.shape[-1] == min(width, 6) and not (expected[..., width:] > 1e-12).any()


def test_divergence_is_zero_of_equal_heads_and_ln_h_of_disjoint_ones() -> None:
    counted = torch.tensor([[True, False]])
    disjoint = torch.eye(3, dtype=torch.float64)[None, :, None, :].expand(1, 3, 2, 3)
    alike = torch.rand(1, 1, 2, 3, generator=generator(), dtype=torch.float64).softmax(-1).expand(1, 3, 2, 3)
    for shares, expected in ((disjoint, math.log(3)), (alike, 0.0)):
        found = pattern_divergence(shares, counted)
        assert found.counts.tolist() == [1]
        assert found.sums.tolist() == pytest.approx([expected], abs=1e-12)


def test_divergence_equals_a_loop() -> None:
    """(1/H) Σ_h KL(a_h ‖ mean), query by query: Lin 1991, equation 5.1, with equal weights."""
    shares = torch.rand(2, 3, 4, 5, generator=generator(), dtype=torch.float64).softmax(-1)
    expected = 0.0
    for row in range(2):
        for query in range(4):
            mean = [sum(float(shares[row, head, query, key]) for head in range(3)) / 3 for key in range(5)]
            for head in range(3):
                weights = shares[row, head, query].tolist()
                expected += sum(w * math.log(w / m) for w, m in zip(weights, mean, strict=True)) / 3
    found = pattern_divergence(shares, torch.ones(2, 4, dtype=torch.bool))
    assert found.sums.tolist() == pytest.approx([expected], abs=1e-12)


def causal_rows(heads: int) -> tuple[Tensor, Tensor]:
    """Weights [64, H, 6, 6] that are the same in all heads, and what may be attended to."""
    allowed = torch.ones(1, 1, 6, 6).tril().bool()
    logits = torch.randn(64, 1, 6, 6, generator=generator(), dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    return (3 * logits).softmax(-1).expand(-1, heads, -1, -1), allowed


def test_shuffling_keeps_a_rows_weights_and_stays_among_allowed_keys() -> None:
    weights, allowed = causal_rows(2)
    found = shuffled_keys(weights, allowed, generator())
    assert torch.equal(found.sort(-1).values, weights.sort(-1).values)
    assert not found.masked_select(~allowed.expand_as(found)).any()
    assert not torch.equal(found[:, 0], found[:, 1]), "each head has an order of its own"


def test_a_weight_is_as_likely_on_any_allowed_key_after_shuffling() -> None:
    one = torch.zeros(4000, 1, 1, 5, dtype=torch.float64)
    one[..., 2] = 1.0
    allowed = torch.tensor([True, True, True, True, False])[None, None, None]
    shares = shuffled_keys(one, allowed, generator()).mean(dim=(0, 1, 2)).tolist()
    assert shares == pytest.approx([0.25, 0.25, 0.25, 0.25, 0.0], abs=0.025)


def require_agreement_by_chance() -> None:
    """Two equal heads agree wholly; after shuffling, weights on one of nine keys meet in one of nine queries."""
    chosen = torch.eye(9, dtype=torch.float64)[torch.randint(9, (500,), generator=generator())]
    weights = chosen[:, None, None, :].expand(-1, 2, -1, -1)
    allowed = torch.ones(1, 1, 1, 9, dtype=torch.bool)
    for found, expected in ((weights, 1.0), (head_diversity.shuffled_keys(weights, allowed, generator()), 1 / 9)):
        total, count = head_similarity(found, torch.ones(500, 1, dtype=torch.bool))
        assert mean_over_pairs(total / count) == pytest.approx(expected, abs=0.04)


def test_after_shuffling_heads_agree_by_chance_alone() -> None:
    require_agreement_by_chance()


def test_one_order_for_all_heads_is_no_null(monkeypatch: pytest.MonkeyPatch) -> None:
    def together(weights: Tensor, allowed: Tensor, drawn: torch.Generator) -> Tensor:
        return weights[..., torch.randperm(weights.shape[-1], generator=drawn)]

    monkeypatch.setattr(head_diversity, "shuffled_keys", together)
    with pytest.raises(AssertionError):
        require_agreement_by_chance()


def measured(model: Topology, task: Any) -> Any:
    with torch.no_grad():
        return HeadDiversity(sequences=2).measure(model, task)


def test_two_copying_and_two_idle_heads_have_known_ranks_and_patterns() -> None:
    """Copying heads attend to themselves and have identities as matrices; idle ones attend to all, and have none."""
    found = measured(copying(), Next())
    metrics, shapes = found.metrics, found.shapes
    assert shapes["heads/rank_qk"].values[0] == pytest.approx([8, 8, 0, 0], abs=1e-9)
    assert shapes["heads/rank_ov"].values[0] == pytest.approx([8, 8, 0, 0], abs=1e-9)
    uniform = torch.ones(LENGTH, LENGTH, dtype=torch.float64).tril()
    flat = float(effective_rank(torch.linalg.svdvals(uniform / uniform.sum(-1, keepdim=True))))
    matrix = shapes["heads/rank_map"]
    assert isinstance(matrix, Matrix) and matrix.values[0] == pytest.approx([8, 8, flat, flat], abs=1e-6)
    assert metrics["probe/rank_qk"] == pytest.approx(4) == metrics["probe/rank_ov"]
    assert metrics["probe/rank_map"] == pytest.approx((8 + flat) / 2)
    divergences = []
    for keys in range(2, LENGTH + 1):  # the first query has one key
        mean = [0.5 + 0.5 / keys] + [0.5 / keys] * (keys - 1)
        divergences.append(-sum(m * math.log(m) for m in mean) - math.log(keys) / 2)
    assert metrics["probe/patterns"] == pytest.approx(math.exp(sum(divergences) / (LENGTH - 1)), abs=1e-6)
    # one-hot and flat weights have the cosine 1/√n in any order of n keys; two one-hot ones 1, or by chance 1/n
    cosines = [(1 + 1 + 4 / math.sqrt(keys)) / 6 for keys in range(2, LENGTH + 1)]
    chance = [(1 / keys + 1 + 4 / math.sqrt(keys)) / 6 for keys in range(2, LENGTH + 1)]
    whole = metrics["probe/similarity_above_null"] + metrics["probe/similarity_null"]
    assert whole == pytest.approx(sum(cosines) / (LENGTH - 1), abs=1e-6)
    assert metrics["probe/similarity_null"] == pytest.approx(sum(chance) / (LENGTH - 1), abs=0.08)


def test_shared_keys_and_values_count_for_every_head_of_their_group() -> None:
    model: Any = Subject(small(["model/attention=gqa", "model.attention.num_kv_heads=2"]), "attention").perturbed()
    attention = model.stack.layers[0].attention
    found = head_matrices(attention, HEADS)
    for head in range(HEADS):
        own, shared = slice(8 * head, 8 * head + 8), slice(8 * (head // 2), 8 * (head // 2) + 8)
        matches = attention.query.weight[own].mT @ attention.key.weight[shared]
        moves = attention.out.weight[:, own] @ attention.value.weight[shared]
        for name, product in (("rank_qk", matches), ("rank_ov", moves)):
            expected = torch.linalg.svdvals(product.detach())
            assert torch.allclose(found[name][head], expected[:8], atol=1e-10) and float(expected[8]) < 1e-10


@pytest.mark.parametrize(
    ("option", "ranks"), [("model/attention=mla", set()), ("model/score=bilinear", {"probe/rank_ov"})]
)
def test_what_is_no_product_of_an_attentions_own_matrices_has_no_rank(option: str, ranks: set[str]) -> None:
    model = Subject(small([option]), "attention").perturbed()
    task: Any = Next()
    metrics = measured(model, task).metrics
    assert metrics.keys() & {"probe/rank_qk", "probe/rank_ov"} == ranks
    assert 1 <= metrics["probe/patterns"] <= HEADS and metrics["probe/rank_map"] > 1


def test_padding_changes_nothing_and_one_head_has_no_pairs() -> None:
    model = Subject(small(["model.num_heads=1", "model/position=alibi"]), "position").perturbed()

    class Padded(Next):
        def __init__(self, beyond: int) -> None:
            inputs = torch.cat([ids(1, 6), ids(1, beyond, seed=5)], dim=1) if beyond else ids(1, 6)
            padding = (torch.arange(6 + beyond) >= 6)[None]
            self.batch = Batch(inputs=inputs, targets=inputs, padding=padding)

        def evaluation(self, split: str) -> list[EvaluationSet]:
            return [EvaluationSet("", 1, lambda _: self.batch)]

    short, long = (measured(model, Padded(beyond)).metrics for beyond in (0, 3))
    assert short.keys() == {"probe/patterns", "probe/rank_qk", "probe/rank_ov", "probe/rank_map"}
    assert short["probe/patterns"] == pytest.approx(1, abs=1e-12)
    assert long == pytest.approx(short, abs=1e-9)


def test_a_model_without_weights_is_refused() -> None:
    model: Any = Subject(small(["model/attention=mamba2"]), "attention").build()
    task: Any = Next()
    with pytest.raises(ValueError, match=r"head_diversity looks at attention weights: .*hook_pattern"):
        finding_of(HeadDiversity(sequences=1), model, task)
