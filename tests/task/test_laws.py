"""What every synthetic task keeps: its split, its shapes, its lengths, its two ways to ask."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from swapformer.interface import MAIN
from swapformer.task import IGNORE, Addition, Copy
from swapformer.task.base import Split
from swapformer.task.brackets import Brackets, Dyck
from swapformer.task.listops import ListOps
from swapformer.task.lists import Count, Maximum, Parity, Reverse, Sort
from swapformer.task.overlap import overlap
from swapformer.task.questions import QuestionTask
from swapformer.task.recall import AssociativeRecall, Needle
from swapformer.task.reference import Coreference, Dialogue
from swapformer.task.repetition import Induction, Ordered, Periodic
from swapformer.task.synthetic import Synthetic
from task.test_labels import CASES, QUESTIONS, batches, build, written

SPLITS: tuple[Split, ...] = ("train", "val", "test")


@pytest.mark.parametrize("name", CASES)
def test_targets_are_the_next_inputs_and_filler_is_behind_the_last(name: str) -> None:
    task = build(name)
    pad = task.tokens.index("<pad>")
    shapes = set()
    for label, batch in batches(task):
        rows, length = batch.inputs.shape
        filler = torch.zeros_like(batch.inputs, dtype=torch.bool) if batch.padding is None else batch.padding
        assert batch.padding is None or filler.any(), "None where nothing is filler"
        assert torch.equal(filler, filler.cummax(1).values.bool()) and not filler[:, 0].any()
        assert (batch.inputs[filler] == pad).all() and (batch.inputs[~filler] != pad).all()
        following = torch.cat([batch.inputs[:, 1:], batch.inputs.new_full((rows, 1), pad)], dim=1)
        inner = (batch.targets != IGNORE) & ~torch.cat([filler[:, 1:], filler.new_ones(rows, 1)], dim=1)
        assert torch.equal(batch.targets[inner], following[inner])
        assert (batch.targets[filler] == IGNORE).all()
        assert int(batch.inputs.min()) >= 0 and int(batch.inputs.max()) < task.vocab_size == len(set(task.tokens))
        assert batch.inputs.dtype == batch.targets.dtype == torch.int64
        assert all(tag.shape == batch.inputs.shape for tag in batch.tags.values()) and set(batch.tags) == set(task.tags)
        assert label != "train" or (length == task.train_length and rows == task.batch_size)
        shapes.add(length)
    assert max(shapes) == task.max_length


@pytest.mark.parametrize("name", CASES)
def test_an_item_is_in_the_same_split_whatever_it_is_drawn_with(name: str) -> None:
    """Else an item of a length could be trained on, and evaluated in the set of that length alone."""
    task = build(name)
    content, lengths = task.sample(torch.Generator().manual_seed(1), "train", task.mixture, 40)
    for item, length in zip(content, lengths, strict=True):
        own = task.width_at(int(length))
        assert (item[:, own:] == task.splits.alphabet).all()
        assert task.splits.hash(item[None, :, :own]) == task.splits.hash(item[None])
        assert bool(task.belongs("train", item[None, :, :own], length[None]))


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_one_is_as_long_as_any(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its only item is: what is drawn at a time need not hold the longest."""
    monkeypatch.setattr(Synthetic, "rows_at_once", 1)
    kind, _, own = CASES[name]
    task = kind(**{**own, "batch_size": 1})
    single = [task.train_batch(0, step) for step in range(8)]
    assert {batch.inputs.shape for batch in single} == {(1, task.train_length)}
    for one in task.evaluation("val"):
        assert len({one.batch(index).inputs.shape for index in range(4)}) == 1


@pytest.mark.parametrize("name", CASES)
def test_no_item_that_is_evaluated_is_trained_on(name: str) -> None:
    task = build(name)
    for split in ("val", "test"):
        found = overlap(task, split, trained=1024, evaluated=64)
        assert found.evaluated >= 64 and (name == "few sums" or found.trained > 15)
        assert found.shared == (0 if task.held_out else found.evaluated)


def test_an_overlap_would_be_noticed() -> None:
    class Leaky(Copy):
        def belongs(self, split: Split, content: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return super().belongs("val", content, lengths) | super().belongs(split, content, lengths)

    found = overlap(Leaky(symbols=5, lengths=[3, 3], batch_size=128), "val")
    assert found.shared == found.evaluated and "512 of 512 val items (100.0%)" in str(found)


MEASURES: dict[type[Synthetic], Callable[[Any, list[str]], int]] = {
    Count: lambda task, words: words.index("#"),
    Addition: lambda task, words: max(map(len, "".join(words).split("=")[0].split("+"))),
    ListOps: lambda task, words: sum(word[0] == "[" for word in words),
    Induction: lambda task, words: (len(words) + 1 - task.distractors) // 2,
    AssociativeRecall: lambda task, words: len({word for word in words if word[0] == "k"}),
    Needle: lambda task, words: len(words) - 1,
    Coreference: lambda task, words: sum(word[0] in ("n" if task.fixed else "pf") for word in words) + task.fixed,
    Dialogue: lambda task, words: sum(word[0] == "s" for word in words),
    **dict.fromkeys((Periodic, Ordered), lambda task, words: len(words) + 1),
    Dyck: lambda task, words: len(words),
    **dict.fromkeys((Copy, Reverse, Sort, Maximum, Parity, Brackets), lambda task, words: words.index("|")),
}
"""How long an item is, read from its inputs."""


@pytest.mark.parametrize("name", [name for name, (kind, *_) in CASES.items() if kind in MEASURES])
def test_an_evaluation_length_holds_items_of_that_length_and_training_all_of_its_own(name: str) -> None:
    task, own = build(name), CASES[name][2]
    measure = MEASURES[CASES[name][0]]
    counts: Counter[int] = Counter()
    for label, batch in batches(task):
        lengths = [measure(task, inputs) for inputs, _ in written(task, batch)]
        if label in ("", "train"):
            counts.update(lengths)
        else:
            assert set(lengths) == {int(label[1:])}
    shortest, longest = own.get("lengths", (1, 3))
    assert set(counts) == set(range(shortest, longest + 1)) and longest == task.longest_trained
    share = sum(counts.values()) / len(counts)
    assert name == "few sums" or all(abs(count - share) < 6 * math.sqrt(share) for count in counts.values())


@pytest.mark.parametrize("name", QUESTIONS)
def test_with_the_question_as_source_the_same_is_asked(name: str) -> None:
    task, other = build(name), build(name, as_source=True)
    assert isinstance(other, QuestionTask)
    assert other.interface.source and other.interface.readouts[MAIN].size == other.vocab_size == task.vocab_size
    for (_, one), (label, two) in zip(batches(task), batches(other), strict=True):
        assert two.source is not None and one.source is None
        padding = two.source.padding
        assert padding is None or (padding.any() and (two.source.inputs[padding] == task.tokens.index("<pad>")).all())
        assert two.inputs.shape[1] <= other.max_length and two.source.inputs.shape[1] <= other.max_length
        assert label != "train" or two.inputs.shape[1] == other.train_length
        sources = two.source.inputs if padding is None else two.source.inputs.masked_fill(padding, -1)
        for (inputs, targets), (short, answer), source in zip(
            written(task, one), written(other, two), sources.tolist(), strict=True
        ):
            start = inputs.index(task.tokens[other.separator_token])
            assert [task.tokens[token] for token in source if token >= 0] == inputs[:start]
            assert short == inputs[start:] and answer == targets[start:]


def test_exactly_what_thousands_of_items_determine_is_asked_for() -> None:
    """By counting what follows each beginning; up to a place before which the longest item's end says nothing."""
    tiny: list[tuple[Synthetic, int]] = [
        (Periodic(symbols=5, periods=[1, 3], lengths=[7, 7]), 6),
        (Ordered(symbols=14, strides=3, lengths=[6, 6]), 5),
        (Induction(symbols=9, lengths=[2, 5]), 5),
        (Dyck(kinds=2, depth=2, lengths=[8, 8]), 7),
        (AssociativeRecall(keys=4, values=2, distractors=2, queries=1, spread=2, lengths=[2, 2]), 6),
        (Needle(symbols=2, keys=3, values=2, distractors=1, lengths=[4, 7]), 5),
        (Coreference(names=6, features=2, words=2, distractors=1, lengths=[2, 5]), 5),
        (Coreference(names=12, features=2, words=2, distractors=1, fixed=True, lengths=[2, 5]), 5),
        (Dialogue(speakers=2, topics=2, words=3, noise=2, distractors=0, lengths=[2, 4]), 8),
    ]
    for task, places in tiny:
        lengths = task.mixture[torch.arange(8_000) % len(task.mixture)]
        content = task.draw(torch.Generator().manual_seed(3), lengths, task.longest_trained)
        batch = task.collate(content, lengths, task.longest_trained)
        sequences = torch.cat(
            [batch.inputs[:, :1], torch.where(batch.targets == IGNORE, batch.inputs.roll(-1, 1), batch.targets)], 1
        )
        follows: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        asked: dict[tuple[int, ...], bool] = {}
        for row, targets in zip(sequences[:, : places + 1].tolist(), batch.targets.tolist(), strict=True):
            for place in range(places):
                before, after = tuple(row[: place + 1]), row[place + 1]
                if after != task.splits.alphabet:
                    follows[before][after] += 1
                    asked[before] = targets[place] != IGNORE
        often = {before: counts for before, counts in follows.items() if counts.total() >= 30}
        assert any(asked[before] for before in often) and not all(asked[before] for before in often)
        for before, counts in often.items():
            assert asked[before] == (len(counts) == 1), (type(task).__name__, task.decode(before), counts)
