"""The metrics against sums by hand in float64, against torchmetrics' own, and against greedy generation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy, MulticlassExactMatch
from torchmetrics.text import Perplexity

from swapformer.task import IGNORE, MEASURES, Copy, SequenceMetric, sequence_metrics

B, T, V = 9, 7, 5


def example(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that often hit, and targets of various numbers: one sequence has none, one is all right."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(V, (B, T), generator=generator)
    logits = torch.randn(B, T, V, generator=generator)
    logits.scatter_add_(2, targets.unsqueeze(2), 2 * torch.ones(B, T, 1))
    logits[3].scatter_add_(1, targets[3].unsqueeze(1), 50 * torch.ones(T, 1))
    for row in range(B):
        targets[row, : row % 5] = IGNORE
    targets[6] = IGNORE
    return logits, targets


def by_hand(logits: Tensor, targets: Tensor, sizes: list[int]) -> dict[str, float]:
    """Every measure, token by token with Python's floats."""
    nats, counts, hits, matches, size = [], [], [], [], 0
    for row in range(len(targets)):
        scored = [place for place in range(targets.shape[1]) if targets[row, place] != IGNORE]
        if not scored:
            continue
        row_nats, row_hits = 0.0, 0
        for place in scored:
            values, target = logits[row, place].double().tolist(), int(targets[row, place])
            row_nats += math.log(sum(math.exp(v - max(values)) for v in values)) + max(values) - values[target]
            row_hits += values[target] == max(values)
            size += sizes[target]
        nats.append(row_nats)
        counts.append(len(scored))
        hits.append(row_hits)
        matches.append(float(row_hits == len(scored)))
    n = len(nats)

    def spread(amounts: list[float], per: list[float]) -> float:
        ratio = sum(amounts) / sum(per)
        squares = sum((a - ratio * p) ** 2 for a, p in zip(amounts, per, strict=True))
        return math.sqrt(squares / (n - 1) / n) / (sum(per) / n)

    return {
        "loss": sum(nats) / sum(counts),
        "loss_se": spread(nats, counts),
        "perplexity": math.exp(sum(nats) / sum(counts)),
        "bits_per_byte": sum(nats) / size / math.log(2),
        "accuracy": sum(hits) / sum(counts),
        "accuracy_se": spread(hits, counts),
        "exact_match": sum(matches) / n,
        "exact_match_se": spread(matches, [1.0] * n),
    }


def test_every_measure_equals_its_sum_by_hand() -> None:
    sizes = [1, 2, 3, 1, 4]
    logits, targets = example()
    metrics = sequence_metrics(MEASURES, token_bytes=torch.tensor(sizes))
    metrics.update(logits, targets)
    found = {name: float(value) for name, value in metrics.compute().items()}
    assert found == pytest.approx(by_hand(logits, targets, sizes), rel=1e-5)
    assert 0 < found["exact_match"] < found["accuracy"] < 1


def test_loss_accuracy_and_exact_match_agree_with_torchmetrics() -> None:
    logits, targets = example(1)
    metrics = sequence_metrics(MEASURES)
    metrics.update(logits, targets)
    found = metrics.compute()
    assert found["perplexity"] == pytest.approx(float(Perplexity(ignore_index=IGNORE)(logits, targets)), rel=1e-5)
    accuracy = MulticlassAccuracy(V, average="micro", ignore_index=IGNORE)
    assert found["accuracy"] == pytest.approx(float(accuracy(logits.transpose(1, 2), targets)))
    exact = MulticlassExactMatch(V, ignore_index=IGNORE)
    full = targets[(targets != IGNORE).any(1)]  # torchmetrics counts a sequence without targets as matched
    assert found["exact_match"] == pytest.approx(float(exact(logits[(targets != IGNORE).any(1)].transpose(1, 2), full)))


def test_with_equally_long_sequences_the_standard_error_is_the_ordinary_one_of_their_means() -> None:
    logits, _ = example(2)
    targets = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(3))
    metrics = sequence_metrics(["loss_se"])
    metrics.update(logits, targets)
    means = torch.nn.functional.cross_entropy(logits.transpose(1, 2).double(), targets, reduction="none").mean(1)
    assert float(metrics.compute()["loss_se"]) == pytest.approx(float(means.std()) / math.sqrt(B), rel=1e-5)


def test_the_standard_error_of_ragged_sequences_is_the_spread_of_the_mean_over_repetitions() -> None:
    generator = torch.Generator().manual_seed(4)
    metrics = sequence_metrics(["loss", "loss_se"])
    losses, errors = [], []
    for _ in range(150):
        counts = torch.randint(1, 9, (64,), generator=generator)
        targets = torch.zeros(64, 8, dtype=torch.long).masked_fill(torch.arange(8) >= counts.unsqueeze(1), IGNORE)
        # Tokens of a sequence share its difficulty, which also depends on its length.
        level = torch.randn(64, 1, generator=generator) + 0.2 * counts.unsqueeze(1)
        logits = torch.stack([torch.zeros(64, 8), level.expand(64, 8)], dim=2)
        metrics.reset()
        metrics.update(logits, targets)
        found = metrics.compute()
        losses.append(float(found["loss"]))
        errors.append(float(found["loss_se"]))
    spread = float(torch.tensor(losses).std())
    assert sum(errors) / len(errors) == pytest.approx(spread, rel=0.2), "a standard deviation of 150 is known to 6 %"


def test_many_updates_equal_one_and_reset_forgets() -> None:
    logits, targets = example()
    whole, parts = sequence_metrics(MEASURES), sequence_metrics(MEASURES)
    whole.update(logits, targets)
    for start in range(0, B, 2):
        parts.update(logits[start : start + 2], targets[start : start + 2])
        parts.compute()  # a value asked for in between must not be kept
    assert {k: float(v) for k, v in parts.compute().items()} == pytest.approx(
        {k: float(v) for k, v in whole.compute().items()}
    )
    parts.reset()
    other = example(5)
    parts.update(*other)
    fresh = sequence_metrics(MEASURES)
    fresh.update(*other)
    assert {k: float(v) for k, v in parts.compute().items()} == {k: float(v) for k, v in fresh.compute().items()}


def test_a_collection_goes_through_each_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    update = SequenceMetric.update

    def counted(self: SequenceMetric, logits: Tensor, targets: Tensor) -> None:
        calls.append(self.measure.__name__)
        update(self, logits, targets)

    monkeypatch.setattr(SequenceMetric, "update", counted)
    metrics = sequence_metrics(MEASURES)
    for _ in range(3):
        metrics.update(*example())
    assert len(calls) == 3


def test_nothing_measured_is_not_a_number_never_zero() -> None:
    metrics = sequence_metrics(MEASURES)
    logits, targets = example()
    metrics.update(logits, torch.full_like(targets, IGNORE))
    assert all(math.isnan(value) for value in metrics.compute().values())
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert all(math.isnan(value) for value in sequence_metrics(MEASURES).compute().values())
    one = sequence_metrics(["loss", "loss_se"])
    one.update(logits[:1], targets[:1])
    found = one.compute()
    assert math.isfinite(found["loss"]) and math.isnan(found["loss_se"]), "one sequence has no spread"


def test_half_precision_logits_are_measured_in_single_precision() -> None:
    logits, targets = example()
    half, single = sequence_metrics(["loss"]), sequence_metrics(["loss"])
    half.update(logits.bfloat16(), targets)
    single.update(logits.bfloat16().float(), targets)
    assert half.compute()["loss"] == single.compute()["loss"]


def test_logits_of_a_diverged_model_give_a_loss_that_shows_it() -> None:
    logits, targets = example()
    logits[0] = math.nan
    metrics = sequence_metrics(["loss"])
    metrics.update(logits, targets)
    assert math.isnan(metrics.compute()["loss"])


def fallible_copier(task: Copy) -> Callable[[list[int]], int]:
    """Copies right, except where the prefix has a certain remainder: then it says the separator."""

    def next_token(prefix: list[int]) -> int:
        if sum((place + 1) * token for place, token in enumerate(prefix)) % 19 == 3:
            return task.separator_token
        start = prefix.index(task.separator_token)
        done = len(prefix) - start - 1
        return prefix[done] if done < start else task.end_token

    return next_token


def test_exact_match_under_teacher_forcing_is_that_of_greedy_generation() -> None:
    task = Copy(symbols=9, lengths=[2, 8], batch_size=64)
    next_token = fallible_copier(task)
    batch = task.evaluation("val")[0].batch(0)
    logits = torch.zeros(*batch.inputs.shape, task.vocab_size)
    generated_right = 0
    for row, (inputs, targets) in enumerate(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)):
        prompt = inputs[: inputs.index(task.separator_token) + 1]
        answer = [token for token in targets if token != IGNORE]
        generated: list[int] = []
        while len(generated) < len(answer):
            generated.append(next_token(prompt + generated))
        generated_right += generated == answer
        for place in range(len(prompt) - 1, len(prompt) - 1 + len(answer)):
            logits[row, place, next_token(inputs[: place + 1])] = 1.0
    metrics = task.metrics()
    metrics.update(logits, batch.targets)
    assert 0 < generated_right < 64
    assert float(metrics.compute()["exact_match"]) == pytest.approx(generated_right / 64)
