"""A model that writes by itself is right exactly where its own words are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs import accepted, small
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.model.generate import Prompt, complete, greedy
from swapformer.model.topology import Topology
from swapformer.probes.base import finding_of
from swapformer.probes.generation import Generation
from swapformer.study.config.compose import check, compose
from swapformer.task.base import IGNORE, Batch, EvaluationSet

PROMPTS, ANSWER = (3, 5, 4, 6), 4


class Echo:
    """A task whose right answers are what a model writes, but for one symbol in every second row."""

    predicts_next, end_token, interface = True, 0, Interface(VOCABULARY)

    def __init__(self, model: Topology, *, shift: int = 1) -> None:
        length = max(PROMPTS) + ANSWER - 1
        inputs = torch.zeros(len(PROMPTS), length, dtype=torch.int64)
        targets = torch.full_like(inputs, IGNORE)
        for row, width in enumerate(PROMPTS):
            prompt = ids(1, width, seed=row)
            answer = complete(model, Prompt(prompt), ANSWER, greedy)[0]
            inputs[row, :width] = prompt
            inputs[row, width : width + ANSWER - 1] = answer[:-1]
            targets[row, width - 1 : width - 1 + ANSWER] = answer
            if row % 2:
                place = width - 2 + ANSWER
                targets[row, place] = (targets[row, place] + shift) % VOCABULARY
        padding = torch.arange(length) >= torch.tensor(PROMPTS)[:, None] + ANSWER - 1
        self.batch = Batch(inputs=inputs, targets=targets, padding=padding)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        return [EvaluationSet("", 1, lambda _: self.batch)]


@pytest.fixture(scope="module")
def model() -> Topology:
    return Subject(small(["model/position=t5"]), "position").perturbed()


def test_counts_answers_and_symbols_that_are_right(model: Topology) -> None:
    task: Any = Echo(model)
    found = Generation(batches=4, beams=1).measure(model, task).metrics
    assert found == {"probe/generated_exact_match": 0.5, "probe/generated_accuracy": 14 / 16}


def test_refuses_targets_that_are_not_one_answer(model: Topology) -> None:
    task: Any = Echo(model)
    task.batch.targets[0, 0], task.batch.targets[0, 1] = 1, IGNORE
    with pytest.raises(ValueError, match="not one answer"):
        finding_of(Generation(batches=1, beams=1), model, task)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["task=maximum", "probes.generation.beams=2"], "answers of Maximum have none; set probes.generation.beams=1"),
        (["task=mqar"], "AssociativeRecall are not one answer behind a prompt"),
        (["task=sunspots"], "a model that learns .* does not write; leave out probes=generation"),
        (["task=copy", "probes.generation.beams=0"], "generation.beams` must be a whole number of at least 1"),
    ],
)
def test_what_could_not_be_measured_is_refused_before_anything_is_trained(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["probes=generation", *overrides]))


def test_what_can_be_measured_is_not_refused() -> None:
    assert accepted("probes=generation", "task=sort", "probes.generation.beams=2")["probes"]["generation"]["beams"] == 2
    accepted("probes=generation", "task=maximum")
