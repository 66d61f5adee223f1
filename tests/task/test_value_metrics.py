"""The metrics of classes and values against sums by hand in float64 and against torchmetrics' own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError, R2Score

from swapformer.task import IGNORE
from swapformer.task.measures import CLASS_DIRECTIONS
from swapformer.task.metrics import class_metrics
from swapformer.task.value_metrics import forecast_metrics, value_metrics

B, T, C = 40, 6, 5
NAN = math.nan


def example(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that often hit, and targets of which some are none; class 4 is never a target nor an answer."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(C - 1, shape, generator=generator)
    logits = 2 * torch.randn(*shape, C, generator=generator)
    logits.scatter_add_(-1, targets.unsqueeze(-1), 2 * torch.ones(*shape, 1))
    logits[..., 4] = -30
    targets[torch.rand(shape, generator=generator) < 0.2] = IGNORE
    return logits, targets


def by_hand(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Every measure of classifications from its definition, answer by answer with Python's floats."""
    rows = [(logits[row].reshape(-1, C).double().tolist(), targets[row].reshape(-1).tolist()) for row in range(B)]
    nats, hits, counts, found = [], [], [], []
    for values, wanted in rows:
        scored = [(value, target) for value, target in zip(values, wanted, strict=True) if target != IGNORE]
        softmax = [[math.exp(v) / sum(map(math.exp, value)) for v in value] for value, _ in scored]
        answers = [(p.index(max(p)), max(p), target) for p, (_, target) in zip(softmax, scored, strict=True)]
        if scored:
            nats.append(-sum(math.log(p[target]) for p, (_, target) in zip(softmax, scored, strict=True)))
            hits.append(sum(answer == target for answer, _, target in answers))
            counts.append(len(scored))
            found += answers

    def spread(amounts: list[float]) -> float:
        ratio = sum(amounts) / sum(counts)
        squares = sum((a - ratio * c) ** 2 for a, c in zip(amounts, counts, strict=True))
        return math.sqrt(squares * len(counts) / (len(counts) - 1)) / sum(counts)

    scores = []
    for kind in range(C):
        hit = sum(answer == target == kind for answer, _, target in found)
        both = sum(answer == kind for answer, _, _ in found) + sum(target == kind for _, _, target in found)
        scores += [2 * hit / both] if both else []
    gaps = 0.0
    for low in range(15):
        inside = [(a == t, p) for a, p, t in found if low / 15 <= p < (low + 1) / 15 or (low == 14 and p == 1)]
        gaps += abs(sum(hit for hit, _ in inside) - sum(p for _, p in inside)) / len(found)
    return {
        "loss": sum(nats) / sum(counts), "loss_se": spread(nats),
        "accuracy": sum(hits) / sum(counts), "accuracy_se": spread(hits),
        "macro_f1": sum(scores) / len(scores), "calibration_error": gaps,
    }  # fmt: skip


@pytest.mark.parametrize("shape", [(B,), (B, T)], ids=["one for a sequence", "one for each place"])
def test_measures_of_classes_equal_their_definitions(shape: tuple[int, ...]) -> None:
    logits, targets = example(shape)
    metrics = class_metrics(C)
    for start in range(0, B, 13):
        metrics.update(logits[start : start + 13], targets[start : start + 13])
    found = {name: float(value) for name, value in metrics.compute().items()}
    assert found == pytest.approx(by_hand(logits, targets), rel=2e-5)
    assert {name for name in found if not name.endswith("_se")} == set(CLASS_DIRECTIONS)


def test_logits_that_look_like_probabilities_are_logits() -> None:
    """torchmetrics takes numbers between 0 and 1 for probabilities, as the logits of a fresh model may be."""
    metrics = class_metrics(2)
    metrics.update(torch.tensor([[0.1, 0.9], [0.9, 0.1]]), torch.tensor([1, 0]))
    confidence = 1 / (1 + math.exp(-0.8))
    assert float(metrics.compute()["calibration_error"]) == pytest.approx(1 - confidence, rel=1e-5)


def test_no_target_and_no_number_give_no_measure_and_no_crash() -> None:
    for logits, targets in (
        (torch.zeros(3, C), torch.full((3,), IGNORE)),
        (torch.full((3, C), NAN), torch.tensor([0, 1, 2])),
    ):
        metrics = class_metrics(C)
        metrics.update(logits, targets)
        found = metrics.compute()
        assert math.isnan(found["loss"]) and math.isnan(found["calibration_error"])
        assert math.isnan(found["macro_f1"]) == bool((targets == IGNORE).all())
    for measured in (value_metrics(2), forecast_metrics(1, 3)):
        size = 2 if measured.keys() == value_metrics(2).keys() else 1
        measured.update(torch.zeros(3, 4, size), torch.full((3, 4, size), NAN))
        assert all(math.isnan(value) for value in measured.compute().values())
    metrics = class_metrics(C)
    metrics.update(*example((B,)))
    metrics.reset()
    metrics.update(*example((B,), 1))
    again = class_metrics(C)
    again.update(*example((B,), 1))
    assert {k: float(v) for k, v in metrics.compute().items()} == {k: float(v) for k, v in again.compute().items()}


def values(seed: int = 0, size: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randn(B, T, size, generator=generator).cumsum(1)
    return targets + torch.randn(B, T, size, generator=generator), targets


def test_measures_of_values_agree_with_torchmetrics_and_pass_over_what_is_missing() -> None:
    answer, targets = values()
    metrics = value_metrics(2)
    for start in range(0, B, 13):
        metrics.update(answer[start : start + 13], targets[start : start + 13])
    found = metrics.compute()
    flat = answer.flatten(0, 1), targets.flatten(0, 1)
    assert float(found["loss"]) == pytest.approx(float(MeanSquaredError()(*flat)), rel=1e-5)
    assert float(found["mae"]) == pytest.approx(float(MeanAbsoluteError()(*flat)), rel=1e-5)
    assert float(found["r2"]) == pytest.approx(float(R2Score(multioutput="variance_weighted")(*flat)), rel=1e-5)
    means = (answer - targets).square().flatten(1).mean(1)
    assert float(found["loss_se"]) == pytest.approx(float(means.std()) / math.sqrt(B), rel=1e-5)
    means = (answer - targets).abs().flatten(1).mean(1)
    assert float(found["mae_se"]) == pytest.approx(float(means.std()) / math.sqrt(B), rel=1e-5)
    single, gaps = value_metrics(1), targets[..., :1].clone()
    gaps[3] = gaps[5, 2:] = NAN
    single.update(answer[..., :1], gaps)
    there = ~gaps.isnan()
    kept = answer[..., :1][there], gaps[there]
    assert float(single.compute()["loss"]) == pytest.approx(float(MeanSquaredError()(*kept)), rel=1e-5)
    assert float(single.compute()["r2"]) == pytest.approx(float(R2Score()(*kept)), rel=1e-5)


def test_one_value_for_a_sequence_is_measured_as_one_place() -> None:
    answer, targets = values()
    one, other = value_metrics(2), value_metrics(2)
    one.update(answer[:, 0], targets[:, 0])
    other.update(answer[:, :1], targets[:, :1])
    assert {k: float(v) for k, v in one.compute().items()} == {k: float(v) for k, v in other.compute().items()}


def test_baselines_are_the_earlier_values_and_skill_compares_the_same_places() -> None:
    answer, targets = values(1, 1)
    targets[0, 2], season = NAN, 3
    metrics = forecast_metrics(1, season)
    metrics.update(answer, targets)
    found = metrics.compute()
    for lag, naive, skill in ((1, "naive_loss", "skill"), (season, "seasonal_loss", "seasonal_skill")):
        places = [
            (row, place)
            for row in range(B)
            for place in range(lag, T)
            if not math.isnan(targets[row, place]) and not math.isnan(targets[row, place - lag])
        ]
        off = sum(float(targets[r, p] - targets[r, p - lag]) ** 2 for r, p in places)
        own = sum(float(targets[r, p] - answer[r, p]) ** 2 for r, p in places)
        assert float(found[naive]) == pytest.approx(off / len(places), rel=1e-5)
        assert float(found[skill]) == pytest.approx(1 - own / off, rel=1e-4)
    assert forecast_metrics(1, None).keys() == {*value_metrics(1).keys(), "naive_loss", "skill"}
