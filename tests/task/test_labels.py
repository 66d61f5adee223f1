"""Every label of every synthetic task against a slow solver, and every other law that all of them keep."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from swapformer.task import IGNORE, Addition, Batch, Copy
from swapformer.task.arithmetic import ModularAddition
from swapformer.task.brackets import Brackets, Dyck
from swapformer.task.listops import ListOps
from swapformer.task.lists import Count, Maximum, Parity, Reverse, Sort
from swapformer.task.questions import QuestionTask
from swapformer.task.recall import AssociativeRecall, FactRecall, Needle
from swapformer.task.reference import Coreference, Dialogue
from swapformer.task.repetition import Induction, Ordered, Periodic
from swapformer.task.synthetic import Synthetic
from task import solvers
from task.solvers import Solver

Case = tuple[type[Synthetic], Solver, dict[str, Any]]

QUESTIONS: dict[str, Case] = {
    "copy": (Copy, solvers.copied, {"symbols": 30, "lengths": [2, 6], "eval_lengths": [9]}),
    "repeat": (Copy, solvers.copied, {"symbols": 50, "distinct": 1, "lengths": [1, 5], "eval_lengths": [9]}),
    "two symbols": (Copy, solvers.copied, {"symbols": 9, "distinct": 2, "lengths": [2, 6], "eval_lengths": [12]}),
    "one length": (Copy, solvers.copied, {"symbols": 7, "lengths": [4, 4]}),
    "reverse": (Reverse, solvers.turned, {"symbols": 30, "lengths": [2, 6], "eval_lengths": ["2x"]}),
    "sort": (Sort, solvers.ascending, {"symbols": 12, "lengths": [2, 6], "eval_lengths": [9]}),
    "maximum": (Maximum, solvers.largest, {"symbols": 12, "lengths": [2, 6], "eval_lengths": [9]}),
    "parity": (Parity, solvers.odd, {"lengths": [6, 9], "eval_lengths": [12]}),
    "count": (Count, solvers.counted, {"symbols": 3, "lengths": [4, 12], "eval_lengths": [4, 30]}),
    "modular": (ModularAddition, solvers.added_modulo, {"modulus": 23, "fraction": 0.3}),
    "addition": (Addition, solvers.added, {"eval_digits": [6]}),
    "padded reversed": (Addition, solvers.added, {"zero_padded": True, "reversed": True, "eval_digits": ["2x"]}),
    "few sums": (Addition, solvers.added, {"train_samples": 700}),
    "brackets": (Brackets, solvers.closed, {"kinds": 5, "depth": 3, "lengths": [5, 9], "eval_lengths": [14]}),
    "deep brackets": (Brackets, solvers.closed, {"kinds": 2, "depth": 30, "opening": 0.9, "lengths": [7, 9]}),
    "facts": (FactRecall, solvers.looked_up, {"entities": 9, "relations": 3, "values": 5}),
    "facts in one form": (FactRecall, solvers.looked_up, {"entities": 9, "relations": 3, "forms": 1, "table": 4}),
    "operations": (ListOps, solvers.evaluated, {"lengths": [1, 5], "eval_lengths": [9]}),
    "operations in full": (ListOps, solvers.evaluated, {"arguments": 2, "depth": 3, "lengths": [5, 7]}),
    "operations, flat": (ListOps, solvers.evaluated, {"arguments": 7, "depth": 2, "lengths": [1, 8]}),
}
SEQUENCES: dict[str, Case] = {
    "periodic": (Periodic, solvers.goes_on, {"symbols": 9, "periods": [1, 4], "lengths": [6, 9], "eval_lengths": [20]}),
    "one period": (Periodic, solvers.goes_on, {"symbols": 9, "periods": [3, 3], "lengths": [6, 9]}),
    "ordered": (Ordered, solvers.comes_next, {"symbols": 30, "lengths": [3, 9], "eval_lengths": [20]}),
    "one stride": (Ordered, solvers.comes_next, {"symbols": 50, "strides": 1, "lengths": [3, 9]}),
    "induction": (Induction, solvers.comes_again, {"symbols": 40, "lengths": [2, 9], "eval_lengths": [20]}),
    "far induction": (Induction, solvers.comes_again, {"symbols": 40, "distractors": 3, "lengths": [2, 9]}),
    "dyck": (Dyck, solvers.may_stand, {"lengths": [8, 16], "eval_lengths": [30]}),
    "dyck of one kind": (Dyck, solvers.may_stand, {"kinds": 1, "depth": 4, "lengths": [12, 16]}),
    "recall": (AssociativeRecall, solvers.paired, {"queries": 1, "spread": 1, "lengths": [2, 6], "eval_lengths": [9]}),
    "mqar": (AssociativeRecall, solvers.paired, {"keys": 20, "lengths": [2, 6], "eval_lengths": [9]}),
    "needle": (Needle, solvers.paired, {"lengths": [8, 20], "eval_lengths": [40]}),
    "one needle": (Needle, solvers.paired, {"distractors": 0, "symbols": 40, "lengths": [2, 9]}),
    "coreference": (Coreference, solvers.referred, {"lengths": [2, 8], "eval_lengths": [16]}),
    "coreference by name": (Coreference, solvers.referred, {"fixed": True, "lengths": [2, 8]}),
    "plain coreference": (Coreference, solvers.referred, {"distractors": 0, "features": 2, "lengths": [2, 8]}),
    "dialogue": (Dialogue, solvers.said, {"lengths": [2, 8], "eval_lengths": [16]}),
    "plain dialogue": (Dialogue, solvers.said, {"distractors": 0, "speakers": 2, "topics": 2, "lengths": [2, 8]}),
    "dialogue of two turns back": (Dialogue, solvers.said, {"back": 2, "lengths": [3, 8], "eval_lengths": [16]}),
    "dialogue in rounds": (Dialogue, solvers.said, {"distractors": 0, "rounds": True, "lengths": [3, 9]}),
}
CASES = {**QUESTIONS, **SEQUENCES}


@cache
def build(name: str, as_source: bool = False) -> Synthetic:
    """The task of a case."""
    kind, _, own = CASES[name]
    return kind(**{"batch_size": 64, **own, **({"as_source": True} if as_source else {})})


@cache
def batches(task: Synthetic) -> list[tuple[str, Batch]]:
    """Some batches of training, and one of each evaluation set, with the set's name."""
    found = [("train", task.train_batch(1, step)) for step in range(3)]
    return found + [(one.name, one.batch(0)) for split in ("val", "test") for one in task.evaluation(split)]


def written(task: Synthetic, batch: Batch) -> list[tuple[list[str], list[str | None]]]:
    """Each row's inputs without filler, and for each of them what must be predicted there, or None."""
    rows = []
    for index, (inputs, targets) in enumerate(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)):
        length = len(inputs) if batch.padding is None else len(inputs) - int(batch.padding[index].sum())
        rows.append(
            (
                [task.tokens[token] for token in inputs[:length]],
                [None if token == IGNORE else task.tokens[token] for token in targets[:length]],
            )
        )
    return rows


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_followed_by_the_answer_that_a_slow_solver_gives(name: str) -> None:
    task, solver = build(name), QUESTIONS[name][1]
    assert isinstance(task, QuestionTask)
    mark, end = task.tokens[task.separator_token], [] if task.end_token is None else ["<end>"]
    for _, batch in batches(task):
        for inputs, targets in written(task, batch):
            asked = inputs[: inputs.index(mark)]
            answer = [*solver(task, asked), *end]
            assert inputs == [*asked, mark, *answer[:-1]], "teacher forcing feeds the answer"
            assert targets == [*[None] * len(asked), *answer]


@pytest.mark.parametrize("name", SEQUENCES)
def test_exactly_what_a_slow_solver_determines_is_asked_for(name: str) -> None:
    task, solver = build(name), SEQUENCES[name][1]
    for _, batch in batches(task):
        for inputs, targets in written(task, batch)[:24]:
            assert any(targets) or isinstance(task, Dyck), "an item must ask for something"
            for place, target in enumerate(targets):
                may_follow = solver(task, inputs[: place + 1])
                nothing_follows = place + 1 == len(inputs)
                assert [target] == may_follow if target is not None else nothing_follows or len(may_follow) > 1
