"""Span corruption: source and answer together are the text, and the spans are those that the law says."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.random import stream
from swapformer.task import Spans
from swapformer.task.division import SPLITS
from swapformer.task.source import Files
from swapformer.task.spans import random_composition, sentinel
from swapformer.task.tokeniser import END, PAD, Characters, Trained

N = 3000
SHARES = (0.6, 0.2, 0.2)
SENTINELS = 20
FIRST = 2 + SENTINELS
"""The id of the text's first character, behind [PAD], <eos> and the sentinels."""


@pytest.fixture
def distinct(tmp_path: Path) -> Path:
    path = tmp_path / "distinct.txt"
    path.write_text("".join(chr(0x4E00 + place) for place in range(N)), encoding="utf-8")
    return path


def spans(path: Path, **settings: Any) -> Spans:
    own = {"tokeniser": Characters(), "split": SHARES, "block": 60, "sentinels": SENTINELS}
    return Spans(source=Files(path=str(path)), **own | settings)


def restored(source: list[int], answer: list[int]) -> tuple[list[int], list[int]]:
    """The text, read by hand: every sentinel of the source replaced by its span; and the lengths of the spans."""
    assert source[-1] == answer[-1] == 1, "<eos>"
    marks = [place for place, one in enumerate(answer) if 2 <= one < FIRST]
    assert marks[0] == 0 and [answer[mark] for mark in marks] == [2 + number for number in range(len(marks))]
    ends = [*marks[1:], len(answer) - 1]
    missing = {answer[mark]: answer[mark + 1 : end] for mark, end in zip(marks, ends, strict=True)}
    assert [one for one in source if 2 <= one < FIRST] == list(missing), "each once, in order"
    text = [token for one in source[:-1] for token in missing.get(one, [one])]
    return text, [len(span) for span in missing.values()]


def test_source_and_answer_together_are_the_text(distinct: Path) -> None:
    task = spans(distinct, eval_lengths=[30, 90])
    assert task.interface == Interface(task.vocab_size, source=True) and task.predicts_next
    assert task.tokens[:4] == ("[PAD]", "<eos>", "<extra_id_0>", "<extra_id_1>")
    assert (task.start_token, task.end_token) == (0, 1)
    bounds = {"train": (0, 1800), "val": (1800, 2400), "test": (2400, 3000)}
    for split in SPLITS:
        batches = [task.train_batch(0, step) for step in range(5)]
        if split != "train":
            batches = [one.batch(index) for one in task.evaluation(split) for index in range(one.batches or 0)]
        for batch in batches:
            assert batch.source is not None and batch.padding is None and batch.source.padding is None
            assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1]) and (batch.inputs[:, 0] == 0).all()
            for source, answer in zip(batch.source.inputs.tolist(), batch.targets.tolist(), strict=True):
                text, lengths = restored(source, answer)
                assert text == list(range(text[0], text[0] + len(text))), "in order, nothing lost, nothing twice"
                assert bounds[split][0] <= text[0] - FIRST and text[-1] - FIRST < bounds[split][1]
                missing, count = task.gaps(len(text))
                assert sum(lengths) == missing and len(lengths) == count and min(lengths) >= 1
                assert source[0] >= FIRST and 2 <= source[-2] < FIRST, (
                    "a run first, a span last, as in the paper's code"
                )


def test_sentinels_that_a_trained_tokeniser_has_in_another_order_mark_the_same_spans(
    distinct: Path, tmp_path: Path
) -> None:
    written = spans(distinct).train_batch(3, 5)
    order = [PAD, *map(sentinel, reversed(range(SENTINELS))), END]
    learned = Characters(special=order)
    learned = learned.with_learned(learned.learn([distinct.read_text(encoding="utf-8")], order, 1))
    (tmp_path / "vocabulary.json").write_text(learned.to_json(), encoding="utf-8")
    mine = spans(distinct, tokeniser=Trained(path=str(tmp_path / "vocabulary.json")))
    batch = mine.train_batch(3, 5)
    spelled = [
        [one.tokeniser.learned.tokens[number] for number in ids.flatten().tolist()]
        for one, ids in ((spans(distinct), written.targets), (mine, batch.targets))
    ]
    assert spelled[0] == spelled[1] and not torch.equal(written.targets, batch.targets)


def test_lengths_are_those_of_t5() -> None:
    # Raffel et al. 2020's code works out that 568 tokens give 512 inputs and 114 targets at 15 % and mean length 3.
    gaps = Spans.gaps
    t5 = type("T5", (), {"rate": 0.15, "mean_length": 3.0})()
    missing, count = gaps(t5, 568)
    assert (568 - missing + count + 1, missing + count + 1) == (512, 114)
    assert gaps(t5, 2) == (1, 1) and gaps(t5, 5) == (1, 1)
    all_but_one = type("Most", (), {"rate": 0.9, "mean_length": 1.0})()
    assert gaps(all_but_one, 10) == (9, 1), "every span has a run before it"


def test_every_way_to_cut_is_as_likely() -> None:
    # 6 as a sum of 3 numbers above 0: 10 ways. Five standard deviations of the binomial.
    found = Counter(tuple(row) for row in random_composition(6, 3, 20_000, stream("cuts")).tolist())
    assert len(found) == math.comb(5, 2) and all(sum(way) == 6 and min(way) >= 1 for way in found)
    assert all(abs(count - 2000) < 5 * math.sqrt(20_000 * 0.1 * 0.9) for count in found.values())
    assert random_composition(1, 1, 3, stream("cuts")).tolist() == [[1]] * 3 and random_composition(
        4, 4, 1, stream("cuts")
    ).tolist() == [[1] * 4]


def test_shapes_and_lengths_are_stated(distinct: Path) -> None:
    task = spans(distinct, eval_lengths=[90])
    batch = task.train_batch(0, 0)
    assert batch.source is not None
    # 9 of 60 are missing in 3 spans.
    assert batch.inputs.shape == (16, 13) and batch.source.inputs.shape == (16, 60 - 9 + 3 + 1)
    assert (task.train_length, task.longest_trained, task.max_length) == (13, 60, 90 - 14 + 5 + 1)
    longest = task.evaluation("val")[1].batch(0)
    assert longest.source is not None and longest.source.inputs.shape == (6, task.max_length)
    assert spans(distinct, rate=0.9).max_length == 54 + 6 + 1, "an answer may be longer than its source"


def test_spans_are_fixed_in_evaluation_and_drawn_anew_in_training(distinct: Path) -> None:
    one, other = spans(distinct), spans(distinct)
    for split in ("val", "test"):
        assert torch.equal(one.evaluation(split)[0].batch(0).targets, other.evaluation(split)[0].batch(0).targets)
    batches = [one.train_batch(seed, step) for seed in range(3) for step in range(3)]
    assert len({tuple((batch.targets < FIRST).flatten().tolist()) for batch in batches}) == len(batches)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sentinels": 2}, r"task.sentinels must be at least 3, as many as 60 tokens have spans at .* but is 2; take"),
        ({"eval_lengths": [500]}, "task.sentinels must be at least 25, as many as 500 tokens have spans"),
        ({"block": 1}, "task.block must be at least 2, but is 1"),
        ({"block": 700, "sentinels": 100}, "val split of .* must have at least 700 tokens .* but has 600"),
    ],
)
def test_wrong_use_is_one_clear_line(distinct: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spans(distinct, **settings)
