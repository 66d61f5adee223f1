"""The loss with the tokens behind cut off: a causal model's own loss, and a loop over prefixes in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import Interface, Readout
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes import prefix_loss
from swapformer.probes.base import finding_of
from swapformer.probes.loss_by_position import LossByPosition
from swapformer.probes.prefix_loss import PrefixLoss
from swapformer.task.base import IGNORE, Batch, EvaluationSet

LENGTH = 7
KEPT = (7, 5, 6)
"""Tokens of each row; padding stands behind them."""


class Asked:
    """Two batches with padding at the end and targets here and there; the first place is never asked for."""

    train_length, interface = LENGTH, Interface(VOCABULARY)

    def batch(self, index: int) -> Batch:
        padding = torch.arange(LENGTH) >= torch.tensor(KEPT)[:, None]
        targets = ids(3, LENGTH, seed=index).masked_fill(padding | (ids(3, LENGTH, seed=20 + index) < 4), IGNORE)
        targets[:, 0] = IGNORE
        return Batch(inputs=ids(3, LENGTH, seed=100 + index), targets=targets, padding=padding)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        return [EvaluationSet("", 2, self.batch)]


def model(*overrides: str) -> Topology:
    return Subject(small(["model/position=alibi", *overrides]), "position").perturbed()


def measured(model: Topology, task: Any = None) -> tuple[dict[str, float], Any]:
    with torch.no_grad():
        finding = PrefixLoss(batches=5).measure(model, task or Asked())
    return dict(finding.metrics), finding.shapes["loss"]


def by_hand(model: Topology) -> tuple[list[list[float]], list[bool]]:
    """Row by row and place by place, each on the tokens up to it alone: losses by place, and which were right."""
    losses: list[list[float]] = [[] for _ in range(LENGTH)]
    hits = []
    for index in range(2):
        batch = Asked().batch(index)
        for row in range(3):
            for place in range(KEPT[row]):
                if (target := int(batch.targets[row, place])) != IGNORE:
                    with torch.no_grad():
                        answer = model(batch.inputs[row : row + 1, : place + 1], Tokens.of(place + 1))
                    values = answer[0, -1].tolist()
                    losses[place].append(math.log(sum(map(math.exp, values))) - values[target])
                    hits.append(max(values) == values[target])
    return losses, hits


LOOKING_AHEAD = {
    "a full pattern": ("model/pattern=full",),
    "an encoder that reads the inputs": ("model/topology=encoder_decoder", "model.topology.source=inputs"),
}


@pytest.mark.parametrize("way", LOOKING_AHEAD)
def test_each_target_is_answered_from_the_tokens_up_to_it(way: str) -> None:
    looking = model(*LOOKING_AHEAD[way])
    metrics, curve = measured(looking)
    losses, hits = by_hand(looking)
    every = [loss for place in losses for loss in place]
    assert metrics["probe/prefix_loss"] == pytest.approx(sum(every) / len(every), abs=1e-10)
    assert metrics["probe/prefix_accuracy"] == pytest.approx(sum(hits) / len(hits))
    assert curve.series["cut off"][0] is None, "nothing is asked there, which is not a loss of zero"
    assert curve.series["cut off"][1:] == pytest.approx([sum(each) / len(each) for each in losses[1:]], abs=1e-10)
    gaps = [cut - given for cut, given in zip(curve.series["cut off"][1:], curve.series["given"][1:], strict=True)]
    assert max(map(abs, gaps)) > 0.01 and abs(gaps[-1]) < 1e-10, "later tokens change its answers; the last has none"


def test_in_a_causal_model_nothing_behind_a_place_counts() -> None:
    causal = model()
    metrics, curve = measured(causal)
    task: Any = Asked()
    with torch.no_grad():
        usual = LossByPosition(batches=5).measure(causal, task).shapes["loss"]
    assert metrics["probe/future_gain"] == pytest.approx(0, abs=1e-10)
    assert curve.series["cut off"][1:] == pytest.approx(curve.series["given"][1:], abs=1e-10)
    assert curve.series["given"][1:] == pytest.approx(usual.series[""][1:], abs=1e-10)  # type: ignore[attr-defined]


def test_a_prefix_that_is_not_cut_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token too many holds the target, and its place answers for another one."""
    cut = prefix_loss.prefix_of
    monkeypatch.setattr(prefix_loss, "prefix_of", lambda batch, length: cut(batch, length + 1))
    metrics, _ = measured(model())
    assert abs(metrics["probe/future_gain"]) > 0.01


def test_all_that_is_given_of_a_token_is_cut_with_it() -> None:
    batch = Asked().batch(0)
    order = torch.arange(LENGTH).expand(3, -1)
    whole = replace(batch, document=order, position=order + 2, tags={"turn": order}, source=batch)
    part = prefix_loss.prefix_of(whole, 4)
    for held, kept in (
        *((getattr(whole, name), getattr(part, name)) for name in ("inputs", "padding", "document", "position")),
        (whole.tags["turn"], part.tags["turn"]),
    ):
        assert torch.equal(held[:, :4], kept)
    assert part.source is batch


def test_answers_of_whole_sequences_are_refused() -> None:
    task: Any = Asked()
    task.interface = Interface(VOCABULARY, readouts={"": Readout(3, "classes", "sequence")})
    with pytest.raises(ValueError, match="classes of a sequence, so no target has tokens behind it"):
        finding_of(PrefixLoss(batches=1), model(), task)
