"""Head similarity against its definition and its limits."""

from __future__ import annotations

import itertools

import pytest
import torch

from configs import SMALL
from swapformer.errors import UsageError
from swapformer.model import taps
from swapformer.probes.analysis import head_similarity, mean_over_pairs
from swapformer.probes.head_similarity import HeadSimilarity
from swapformer.study.config.compose import check, compose, task_of
from swapformer.training.assemble import build_model
from swapformer.training.inputs import model_inputs


def mean(weights: torch.Tensor) -> torch.Tensor:
    total, count = head_similarity(weights, every_query(weights))
    return total / count


def every_query(weights: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(weights[:, 0, :, 0], dtype=torch.bool)


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
    total, count = head_similarity(weights, every_query(weights))
    assert count == 8
    assert torch.allclose(total / count, expected, atol=1e-12)


def test_of_queries_that_count_only_those_that_see_nothing_are_left_out() -> None:
    """Heads on one key each are apart or alike, as their keys are."""
    one, nothing = torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    first = torch.stack([one[0], one[0], one[2], nothing])
    weights = torch.stack([first, torch.stack([one[1], one[0], one[2] + one[1], nothing])])[None]
    total, count = head_similarity(weights, every_query(weights))
    assert count == 3 and float(total[0, 1]) == pytest.approx(1 + 0.5**0.5)


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


@pytest.mark.parametrize("topology", ["decoder", "encoder_decoder"])
def test_queries_that_may_attend_to_a_single_key_do_not_count(topology: str) -> None:
    """The probe's number is that of a loop over the real queries with several allowed keys, padding left out."""
    config = compose([*SMALL, "task=reverse", *source_of(topology), f"model/topology={topology}"])
    task = task_of(config)
    model = build_model(config, task.interface).eval()
    batch = next(item for item in task.evaluation("val") if item.name == "").batch(0)
    assert batch.padding is not None, "some rows are shorter"
    with torch.no_grad(), taps.record(model, "*.hook_pattern") as seen:
        model(*model_inputs(batch))
    means = []
    for name, weights in seen.items():
        asking = batch.source if name.startswith("encoder.") else batch
        assert asking is not None
        real = every_query(weights) if asking.padding is None else ~asking.padding
        cosines = [
            float(torch.nn.functional.cosine_similarity(weights[row, a, query], weights[row, b, query], dim=0))
            for row, query in real.nonzero().tolist()
            if query > 0 or name.startswith("encoder.") or "cross" in name
            for a, b in itertools.combinations(range(weights.shape[1]), 2)
        ]
        means.append(sum(cosines) / len(cosines))
    with torch.no_grad():
        found = HeadSimilarity(batches=1).measure(model, task).metrics["probe/head_similarity"]
    assert found == pytest.approx(sum(means) / len(means), abs=1e-6)


def source_of(topology: str) -> list[str]:
    return ["task.as_source=true"] if topology == "encoder_decoder" else []


@pytest.mark.parametrize("normaliser", ["softmax", "topk", "sparsemax"])
@pytest.mark.parametrize("topology", ["decoder", "encoder_decoder"])
def test_heads_that_look_at_the_same_one_of_many_keys_are_alike(normaliser: str, topology: str) -> None:
    """Equal heads are alike however sparse they are: what counts is how many keys a query may look at."""
    keys = ["model.normaliser.keys=1"] if normaliser == "topk" else []
    model_of = [f"model/topology={topology}", f"model/normaliser={normaliser}", *keys]
    config = compose([*SMALL, "task=reverse", *source_of(topology), *model_of])
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
