"""Hidden tokens: which are chosen, what becomes of them, and what the second segment of a pair is. Laws by counting.

The rates are those of BERT (Devlin et al. 2018, arXiv:1810.04805, section 3.1 and appendix A).

Bounds of counts are five standard deviations of the binomial that the law states: a right generator exceeds one of them
once in two million draws, and the draws are fixed. Texts whose characters all differ let a token tell its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import Readout
from swapformer.task import Batch, Masked, MaskedNSP
from swapformer.task.base import IGNORE, Split
from swapformer.task.division import SPLITS
from swapformer.task.masked import MaskedTask
from swapformer.task.next_sentence import ELSEWHERE, FOLLOWS, truncate_pairs
from swapformer.task.source import Files
from swapformer.task.tokeniser import Bytes, Characters, WordPiece

PAD, CLS, SEP, MASK = range(4)
N = 3000
SHARES = (0.6, 0.2, 0.2)


def within(count: int, total: int, share: float) -> bool:
    """Whether a count is one that a binomial gives."""
    return abs(count - share * total) <= 5 * math.sqrt(total * share * (1 - share))


@pytest.fixture
def distinct(tmp_path: Path) -> Path:
    path = tmp_path / "distinct.txt"
    path.write_text("".join(chr(0x4E00 + place) for place in range(N)), encoding="utf-8")
    return path


def masked(path: Path, **settings: Any) -> Masked:
    own = {"tokeniser": Characters(), "split": SHARES, "block": 42, "batch_size": 32}
    return Masked(source=Files(path=str(path)), **own | settings)


def originals(batch: Batch) -> Tensor:
    """What stood at every place, told from the places that say it: in the distinct text they count on by one."""
    place = torch.arange(batch.inputs.shape[1])
    known = torch.where(batch.targets != IGNORE, batch.targets - place, -(10**6)).max(1).values
    found = known.unsqueeze(1) + place
    found[:, 0], found[:, -1] = CLS, SEP
    return found


def test_what_is_chosen_is_what_is_asked_for_and_nothing_else_changes(distinct: Path) -> None:
    task = masked(distinct)
    assert task.tokens[:4] == MaskedTask.special_tokens and task.interface.readouts == {"": Readout(task.vocab_size)}
    assert not task.predicts_next
    for step in range(5):
        batch = task.train_batch(0, step)
        text, chosen = originals(batch), batch.targets != IGNORE
        assert torch.equal(batch.targets[chosen], text[chosen])
        assert torch.equal(batch.inputs[~chosen], text[~chosen])
        assert (batch.inputs[:, 0] == CLS).all() and (batch.inputs[:, -1] == SEP).all() and batch.padding is None


def test_rates_are_those_of_the_paper(distinct: Path) -> None:
    task = masked(distinct)
    places = torch.zeros(42)
    masks = kept = others = 0
    drawn = []
    for step in range(200):
        batch = task.train_batch(1, step)
        chosen = batch.targets != IGNORE
        assert (chosen.sum(1) == 6).all(), "15 % of 40"
        places += chosen.sum(0)
        mask, same = batch.inputs == MASK, chosen & (batch.inputs == batch.targets)
        assert not (mask & ~chosen).any()
        masks, kept = masks + int(mask.sum()), kept + int(same.sum())
        other = batch.inputs[chosen & ~mask & ~same]
        others += len(other)
        drawn.append(other)
    total = 200 * 32 * 6
    assert masks + kept + others == total
    assert within(masks, total, 0.8) and within(others, total, 0.1 * (1 - 1 / N)) and within(kept, total, 0.1 + 0.1 / N)
    assert places[0] == places[-1] == 0, "special tokens are never chosen"
    assert all(within(int(count), 200 * 32, 6 / 40) for count in places[1:-1]), "every place of text as often"
    other = torch.cat(drawn)
    assert int(other.min()) >= 4 and within(int((other < 4 + N // 2).sum()), len(other), 0.5), "any token of text"


@pytest.mark.parametrize(("rate", "masks", "random"), [(0.3, 0.5, 0.5), (1.0, 1.0, 0.0), (0.001, 0.0, 0.0)])
def test_other_rates_are_as_asked(distinct: Path, rate: float, masks: float, random: float) -> None:
    task = masked(distinct, rate=rate, masked=masks, random=random)
    batch = task.train_batch(0, 0)
    chosen = batch.targets != IGNORE
    assert (chosen.sum(1) == max(1, round(rate * 40))).all()
    same = int((chosen & (batch.inputs == batch.targets)).sum())
    total = int(chosen.sum())
    assert within(int((batch.inputs == MASK).sum()), total, masks) and within(
        same, total, 1 - masks - random + random / N
    )


def test_unknown_tokens_are_never_chosen_nor_put_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join("abcd"[n % 4] + chr(0x4E00 + n) + chr(0x4E01 + n) for n in range(1000)), encoding="utf-8")
    task = masked(path, tokeniser=Characters(min_count=3))
    assert task.tokens == (*MaskedTask.special_tokens, *"abcd", "<unk>")
    for step in range(20):
        batch = task.train_batch(0, step)
        chosen = batch.targets != IGNORE
        text = (batch.inputs != 8).sum(1) - 2
        assert ((chosen.sum(1) - 0.15 * text).abs() <= 0.5).all(), "the rate is of what can be chosen"
        assert set(batch.targets[chosen].tolist()) <= {4, 5, 6, 7} and not (chosen & (batch.inputs == 8)).any()


@pytest.mark.parametrize("kind", ["characters", "wordpiece"])
def test_random_tokens_are_any_of_text_as_often_but_the_unknown_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab cd abc\n" * 400 + "Ω\n" * 2, encoding="utf-8")
    # <unk> is the last of the characters, and [UNK] the first of the pieces of words.
    tokeniser = (
        Characters(min_count=3) if kind == "characters" else WordPiece(vocab_size=13, lowercase=False, min_count=3)
    )
    task = masked(path, tokeniser=tokeniser, random=1.0, masked=0.0, split=(0.9, 0.05, 0.05))
    unknown = task.corpus.learned.unknown
    assert unknown == (task.vocab_size - 1 if kind == "characters" else 4)
    batches = [task.train_batch(0, step) for step in range(60)]
    drawn = torch.cat([batch.inputs[batch.targets != IGNORE] for batch in batches])
    counts = torch.bincount(drawn, minlength=task.vocab_size)
    text = [one for one in range(4, task.vocab_size) if one != unknown]
    assert int(counts.sum()) == int(counts[text].sum()) == len(drawn)
    assert all(within(int(counts[one]), len(drawn), 1 / len(text)) for one in text)


def test_a_sequence_without_a_token_that_can_be_chosen_asks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a" * 600 + "".join(chr(0x4E00 + n) for n in range(400)), encoding="utf-8")
    task = masked(path, tokeniser=Characters(min_count=3), split=(0.6, 0.39, 0.01), block=6)
    assert (task.evaluation("val")[0].batch(0).targets == IGNORE).all()


def test_masks_are_fixed_in_evaluation_and_drawn_anew_in_training(distinct: Path) -> None:
    one, other = masked(distinct, batch_size=4), masked(distinct, batch_size=4)
    for split in ("val", "test"):
        for index in range(3):
            batch, again = (task.evaluation(split)[0].batch(index) for task in (one, other))
            assert torch.equal(batch.inputs, again.inputs) and torch.equal(batch.targets, again.targets)
    # Different batches and seeds choose different places.
    batches = [one.train_batch(seed, step) for seed in range(3) for step in range(3)]
    batches += [one.evaluation(split)[0].batch(index) for split in ("val", "test") for index in range(3)]
    patterns = {tuple((batch.targets[0] != IGNORE).tolist()) for batch in batches}
    assert len(patterns) == len(batches)


def test_evaluation_goes_through_its_split_once_and_no_split_sees_another(distinct: Path) -> None:
    task = masked(distinct, eval_lengths=[82], batch_size=4)
    bounds = {"train": (0, 1800), "val": (1800, 2400), "test": (2400, 3000)}
    seen: dict[Split, Tensor] = {"train": torch.cat([originals(task.train_batch(0, step)) for step in range(40)])}
    for split in SPLITS[1:]:
        sets = {one.name: one for one in task.evaluation(split)}
        assert list(sets) == ["", "@82"] and sets["@82"].batch(0).inputs.shape == (2, 82)
        for one in sets.values():
            assert one.batches is not None
            rows = torch.cat([originals(one.batch(index)) for index in range(one.batches)])[:, 1:-1]
            first = bounds[split][0] + 4
            assert sorted(rows.flatten().tolist()) == list(range(first, first + 560)), "600 tokens have 7 blocks of 80"
        seen[split] = rows
    for split, rows in seen.items():
        text = rows[:, 1:-1] - 4
        assert bounds[split][0] <= int(text.min()) and int(text.max()) < bounds[split][1]


def test_cls_and_sep_belong_to_the_documents_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"row {n} is {n * n}\n"}) for n in range(90)))
    source = Files(path=str(path), column="text")
    settings: dict[str, Any] = {"source": source, "tokeniser": Bytes(), "split": SHARES, "block": 42, "rate": 0.1}
    task = Masked(**settings, packing="documents", reset_positions=True)
    batch, plain = task.train_batch(0, 0), Masked(**settings).train_batch(0, 0)
    assert torch.equal(batch.inputs, plain.inputs) and torch.equal(batch.targets, plain.targets)
    assert batch.document is not None and batch.position is not None
    text = torch.where(batch.targets == IGNORE, batch.inputs, batch.targets)
    ends = (text == ord("\n") + 4)[:, 1:-1].long().cumsum(1)
    expected = torch.cat([ends[:, :1] * 0, ends[:, :1] * 0, ends], dim=1)
    expected[:, -1] = expected[:, -2] = ends[:, -2]
    expected[:, 2:-1] = ends[:, :-1]
    assert torch.equal(batch.document - batch.document[:, :1], expected)
    assert (batch.position[:, 0] == 0).all() and int(batch.position.max()) < 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0}, "task.rate must be above 0"),
        ({"masked": 0.8, "random": 0.3}, "task.masked and task.random at most 1 together, but they are 0.15, 0.8 and"),
        ({"block": 2}, "task.block must be at least 3, but is 2"),
        ({"eval_lengths": [2]}, "task.eval_lengths entries must be at least 3, but is 2"),
        ({"block": 700}, "val split of .* must have at least 698 tokens .* but has 600"),
    ],
)
def test_wrong_use_is_one_clear_line(distinct: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        masked(distinct, **settings)


WIDTH = 100
"""Characters in a block of code points that a document of the pairs has for itself."""


def pairs(path: Path, **settings: Any) -> MaskedNSP:
    """Documents of 2 … 81 characters that all differ."""
    rows = ["".join(chr(0x4E00 + WIDTH * n + place) for place in range(2 + n * 13 % 80)) for n in range(60)]
    path.write_text("\n".join(json.dumps({"text": row}) for row in rows), encoding="utf-8")
    own = {"split": SHARES, "block": 43, "batch_size": 32, "tokeniser": Characters(), "rate": 0.01, "masked": 0.0}
    return MaskedNSP(source=Files(path=str(path), column="text"), **own | {"random": 0.0} | settings)


def read(task: MaskedNSP, batch: Batch) -> Iterator[tuple[list[int], list[int], int]]:
    """Both segments' characters as document · WIDTH + place, and the label; the layout is asserted."""
    assert batch.padding is not None
    for row, padding, tag, label in zip(
        batch.inputs, batch.padding, batch.tags["segment"], batch.labels["next_sentence"], strict=True
    ):
        ids = row[~padding].tolist()
        first = ids.index(SEP)
        assert ids[0] == CLS and ids[-1] == SEP and ids.count(SEP) == 2 and CLS not in ids[1:]
        assert (row[padding] == PAD).all() and PAD not in ids
        assert tag.tolist() == [0] * (first + 1) + [1] * (len(ids) - first - 1) + [0] * int(padding.sum())
        code = [ord(task.tokens[one]) - 0x4E00 if one > MASK else -1 for one in ids]
        yield code[1:first], code[first + 1 : -1], int(label)


def test_half_of_the_segments_follow_and_the_others_are_from_another_document(tmp_path: Path) -> None:
    task = pairs(tmp_path / "rows.jsonl")
    assert task.interface.segments == 2 and task.tags == ("segment",)
    assert task.interface.readouts["next_sentence"] == Readout(2, "classes", "sequence")
    held: dict[Split, set[int]] = {}
    for split in SPLITS:
        found = [task.train_batch(0, step) for step in range(60)] if split == "train" else []
        found += [task.evaluation(split)[0].batch(index) for index in range(20)] if split != "train" else []
        items = [item for batch in found for item in read(task, batch)]
        for first, second, label in items:
            assert first and second and len(first) + len(second) <= 40
            assert all(set(np.diff(segment)) <= {1} for segment in (first, second))
            follows = second[0] == first[-1] + 1
            assert follows == (label == FOLLOWS)
            assert (first[0] // WIDTH == second[0] // WIDTH) == follows, "never from the same document, further away"
            assert second[0] % WIDTH > 0, "nothing tells a second segment by its being a beginning"
        assert within(sum(label == ELSEWHERE for _, _, label in items), len(items), 0.5)
        held[split] = {item[part][0] // WIDTH for item in items for part in (0, 1)}
    assert not held["train"] & held["val"] and not held["val"] & held["test"] and not held["train"] & held["test"]


def test_segments_elsewhere_begin_anywhere_in_other_documents_as_often(tmp_path: Path) -> None:
    task = pairs(tmp_path / "rows.jsonl", block=5)
    begins = task.begins["train"]
    sizes = np.diff(begins) - 1
    texts = [ord(task.tokens[task.ids["train"][begin]]) - 0x4E00 for begin in begins[:-1]]
    starts = np.zeros((len(texts), len(texts)))
    ends = np.zeros(len(texts))
    for step in range(400):
        for first, second, label in read(task, task.train_batch(0, step)):
            one, other = (texts.index(segment[0] // WIDTH * WIDTH) for segment in (first, second))
            ends[one] += 1
            starts[one, other] += label == ELSEWHERE
    assert all(within(count, 400 * 32, share) for count, share in zip(ends, sizes / sizes.sum(), strict=True))
    assert within(int(starts.sum()), 400 * 32, 0.5)
    # Given the first document, any other one by its places.
    shares = np.where(np.eye(len(texts)), 0.0, sizes[None, :] / (sizes.sum() - sizes[:, None]))
    drawn = starts.sum(1, keepdims=True)
    expected, variance = (drawn * shares).sum(0), (drawn * shares * (1 - shares)).sum(0)
    assert (np.abs(starts.sum(0) - expected) <= 5 * np.sqrt(variance)).all() and not starts.diagonal().any()


def test_the_longer_segment_is_cut_as_the_papers_code_does() -> None:
    # Devlin et al. 2018, create_pretraining_data.py, truncate_seq_pair, a token at a time.
    for room in (2, 7, 12):
        for first in range(1, 15):
            for second in range(1, 15):
                a, b = first, second
                while a + b > room:
                    if a > b:
                        a -= 1
                    else:
                        b -= 1
                found = truncate_pairs(np.array([first]), np.array([second]), room)
                assert [int(part[0]) for part in found] == [a, b]


def test_tokens_of_pairs_are_chosen_as_elsewhere_and_padding_never_is(tmp_path: Path) -> None:
    task = pairs(tmp_path / "rows.jsonl", rate=0.15, masked=0.8, random=0.1)
    masks = total = 0
    for step in range(60):
        batch = task.train_batch(0, step)
        chosen = batch.targets != IGNORE
        assert batch.padding is not None and not (chosen & batch.padding).any()
        text = (~batch.padding).sum(1) - 3
        assert ((chosen.sum(1) - 0.15 * text).abs() <= 0.5).logical_or(chosen.sum(1) == 1).all()
        assert int(batch.targets[chosen].min()) > MASK
        masks, total = masks + int((batch.inputs == MASK).sum()), total + int(chosen.sum())
    assert within(masks, total, 0.8)
    assert set(task.metrics("next_sentence")) >= {"loss", "accuracy"} and "loss" in task.metrics()
    assert task.directions["next_sentence_accuracy"] == "higher" and task.directions["accuracy"] == "higher"


def test_pairs_need_two_documents_in_every_split(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a single text " * 100)
    with pytest.raises(UsageError, match=r"the train split of .* must have two documents .* but has 1; give more doc"):
        MaskedNSP(source=Files(path=str(tmp_path / "text.txt")), tokeniser=Characters())
    with pytest.raises(UsageError, match=r"task.block must be at least 4, but is 3"):
        pairs(tmp_path / "rows.jsonl", block=3)
