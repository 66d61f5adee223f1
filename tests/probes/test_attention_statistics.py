"""Scores of heads against heads whose scores are known by construction, and against loops in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import Interface, Readout
from swapformer.model.topology import Topology
from swapformer.probes import head_scores
from swapformer.probes.attention_statistics import AttentionStatistics, LongAttention
from swapformer.probes.base import finding_of
from swapformer.probes.head_scores import SCORES, SeenAttention
from swapformer.results.shapes import AttentionMaps, Histogram, Matrix
from swapformer.task.base import IGNORE, Batch, EvaluationSet

LENGTH, SYMBOLS = 16, 8
SHARP = 100.0
"""Of logits, so that softmax leaves nothing beside the largest."""


class Read:
    """One batch of random symbols, in which every second place is scored."""

    interface, vocab_size, tokens = Interface(VOCABULARY), VOCABULARY, [f"s{index}" for index in range(VOCABULARY)]

    def __init__(self) -> None:
        inputs = torch.randint(SYMBOLS, (4, LENGTH), generator=torch.Generator().manual_seed(0))
        targets = inputs.roll(-1, 1)
        targets[:, ::2] = IGNORE
        self.batch = Batch(inputs=inputs, targets=targets)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        return [EvaluationSet("", 1, lambda _: self.batch)]


def induction_pair(*overrides: str) -> Topology:
    """Two layers of two heads: the first ones are an induction pair, the second ones see all allowed keys alike.

    The stream holds a token (dimensions 0–7), the token before (8–15, written by layer 1) and a position (16–31).
    """
    sizes = ["model.num_heads=2", f"model.max_len={LENGTH}"]
    settings = ["model/position=learned", "model/norm=none", *sizes, *overrides]
    model = Subject(small(settings), "position").build().eval()
    with torch.no_grad():
        named = dict(model.named_parameters())
        for parameter in named.values():
            parameter.zero_()
        one = torch.eye(16, dtype=torch.float64)
        named["embedding.weight"][:SYMBOLS, :8] = one[:8, :8]
        (table,) = (parameter for name, parameter in named.items() if "position" in name)
        table[:, 16:] = one
        layers: Any = model.stack.layers
        before, after = layers[0].attention, layers[1].attention
        before.query.weight[:16, 16:] = SHARP * one.roll(-1, 0)  # asks for the position one less
        before.key.weight[:16, 16:] = one
        before.value.weight[:8, :8] = one[:8, :8]
        before.out.weight[8:16, :8] = one[:8, :8]
        after.query.weight[:8, :8] = SHARP * one[:8, :8]  # asks for places behind its own token
        after.key.weight[:8, 8:16] = one[:8, :8]
        after.key.weight[:8, 16] = -1.0  # nothing is before the first place, which wrote its own token
    return model


def measured(model: Topology, task: Any) -> tuple[dict[str, float], dict[str, Any]]:
    with torch.no_grad():
        finding = AttentionStatistics(batches=2, tokens=5).measure(model, task)
    return dict(finding.metrics), dict(finding.shapes)


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, float], dict[str, Any]]:
    return measured(induction_pair(), Read())


SCORED = range(1, LENGTH, 2)


def closed_form(value: Any) -> float:
    """The mean over scored queries, which are alike in all sequences."""
    return sum(map(value, SCORED)) / len(SCORED)


def test_an_induction_pair_scores_one(found: tuple[dict[str, float], dict[str, Any]]) -> None:
    metrics, shapes = found
    previous, matching = shapes["heads/previous_token"].values, shapes["heads/prefix_matching"].values
    assert previous[0][0] == pytest.approx(1, abs=1e-9) == metrics["probe/previous_token"]
    assert matching[1][0] == pytest.approx(1, abs=1e-9) == metrics["probe/prefix_matching"]
    assert matching[0][0] < 0.5 and previous[1][0] < 0.5, "each head does its own"


def test_uniform_heads_score_their_closed_forms(found: tuple[dict[str, float], dict[str, Any]]) -> None:
    """Query i of a causal model sees i + 1 keys, each with a share of 1/(i + 1)."""
    _, shapes = found
    uniform = {name: shapes[f"heads/{name}"].values[0][1] for name in SCORES}
    for name in ("distance", "entropy", "distance_rest", "entropy_rest"):
        assert uniform[name] == pytest.approx(1, abs=1e-12)
    assert uniform["future"] == uniform["next_token"] == 0
    assert uniform["first_key"] == pytest.approx(closed_form(lambda i: 1 / (i + 1)))
    assert uniform["previous_token"] == pytest.approx(closed_form(lambda i: 1 / (i + 1)))
    # one step back, where uniform attention is i / 2 steps away on average
    assert shapes["heads/distance"].values[0][0] == pytest.approx(closed_form(lambda i: 2 / i))
    histogram = shapes["distances"]
    assert isinstance(histogram, Histogram)
    both = [sum(1 / (i + 1) for i in SCORED if i >= far) / len(SCORED) for far in range(LENGTH)]
    assert histogram.counts["uniform"] == pytest.approx(both)
    assert histogram.counts["layer 1"] == pytest.approx([(each + (far == 1)) / 2 for far, each in enumerate(both)])
    assert histogram.edges == tuple(edge - 0.5 for edge in range(LENGTH + 1))


def test_metrics_are_means_by_layer_and_over_layers(found: tuple[dict[str, float], dict[str, Any]]) -> None:
    metrics, shapes = found
    for name in ("distance", "entropy", "distance_rest", "entropy_rest"):
        layers = [sum(row) / 2 for row in shapes[f"heads/{name}"].values]
        assert [metrics[f"probe/{name}_by_layer@{layer}"] for layer in (1, 2)] == pytest.approx(layers)
        assert metrics[f"probe/{name}"] == pytest.approx(sum(layers) / 2)
        assert shapes[f"layers/{name}"].values[0] == pytest.approx(layers)
    assert metrics["probe/rare_token"] == max(max(row) for row in shapes["heads/rare_token"].values)
    matrix, maps = shapes["heads/distance"], shapes["maps"]
    assert isinstance(matrix, Matrix) and isinstance(maps, AttentionMaps)
    assert matrix.rows == ("layer 1", "layer 2") and matrix.columns == ("head 1", "head 2")
    assert list(maps.tokens) == [f"s{index}" for index in Read().batch.inputs[0, :5].tolist()]
    assert maps.maps["layer 1 head 2"][3] == pytest.approx([0.25] * 4 + [0.0])


def test_a_full_pattern_sees_the_future() -> None:
    _, shapes = measured(induction_pair("model/pattern=full"), Read())
    future, following = (shapes[f"heads/{name}"].values[0] for name in ("future", "next_token"))
    assert future == pytest.approx([0, closed_form(lambda i: (LENGTH - 1 - i) / LENGTH)], abs=1e-9)
    assert following == pytest.approx([0, 1 / LENGTH], abs=1e-9)


class Lengths(Read):
    """Beside the batch like training's, the set "@6": another batch, of 6 tokens."""

    def __init__(self) -> None:
        super().__init__()
        inputs = torch.randint(SYMBOLS, (4, 6), generator=torch.Generator().manual_seed(1))
        self.short = Batch(inputs=inputs, targets=inputs.roll(-1, 1))

    def evaluation(self, split: str) -> list[EvaluationSet]:
        return [*super().evaluation(split), EvaluationSet("@6", 1, lambda _: self.short)]


def test_another_set_is_looked_at_as_if_it_were_the_only_one() -> None:
    """The scores and maps of "@6" are those of a task whose only data they are, and no others."""
    task: Any = Lengths()
    with torch.no_grad():
        finding = LongAttention(length=6, batches=2, tokens=5).measure(induction_pair(), task)
        other = Read()
        other.batch = task.short
        alone, shapes = measured(induction_pair(), other)
    assert finding.metrics == {f"{name}@6": value for name, value in alone.items() if "_by_layer@" not in name}
    assert finding.shapes == shapes
    like_training, _ = measured(induction_pair(), task)
    assert finding.metrics["probe/prefix_matching@6"] == pytest.approx(1, abs=1e-9)
    assert finding.metrics["probe/entropy@6"] != like_training["probe/entropy"], "the set of the training length"


def test_a_set_that_is_not_there_is_refused() -> None:
    refused = LongAttention(length=7, batches=1, tokens=1).unsuited(induction_pair(), Lengths())  # type: ignore[arg-type]
    assert refused == (
        "long_attention looks at the evaluation set @7, but the task has @6; set probes.long_attention.length to one "
        "of them, or add 7 to task.eval_lengths."
    )


# The same scores by loops over sequences, heads, queries and keys.


def example() -> tuple[Batch, Tensor, Tensor, Tensor]:
    """A batch with padding and unscored places, positive weights, a causal mask and frequencies."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randint(4, (3, 7), generator=generator)
    padding = torch.arange(7) >= torch.tensor([7, 5, 4])[:, None]
    targets = torch.where(torch.rand(3, 7, generator=generator) < 0.3, IGNORE, inputs.roll(-1, 1))
    allowed = torch.ones(7, 7).tril().bool()[None, None] & ~padding[:, None, None, :]
    weights = torch.rand(3, 2, 7, 7, generator=generator, dtype=torch.float64) * allowed
    frequency = torch.tensor([5, 3, 8, 3])
    return Batch(inputs=inputs, targets=targets, padding=padding), weights, allowed, frequency


def by_loops(name: str) -> list[float]:
    """The mean of a score over the queries that count, for each head."""
    batch, weights, allowed, frequency = example()
    assert batch.padding is not None
    heads = []
    for head in range(2):
        values = []
        for row in range(3):
            tokens = batch.inputs[row].tolist()
            for i in range(7):
                keys = [j for j in range(7) if allowed[row, 0, i, j]]
                if batch.padding[row, i] or batch.targets[row, i] == IGNORE or len(keys) < 2:
                    continue
                if name.endswith("_rest"):
                    keys = keys[1:]
                total = sum(float(weights[row, head, i, j]) for j in keys)
                shares = {j: float(weights[row, head, i, j]) / total for j in keys}
                value: float | None
                if name.startswith("distance"):
                    even = sum(i - j for j in keys) / len(keys)
                    value = sum(share * (i - j) for j, share in shares.items()) / even if even else None
                elif name.startswith("entropy"):
                    spread = -sum(share * math.log(share) for share in shares.values())
                    value = spread / math.log(len(keys)) if len(keys) > 1 else None
                else:
                    rarest = min(int(frequency[tokens[j]]) for j in keys)
                    chosen = {
                        "first_key": [j for j in keys if j == 0],
                        "previous_token": [j for j in keys if j == i - 1],
                        "prefix_matching": [j for j in keys if j > 0 and tokens[j - 1] == tokens[i]],
                        "rare_token": [j for j in keys if frequency[tokens[j]] == rarest],
                        "answer": [j for j in keys if tokens[j] == batch.targets[row, i]],
                        "future": [j for j in keys if j > i],
                        "next_token": [j for j in keys if j == i + 1],
                    }[name]
                    value = sum(shares[j] for j in chosen)
                    if name == "next_token" and (i == 6 or batch.padding[row, i + 1]):
                        value = None
                    if name in ("answer", "previous_token", "prefix_matching") and not chosen:
                        value = None
                values += [] if value is None else [value]
        heads.append(sum(values) / len(values))
    return heads


def require_loops() -> None:
    found = dict(SeenAttention.of(*example()).totals())
    assert found.keys() == SCORES.keys()
    for name, totals in found.items():
        assert totals.means == pytest.approx(by_loops(name), abs=1e-12), name


def test_scores_equal_loops_in_float64() -> None:
    require_loops()


def test_classes_and_answers_of_whole_sequences_are_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "probe/answer" in measured(induction_pair(), Read())[0]
    for readout in (Readout(VOCABULARY, "classes"), Readout(VOCABULARY, per="sequence")):
        monkeypatch.setattr(Read, "interface", Interface(VOCABULARY, readouts={"": readout}))
        found, shapes = measured(induction_pair(), Read())
        assert "probe/answer" not in found and "heads/answer" not in shapes and "probe/previous_token" in found


def test_documents_in_one_row_are_scored_as_in_rows_of_their_own() -> None:
    """Two documents of four tokens, both with token 9 at the end, and each query on the first token of its own."""
    ids, document = torch.tensor([[1, 2, 3, 9, 4, 5, 6, 9]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    weights = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    weights[0, 0, :4, 0] = weights[0, 0, 4:, 4] = 1.0
    allowed = (torch.ones(8, 8).tril().bool() & (document.mT == document))[None, None]
    together = SeenAttention.of(Batch(inputs=ids, targets=ids, document=document), weights, allowed, torch.ones(10))
    parts = [
        SeenAttention.of(
            Batch(inputs=ids[:, each], targets=ids[:, each]), weights[..., each, each], allowed[..., each, each],
            torch.ones(10),
        )
        for each in (slice(4), slice(4, 8))
    ]  # fmt: skip
    apart = [dict(part.totals()) for part in parts]
    for name, found in together.totals():
        assert found.means == (apart[0][name] + apart[1][name]).means, name


FAULTS: dict[str, tuple[str, Any]] = {
    "off by one": ("previous_keys", lambda order: (order[:, None, :] == order[:, :, None] - 2)[:, None]),
    "matches the token itself": (
        "keys_after_same",
        lambda inputs, _: (inputs[:, :, None] == inputs[:, None, :])[:, None],
    ),
    "answers with its own token": (
        "answer_keys",
        lambda inputs, _: (inputs[:, :, None] == inputs[:, None, :])[:, None],
    ),
    "unscored places counted": ("_scored", lambda batch: ~batch.padding),
    "padding counted": ("_scored", lambda batch: batch.targets != IGNORE),
    "uniform over all keys": (
        "relative_entropy",
        lambda shares, allowed, counted: head_scores.share_on(shares, allowed, counted),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_scores, *FAULTS[fault])
    with pytest.raises(AssertionError):
        require_loops()


def test_the_future_counts_as_future_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight on later keys is no distance back: of a mask that is dropped, the share on the future tells.

    Uniform attention on the n tokens of a row has 1/n on the token right behind; the last one has none and is left out.
    """
    batch, weights, _, frequency = example()
    assert batch.padding is not None
    real = (~batch.padding)[:, None, None, :].expand_as(weights)
    sizes = (7, 5, 4)
    asked = [(row, i) for row in range(3) for i in range(sizes[row] - 1) if batch.targets[row, i] != IGNORE]
    expected = sum(1 / sizes[row] for row, _ in asked) / len(asked)
    found = dict(SeenAttention.of(batch, real.double(), real, frequency).totals())["next_token"].means
    assert found == pytest.approx([expected, expected])
    seen = dict(SeenAttention.of(batch, torch.ones_like(weights), None, frequency).totals())
    assert all(mean is not None and mean > 0.2 for mean in seen["future"].means)
    assert seen["distance"].means == pytest.approx([1, 1])


def test_a_model_without_weights_is_refused() -> None:
    model: Any = Subject(small(["model/attention=mamba2"]), "attention").build()
    task: Any = Read()
    with pytest.raises(ValueError, match=r"attention_statistics looks at attention weights: .*hook_pattern"):
        finding_of(AttentionStatistics(batches=1, tokens=1), model, task)


def test_a_single_layer_has_no_later_layers() -> None:
    model: Any = Subject(small(["model.num_layers=1"]), "position").build().eval()
    task: Any = Read()
    task.batch = Batch(inputs=ids(2, 12), targets=ids(2, 12))
    metrics, _ = measured(model, task)
    assert "probe/prefix_matching" not in metrics
    assert 0 < metrics["probe/previous_token"] < 1


@pytest.mark.parametrize("kind", ["nystrom", "linformer"])
def test_an_attention_to_all_keys_keeps_the_pattern_that_says_which_are_allowed(kind: str) -> None:
    """Without it the probe took padding for keys that may be seen."""
    model: Any = Subject(small([f"model/attention={kind}", "model/pattern=full"]), "attention").build()
    assert getattr(model.stack.layers[0].attention, "pattern", None) is not None


def test_a_query_that_may_look_at_one_key_only_is_not_counted() -> None:
    """It has no choice: counted, each first token would raise the score of looking at the first key."""
    inputs = torch.zeros(1, 4, dtype=torch.int64)
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    weights = torch.eye(4)[None, None].expand(1, 2, 4, 4)
    seen = SeenAttention.of(Batch(inputs=inputs, targets=inputs), weights, allowed, None)
    assert seen.counted.tolist() == [[[False, True, True, True]] * 2]
    assert seen.counted.sum() == 2 * 3 and not bool((seen.counted & (seen.allowed.sum(-1) == 1)).any())
