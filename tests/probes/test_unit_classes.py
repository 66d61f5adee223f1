"""What units tell apart: areas and mutual information as loops, units and clusters that are classes by construction."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from configs import small, wide
from swapformer.conformance.subject import VOCABULARY
from swapformer.interface import Interface
from swapformer.model.taps import record
from swapformer.model.topology import Topology
from swapformer.probes import unit_classes
from swapformer.probes.hidden_units import (
    CLASSES,
    area_under_curve,
    carriers,
    character_class,
    classes_of,
    clusters,
    mutual_information,
)
from swapformer.probes.unit_classes import UnitClasses
from swapformer.task.base import Batch, EvaluationSet
from swapformer.training.assemble import build_model

TOKENS = [*"abc", *"0123", " ", *"()"]
DIGITS = slice(3, 7)


class Characters:
    """Sequences of characters drawn at random, so that none says anything of the next."""

    interface, vocab_size, tokens, predicts_next = Interface(VOCABULARY), VOCABULARY, TOKENS, True

    def batch(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(index)
        inputs = torch.randint(len(TOKENS), (16, 12), generator=generator)
        return Batch(inputs=inputs, targets=inputs.roll(-1, 1))

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        return [EvaluationSet("", None, self.batch)]


def digit_model() -> Topology:
    """A layer whose first hidden unit is 1 at digits and 0 elsewhere; all others are 0."""
    model: Topology = wide(
        build_model(small(["model.num_layers=1", "model/norm=none", "model/activation=relu"]), VOCABULARY)
    )
    model.eval().requires_grad_(False)
    named: Any = dict(model.named_parameters())
    for parameter in named.values():
        parameter.zero_()
    next(each for name, each in named.items() if "embedding" in name)[DIGITS, 0] = 1.0
    layers: Any = model.stack.layers
    layers[0].ffn.up.weight[0, 0] = 1.0
    return model


def measured(area: float = 0.9) -> dict[str, float]:
    task: Any = Characters()
    with torch.no_grad():
        return dict(UnitClasses(batches=2, area=area).measure(digit_model(), task).metrics)


def require_the_digit_unit() -> None:
    found = measured()
    units = digit_model().stack.layers[0].ffn.up.weight.shape[0]  # type: ignore[index, union-attr]
    assert found["probe/units/specialised"] == pytest.approx(1 / units) == found["probe/units/specialised_by_layer@1"]
    assert found["probe/units/specialised_next"] == found["probe/units/specialised_shuffled"] == 0
    assert found["probe/units/classes"] == pytest.approx(1 / 4), "digits, of digits, lower case, space and brackets"
    assert found["probe/clusters/read"] == pytest.approx(found["probe/clusters/embedding_read"])


def test_a_unit_that_is_a_class_is_found_and_no_other() -> None:
    require_the_digit_unit()


def test_clusters_of_the_stream_are_of_what_the_last_layers_units_read() -> None:
    task: Any = Characters()
    model: Topology = wide(build_model(small(["model.num_layers=2", "model/activation=relu"]), VOCABULARY)).eval()
    classes = classes_of([*TOKENS, *[""] * (VOCABULARY - len(TOKENS))])
    values, read = [], []
    with torch.no_grad():
        found = UnitClasses(batches=2, area=0.9).measure(model, task).metrics
        for index in range(2):
            with record(model, "blocks.1.hook_resid_mid") as seen:
                model(task.batch(index).inputs)
            values.append(seen["blocks.1.hook_resid_mid"].flatten(0, 1))
            read.append(classes[task.batch(index).inputs.flatten()])
    labels = clusters(torch.cat(values), len(CLASSES), seed=0)
    assert found["probe/clusters/stream_read"] == pytest.approx(mutual_information(labels, torch.cat(read)), rel=1e-9)
    assert found["probe/clusters/stream_read"] != found["probe/clusters/embedding_read"]


@pytest.mark.parametrize("fault", ["other_classes", "no_fewest", "area_from_below"])
def test_a_planted_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    area = area_under_curve
    planted: dict[str, tuple[str, Any]] = {
        "other_classes": ("classes_of", lambda tokens: torch.arange(len(tokens)) % len(CLASSES)),
        "no_fewest": ("_FEWEST", 100),
        "area_from_below": ("area_under_curve", lambda *given: 1 - area(*given)),
    }
    monkeypatch.setattr(unit_classes, *planted[fault])
    with pytest.raises(AssertionError):
        require_the_digit_unit()


def test_the_area_counts_pairs() -> None:
    """P(x of the class > x of another) + half of the ties, as a loop over all pairs."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(5, (30, 3), generator=generator).double()
    classes = torch.randint(3, (30,), generator=generator)
    found = area_under_curve(values, classes, 4)
    for wanted in range(3):
        for unit in range(3):
            inside = [float(values[n, unit]) for n in range(30) if classes[n] == wanted]
            others = [float(values[n, unit]) for n in range(30) if classes[n] != wanted]
            wins = sum((a > b) + (a == b) / 2 for a in inside for b in others)
            assert float(found[wanted, unit]) == pytest.approx(wins / (len(inside) * len(others)))
    assert found[3].isnan().all(), "no token has the fourth class"


def test_mutual_information_is_that_of_counts() -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randint(3, (50,), generator=generator), torch.randint(4, (50,), generator=generator)

    def entropy(labels: list[Any]) -> float:
        return -sum(n / len(labels) * math.log(n / len(labels)) for n in Counter(labels).values())

    a, b = first.tolist(), second.tolist()
    both = entropy(list(zip(a, b, strict=True)))
    expected = 2 * (entropy(a) + entropy(b) - both) / (entropy(a) + entropy(b))
    assert mutual_information(first, second) == pytest.approx(expected)
    assert mutual_information(first, (first + 1) % 3) == pytest.approx(1), "names do not count"
    assert mutual_information(first, torch.zeros(50, dtype=torch.int64)) == pytest.approx(0)


@pytest.mark.parametrize("seed", range(5))
def test_clusters_that_know_nothing_of_classes_share_less_than_a_hundredth_with_them(seed: int) -> None:
    """What 10_ffn_sparsity calls chance: eight clusters and eight classes, at 8 192 tokens."""
    generator = torch.Generator().manual_seed(seed)
    found, classes = (torch.randint(0, 8, (8192,), generator=generator) for _ in range(2))
    assert mutual_information(found, classes) < 0.01


def test_clusters_are_the_groups_that_lie_apart() -> None:
    groups = torch.arange(60) % 3
    generator = torch.Generator().manual_seed(2)
    points = 10 * torch.eye(3, 5)[groups] + 0.1 * torch.randn(60, 5, generator=generator)
    assert mutual_information(clusters(points, 3, seed=0), groups) == pytest.approx(1)
    assert torch.equal(clusters(points, 3, seed=4), clusters(points, 3, seed=4))
    assert clusters(torch.eye(2)[groups % 2], 5, seed=0).unique().numel() == 2, "only two rows differ"


def test_few_units_carry_much_of_an_uneven_activation() -> None:
    rows = torch.tensor([[8.0, -1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    assert carriers(rows, 0.8).tolist() == [1, 4, 0]
    assert carriers(rows, 0.75).tolist() == [1, 3, 0]


def test_classes_of_characters() -> None:
    named = {
        "\n": "newline",
        " ": "space",
        "\t": "space",
        "7": "digit",
        "Q": "uppercase",
        "q": "lowercase",
        "[": "bracket",
    }
    assert {text: character_class(text) for text in named} == named
    assert [character_class(text) for text in ("'", "_", "+", "", "def", "e3")] == [
        "quote", "other", "other", "other", "lowercase", "lowercase",
    ]  # fmt: skip


@pytest.mark.parametrize("ffn", ["moe", "none"])
def test_a_model_without_the_same_units_for_each_token_is_refused(ffn: str) -> None:
    task: Any = Characters()
    assert UnitClasses(batches=1, area=0.9).unsuited(build_model(small([f"model/ffn={ffn}"]), VOCABULARY), task)
