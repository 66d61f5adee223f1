"""The masks that are drawn are those that attention uses: where a weight is not zero, a key is allowed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import Interface
from swapformer.model.topology import Topology
from swapformer.probes.attention_statistics import watched_weights
from swapformer.probes.base import finding_of
from swapformer.probes.pattern_mask import PatternMask
from swapformer.results.shapes import AttentionMaps
from swapformer.task.base import Batch, EvaluationSet

ROWS, LENGTH = 3, 8
PADDED = [0, 2, 5]
BY_SPEAKER = ["model/pattern=same_tag", "model/kernel=reference"]
BY_HEAD = ["model/pattern=multi_scale", "model/kernel=reference", "model.num_heads=2"]


class Spoken:
    """Two batches of turns of two speakers, some rows padded at their end."""

    tags, interface = ("speaker",), Interface(VOCABULARY)
    tokens = tuple(f"t{index}" for index in range(VOCABULARY))

    def __init__(self, padded: bool) -> None:
        self.padded = padded

    def batch(self, index: int) -> Batch:
        padding = torch.arange(LENGTH) >= LENGTH - torch.tensor(PADDED)[:, None] if self.padded else None
        inputs = ids(ROWS, LENGTH, seed=index)
        return Batch(inputs=inputs, targets=inputs, padding=padding, tags={"speaker": ids(ROWS, LENGTH, seed=9) % 2})

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        return [EvaluationSet("", 2, self.batch)]


def made(overrides: list[str]) -> Topology:
    return Subject(small(overrides), "pattern").perturbed()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("overrides", [BY_SPEAKER, BY_HEAD], ids=["by tag", "by head"])
def test_allowed_are_the_keys_with_a_weight(overrides: list[str], padded: bool) -> None:
    model, task = made(overrides), Spoken(padded)
    allowed = earlier = 0.0
    with torch.no_grad():
        found = PatternMask(batches=2, sequence=1, tokens=6).measure(model, task)  # type: ignore[arg-type]
        for index in range(2):
            batch = task.batch(index)
            for _, weights, _ in watched_weights(model, batch):
                for row in range(ROWS):
                    real = LENGTH - (PADDED[row] if padded else 0)
                    allowed += float((weights[row, :, :real] > 0).sum()) / weights.shape[1]
                    earlier += real * (real + 1) / 2
        drawn: Any = found.shapes["mask"]
        _, weights, _ = watched_weights(model, task.batch(0))[0]
    assert found.metrics["probe/keys_share"] == pytest.approx(allowed / earlier)
    real = LENGTH - (PADDED[1] if padded else 0)
    expected = {
        f"layer 1 head {head + 1}": (weights[1, head, real - 6 : real, real - 6 : real] > 0).float().tolist()
        for head in range(weights.shape[1])
    }
    assert isinstance(drawn, AttentionMaps)
    maps = {name: [list(row) for row in rows] for name, rows in drawn.maps.items()}
    assert len(maps) == (2 if overrides is BY_HEAD else 1) and all(maps[name] == expected[name] for name in maps)
    assert list(drawn.tokens) == [f"t{index}" for index in task.batch(0).inputs[1, real - 6 : real].tolist()]


def test_full_attention_in_both_directions_has_more_than_the_causal_pairs() -> None:
    task: Any = Spoken(False)
    share = PatternMask(batches=1, sequence=0, tokens=4).measure(made(["model/pattern=causal"]), task).metrics
    assert share == {"probe/keys_share": 1.0}


def test_a_model_without_patterns_is_refused() -> None:
    task: Any = Spoken(False)
    model = Subject(small(["model/attention=gated_delta", "model/position=none"]), "attention").perturbed()
    with pytest.raises(ValueError, match="a layer of this model has none"):
        finding_of(PatternMask(batches=1, sequence=0, tokens=4), model, task)
