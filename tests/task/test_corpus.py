"""A corpus: which document is in which split, what is tokenised, and what the places of a block know of documents."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import Text, division
from swapformer.task.base import IGNORE
from swapformer.task.division import SPLITS, Division, chunks, split_of
from swapformer.task.source import Files, TextRow
from swapformer.task.tokeniser import BPE, Bytes, Characters, Tokeniser, WordPiece
from texts import text as make

SHARES = (0.6, 0.3, 0.1)


def rows(count: int, start: int = 0) -> list[str]:
    return [f"row {number} has {number * number % 89} words, more or less\n" for number in range(start, start + count)]


def table(path: Path, texts: list[str]) -> Path:
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    return path


def documents(task: Text) -> dict[str, list[str]]:
    """The text of each document by split."""
    found = {}
    for split in SPLITS:
        begins, ids = task.corpus.begins(split), task.corpus.split(split)
        found[split] = [task.decode(ids[a:b]) for a, b in pairwise(begins)]
    return found


@pytest.mark.parametrize("tokeniser", [Characters(), Bytes(), BPE(vocab_size=280)], ids=lambda one: type(one).__name__)
def test_every_document_is_whole_and_in_the_split_that_its_hash_says(tmp_path: Path, tokeniser: Tokeniser) -> None:
    texts = rows(90)
    task = make(table(tmp_path / "a.jsonl", texts), column="text", tokeniser=tokeniser, split=SHARES, block=8)
    found = documents(task)
    expected = {
        split: [text for text in texts if split_of(TextRow("", text, {}).key, SHARES) == split] for split in SPLITS
    }
    assert found == expected
    assert {split: len(texts) for split, texts in found.items()} == dict(
        zip(SPLITS, task.corpus.documents, strict=True)
    )
    # Three standard deviations of a binomial, √(90 · .6 · .4) = 4.6.
    assert abs(len(found["train"]) - 54) < 14


def test_more_documents_move_none_and_equal_ones_are_in_the_same_split(tmp_path: Path) -> None:
    few = documents(make(table(tmp_path / "a.jsonl", rows(60)), column="text", split=SHARES, block=8))
    many = documents(make(table(tmp_path / "b.jsonl", rows(90) + rows(60)), column="text", split=SHARES, block=8))
    for split in SPLITS:
        assert set(few[split]) <= set(many[split])
        assert not set(many[split]) & {text for other in SPLITS if other != split for text in many[other]}


def test_documents_without_a_token_are_none(tmp_path: Path) -> None:
    texts = [text for row in rows(40) for text in (row, "", " \n\t ")]
    path = table(tmp_path / "a.jsonl", texts)
    tokeniser = WordPiece(vocab_size=60, lowercase=False)
    task = make(path, column="text", tokeniser=tokeniser, split=SHARES, block=8)
    assert sum(task.corpus.documents) == 40
    assert all((np.diff(task.corpus.begins(split)) > 0).all() for split in SPLITS)
    assert sum(make(path, column="text", split=SHARES, block=8).corpus.documents) == 80, "white space is characters"


def test_a_single_text_is_cut_at_the_same_characters_by_every_tokeniser(tmp_path: Path) -> None:
    text = "naïve 日本語 words and some more of them\n" * 60
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    cuts = [0, int(0.6 * len(text)), int((0.6 + 0.3) * len(text)), len(text)]
    expected = {split: [text[cuts[index] : cuts[index + 1]]] for index, split in enumerate(SPLITS)}
    for tokeniser in (Characters(), BPE(vocab_size=280)):
        assert documents(make(tmp_path / "a.txt", tokeniser=tokeniser, split=SHARES, block=4)) == expected
    task = make(tmp_path / "a.txt", tokeniser=Bytes(), split=SHARES, block=4)
    assert documents(task) == expected
    (tmp_path / "a.txt").write_bytes(text.encode() + b"\xff\xfe")
    broken = make(tmp_path / "a.txt", tokeniser=Bytes(), split=SHARES, block=4)
    assert bytes(broken.corpus.ids) == text.encode() + b"\xff\xfe", "bytes that are no UTF-8 are tokens too"


@pytest.mark.parametrize("split", [[0.9, 0.05, 0.05], [0.01, 0.98, 0.01]])
def test_a_split_without_a_document_is_one_clear_line(tmp_path: Path, split: list[float]) -> None:
    path = table(tmp_path / "a.jsonl", rows(2))
    with pytest.raises(
        UsageError, match=r"split of .*a.jsonl' must have text, but a hash sends none of its 2 documents"
    ):
        make(path, column="text", split=split, block=2)
    assert sum(make(table(path, rows(1)), column="text", split=[0.5, 0.3, 0.2], block=2).corpus.documents) == 3


TRICKY = (
    "  two  spaces\n\n\nthree lines \n\t tabs\t\tand it's we'll 12 345  \r\n\r\n end. "
    "日本語\n x\x1cy\x85z\u00a0w\u2003 'quoted'   \n"
)


@pytest.mark.parametrize("size", [24, 31, 60])
@pytest.mark.parametrize(
    "tokeniser", [BPE(vocab_size=300), WordPiece(vocab_size=60, lowercase=True)], ids=lambda one: type(one).__name__
)
def test_the_tokens_of_the_chunks_are_the_tokens_of_the_text(
    monkeypatch: pytest.MonkeyPatch, tokeniser: Tokeniser, size: int
) -> None:
    monkeypatch.setattr(division, "CHUNK", size)
    known = tokeniser.with_learned(tokeniser.learn([TRICKY * 3], (), 1))
    text = TRICKY * 7
    cut = list(chunks(TextRow("", text, {}), strict=True))
    assert "".join(cut) == text and max(map(len, cut)) <= size and len(cut) < 3 * len(text) / size
    assert np.concatenate(known.write(cut)).tolist() == known.write([text])[0].tolist()


def test_a_text_without_white_space_is_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "CHUNK", 10)
    assert list(chunks(TextRow("", "x" * 25 + "\n" * 12, {}), strict=True)) == [
        "x" * 10,
        "x" * 10,
        "x" * 5,
        "\n" * 10,
        "\n" * 2,
    ]


def test_long_documents_are_as_whole_as_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["".join(rows(20, start=20 * number)) for number in range(30)]
    path = table(tmp_path / "a.jsonl", texts)
    expected = documents(make(path, column="text", split=SHARES, block=8))
    for name, value in (("division.CHUNK", 50), ("source.base.PIECE", 13), ("corpus._AT_ONCE", 300)):
        monkeypatch.setattr(f"swapformer.task.{name}", value)
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "another"))
    assert documents(make(path, column="text", split=SHARES, block=8)) == expected


def test_a_vocabulary_of_much_text_is_learned_from_chunks_of_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swapformer.task import corpus

    monkeypatch.setattr(corpus, "_ENOUGH", 1000)
    monkeypatch.setattr(division, "CHUNK", 50)
    (tmp_path / "a.txt").write_text("".join(rows(200)))
    split = Division(Files(path=str(tmp_path / "a.txt")), (0.8, 0.1, 0.1), strict=True)
    whole = list(corpus.LearningText(split, Characters(), strict=True))
    some = list(corpus.LearningText(split, BPE(vocab_size=280), strict=True))
    assert "".join(whole) == "".join(rows(200)), "an alphabet is everything's"
    assert 500 < sum(map(len, some)) <= 1100
    assert some[0] == whole[0] and all(chunk in whole[: int(0.81 * len(whole))] for chunk in some)
    assert whole.index(some[-1]) > 0.7 * len(whole)


def test_ids_take_no_more_bytes_than_the_vocabulary_needs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(chr(0x4E00 + place) for place in range(3000)), encoding="utf-8")
    assert make(tmp_path / "a.txt", block=8).corpus.ids.dtype == np.uint16
    assert make(tmp_path / "a.txt", block=8, tokeniser=Bytes()).corpus.ids.dtype == np.uint8


def test_packed_documents_are_told_apart_and_no_first_token_is_a_target(tmp_path: Path) -> None:
    path = table(tmp_path / "a.jsonl", rows(60))
    settings = {"column": "text", "split": SHARES, "block": 50, "eval_lengths": [100]}
    plain, packed = make(path, **settings), make(path, **settings, packing="documents")
    reset = make(path, **settings, packing="documents", reset_positions=True)
    sets = [task.evaluation("val") for task in (plain, packed, reset)]
    pairs = [[one.batch(0) for one in ones] for ones in zip(*sets, strict=True)]
    pairs += [[task.train_batch(0, step) for task in (plain, packed, reset)] for step in range(3)]
    for blocks, told, from_zero in pairs:
        assert blocks.document is None and blocks.position is None and told.position is None
        assert torch.equal(blocks.inputs, told.inputs) and torch.equal(told.targets, from_zero.targets)
        assert told.document is not None and from_zero.position is not None
        for row in range(len(told.inputs)):
            text = packed.decode(told.inputs[row])
            # Every document ends with a line break and has no other.
            expected = np.cumsum([0, *(one == "\n" for one in text[:-1])])
            assert (told.document[row] - told.document[row, 0]).tolist() == expected.tolist()
            starts = [max(text.rfind("\n", 0, place) + 1, 0) for place in range(len(text))]
            assert from_zero.position[row].tolist() == [place - start for place, start in enumerate(starts)]
            crossing = [one == "\n" for one in text]
            assert (told.targets[row] == IGNORE).tolist() == crossing
            assert torch.equal(told.targets[row][~torch.tensor(crossing)], blocks.targets[row][~torch.tensor(crossing)])


def test_a_large_corpus_gives_back_the_memory_that_its_blocks_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swapformer.task import text_task

    monkeypatch.setattr(text_task, "_LARGE", 0)
    monkeypatch.setattr(text_task, "_WINDOWS", 40)
    (tmp_path / "a.txt").write_text("".join(rows(200)))
    task = make(tmp_path / "a.txt", block=8)
    expected = [task.train_batch(0, step).inputs for step in range(12)]
    released: list[int] = []
    task.corpus = type(task.corpus)(**{**vars(task.corpus), "release": lambda: released.append(1)})
    for step in range(12):
        assert torch.equal(task.train_batch(0, step).inputs, expected[step])
    assert len(released) == 12 * 16 // 48
