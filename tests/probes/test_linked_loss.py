"""The loss at linked places is the mean of the targets where an earlier place answers, found pair by pair."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import Interface, Readout
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes.base import finding_of
from swapformer.probes.linked_loss import LinkedLoss
from swapformer.task.base import IGNORE, Batch, EvaluationSet

LINKS = [["name", "defined"], ["callee", "signature"]]
ROWS, LENGTH = 3, 9


class Tagged:
    """Two batches with random tags of few values; the first place is never asked for."""

    tags, interface = ("name", "defined", "callee", "signature"), Interface(VOCABULARY)

    def batch(self, index: int) -> Batch:
        targets = ids(ROWS, LENGTH, seed=index)
        targets[:, 0] = IGNORE
        tags = {name: ids(ROWS, LENGTH, seed=50 + index + 7 * n) for n, name in enumerate(self.tags)}
        return Batch(inputs=ids(ROWS, LENGTH, seed=100 + index), targets=targets, tags=tags)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        return [EvaluationSet("", 2, self.batch)]


@pytest.fixture(scope="module")
def model() -> Topology:
    return Subject(small(["model/position=alibi"]), "position").perturbed()


def by_hand(model: Topology, task: Tagged, links: list[list[str]]) -> dict[bool, list[float]]:
    """Every loss, by whether an earlier place answers."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for index in range(2):
        batch = task.batch(index)
        logits = model.answers(batch.inputs, Tokens.of(LENGTH))[""]
        for row in range(ROWS):
            for i in range(LENGTH):
                if (target := int(batch.targets[row, i])) == IGNORE:
                    continue
                linked = any(
                    int(batch.tags[query][row, i]) == int(batch.tags[key][row, j])
                    for query, key in links
                    for j in range(i)
                )
                values = logits[row, i].tolist()
                found[linked].append(math.log(sum(map(math.exp, values))) - values[target])
    return found


def test_losses_are_means_over_linked_and_other_places(model: Topology) -> None:
    task: Any = Tagged()
    for links in (LINKS, LINKS[:1]):
        with torch.no_grad():
            metrics = LinkedLoss(batches=2, links=links).measure(model, task).metrics
            expected = by_hand(model, task, links)
        assert len(expected[True]) > 3 and len(expected[False]) > 3
        assert metrics["probe/linked_loss"] == pytest.approx(sum(expected[True]) / len(expected[True]), rel=1e-5)
        assert metrics["probe/unlinked_loss"] == pytest.approx(sum(expected[False]) / len(expected[False]), rel=1e-5)
        assert metrics["probe/linked_share"] == pytest.approx(len(expected[True]) / sum(map(len, expected.values())))


def test_what_is_linked_to_a_later_place_alone_is_not_linked() -> None:
    batch = Tagged().batch(0)
    tags = {"name": torch.tensor([[1, 2, 3]]), "defined": torch.tensor([[0, 1, 3]])}
    batch = Batch(inputs=batch.inputs[:1, :3], targets=batch.targets[:1, :3], tags=tags)
    assert LinkedLoss(batches=1, links=[["name", "defined"]]).linked(batch).tolist() == [[False, False, False]]
    batch = Batch(inputs=batch.inputs, targets=batch.targets, tags={**tags, "name": torch.tensor([[1, 0, 1]])})
    assert LinkedLoss(batches=1, links=[["name", "defined"]]).linked(batch).tolist() == [[False, True, True]]


def test_wrong_settings_and_tasks_are_refused(model: Topology) -> None:
    for links in ([], [["name"]]):
        with pytest.raises(ValueError, match=r"must be pairs such as \[\[name, defined\]\]"):
            LinkedLoss(batches=1, links=links)
    task: Any = Tagged()
    with pytest.raises(ValueError, match=r"needs the tags block, but Tagged supplies name, defined, callee, signature"):
        finding_of(LinkedLoss(batches=1, links=[["block", "name"]]), model, task)
    task.interface = Interface(0, channels=1, readouts={"": Readout(1, "values", "position")})
    with pytest.raises(ValueError, match="asks for values of a position"):
        finding_of(LinkedLoss(batches=1, links=LINKS), model, task)
