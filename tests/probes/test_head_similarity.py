"""Head similarity against its definition and its limits."""

from __future__ import annotations

import pytest
import torch

from configs import SMALL
from swapformer.errors import UsageError
from swapformer.probes.analysis import head_similarity, mean_over_pairs
from swapformer.probes.head_similarity import HeadSimilarity
from swapformer.study.config.compose import check, compose, task_of
from swapformer.training.assemble import build_model


def mean(weights: torch.Tensor) -> torch.Tensor:
    total, count = head_similarity(weights)
    return total / count


def test_similarity_equals_its_definition() -> None:
    weights = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for a in range(3):
        for b in range(3):
            cosines = [
                weights[n, a, q] @ weights[n, b, q] / (weights[n, a, q].norm() * weights[n, b, q].norm())
                for n in range(2)
                for q in range(4)
            ]
            expected[a, b] = sum(cosines) / len(cosines)
    total, count = head_similarity(weights)
    assert count == 8
    assert torch.allclose(total / count, expected, atol=1e-12)


def test_a_query_whose_heads_look_at_one_key_each_counts_unless_it_is_the_same_one() -> None:
    one = torch.eye(3, dtype=torch.float64)
    weights = torch.stack([torch.stack([one[0], one[0], one[2]]), torch.stack([one[1], one[0], one[2] + one[1]])])[None]
    total, count = head_similarity(weights)
    assert count == 2 and float(total[0, 1]) == pytest.approx(0.5**0.5), (
        "apart in the first, alike in part in the third"
    )


def test_queries_that_do_not_count_change_nothing() -> None:
    weights = torch.rand(1, 3, 4, 5, dtype=torch.float64)
    counted = torch.tensor([[True, False, True, True]])
    total, count = head_similarity(weights, counted)
    weights[:, :, 1] = torch.rand(3, 5)
    again, _ = head_similarity(weights, counted)
    assert count == 3
    assert torch.equal(total, again)


def test_equal_heads_have_similarity_one_and_disjoint_ones_zero() -> None:
    same = torch.rand(1, 1, 4, 6).softmax(-1).expand(1, 3, 4, 6)
    assert mean_over_pairs(mean(same)) == pytest.approx(1.0, abs=1e-6)
    left, right = torch.zeros(1, 1, 4, 6), torch.zeros(1, 1, 4, 6)
    left[..., :3], right[..., 3:] = 1 / 3, 1 / 3
    assert mean_over_pairs(mean(torch.cat([left, right], dim=1))) == 0.0


def test_queries_with_a_single_key_do_not_count() -> None:
    weights = torch.tensor([[1.0, 0.0], [1.0, 0.0]])[None, None].repeat(1, 2, 1, 1)
    weights[0, 0, 1] = torch.tensor([0.5, 0.5])
    weights[0, 1, 1] = torch.tensor([0.9, 0.1])
    expected = torch.nn.functional.cosine_similarity(weights[0, 0, 1], weights[0, 1, 1], dim=0)
    assert mean_over_pairs(mean(weights)) == pytest.approx(float(expected))


@pytest.mark.parametrize("normaliser", ["softmax", "topk", "sparsemax"])
@pytest.mark.parametrize("topology", ["decoder", "encoder_decoder"])
def test_heads_that_look_at_the_same_one_of_many_keys_are_alike(normaliser: str, topology: str) -> None:
    """Equal heads are alike however sparse they are: what counts is how many keys a query may look at."""
    source = ["task.as_source=true"] if topology == "encoder_decoder" else []
    keys = ["model.normaliser.keys=1"] if normaliser == "topk" else []
    config = compose(
        [*SMALL, "task=reverse", *source, f"model/topology={topology}", f"model/normaliser={normaliser}", *keys]
    )
    task = task_of(config)
    model = build_model(config, task.interface).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("query.weight", "key.weight")):
                width = len(weight) // config["model"]["num_heads"]
                weight.copy_(50 * weight[:width].repeat(config["model"]["num_heads"], 1))
        found = HeadSimilarity(batches=1).measure(model, task)
    assert found.metrics["probe/head_similarity"] == pytest.approx(1.0, abs=1e-6)


def test_negative_weights_count_as_weights() -> None:
    """Implied weights of linformer, nystrom and a turned linear attention: two keys are seen, one with a minus."""
    weights = torch.tensor([[[1.0, -0.5]], [[-1.0, 0.5]]])[None]
    assert mean_over_pairs(mean(weights)) == pytest.approx(-1.0)


def test_one_head_has_no_pairs() -> None:
    assert mean_over_pairs(torch.ones(1, 1)) is None


def test_a_model_whose_attention_has_no_weights_is_refused_before_it_trains() -> None:
    with pytest.raises(UsageError, match="no attention of this model has") as error:
        check(compose(["model/attention=mamba2", "probes=head_similarity", "model/size=nano"]))
    assert "\n" not in str(error.value) and len(str(error.value)) <= 300
