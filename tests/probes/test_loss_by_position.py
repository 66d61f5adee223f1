"""The loss at each place is the mean of the targets there, and what is beyond training is told apart."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import pytest
import torch

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import Interface, Readout
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes.base import finding_of
from swapformer.probes.loss_by_position import LossByPosition
from swapformer.results.shapes import Curve
from swapformer.task.base import IGNORE, Batch, EvaluationSet

TRAINED, LONG = 4, 7


class Asked:
    """Targets here and there, two batches of a trained and of a longer length; the first place is never asked for."""

    train_length, interface = TRAINED, Interface(VOCABULARY)

    def batch(self, length: int, index: int) -> Batch:
        targets = ids(3, length, seed=10 * length + index).masked_fill(ids(3, length, seed=index) < 4, IGNORE)
        targets[:, 0] = IGNORE
        return Batch(inputs=ids(3, length, seed=100 + index), targets=targets)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        sets = (("", TRAINED), (f"@{LONG}", LONG))
        return [EvaluationSet(name, 2, lambda index, length=length: self.batch(length, index)) for name, length in sets]  # type: ignore[misc]


@pytest.fixture(scope="module")
def model() -> Topology:
    return Subject(small(["model/position=alibi"]), "position").perturbed()


def by_hand(model: Topology, task: Asked, length: int) -> list[list[float]]:
    """The losses at each place, one by one."""
    found: list[list[float]] = [[] for _ in range(length)]
    for index in range(2):
        batch = task.batch(length, index)
        logits = model.answers(batch.inputs, Tokens.of(length))[""]
        for row in range(3):
            for place in range(length):
                if (target := int(batch.targets[row, place])) != IGNORE:
                    values = logits[row, place].tolist()
                    found[place].append(math.log(sum(map(math.exp, values))) - values[target])
    return found


def test_every_place_has_the_mean_of_its_own_targets(model: Topology) -> None:
    task: Any = Asked()
    with torch.no_grad():
        finding = LossByPosition(batches=5).measure(model, task)
        for name, length in (("", TRAINED), (f"@{LONG}", LONG)):
            right = by_hand(model, task, length)
            curve = finding.shapes[f"loss{name}"]
            assert isinstance(curve, Curve) and curve.xs == tuple(range(1, length + 1))
            assert curve.weights[""] == tuple(len(losses) for losses in right)
            assert curve.series[""][0] is None, "nothing is asked there, which is not a loss of zero"
            means = [sum(losses) / len(losses) for losses in right[1:]]
            assert curve.series[""][1:] == pytest.approx(means, abs=1e-10)
        within, beyond = (list(chain.from_iterable(parts)) for parts in (right[:TRAINED], right[TRAINED:]))
        assert finding.metrics == {
            "probe/loss_within@7": pytest.approx(sum(within) / len(within), abs=1e-10),
            "probe/loss_beyond@7": pytest.approx(sum(beyond) / len(beyond), abs=1e-10),
        }


def test_answers_of_whole_sequences_are_refused(model: Topology) -> None:
    task: Any = Asked()
    task.interface = Interface(VOCABULARY, readouts={"": Readout(3, "classes", "sequence")})
    with pytest.raises(ValueError, match="classes of a sequence, so there is no loss by position"):
        finding_of(LossByPosition(batches=1), model, task)
