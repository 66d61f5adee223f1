"""Text: what is split, sampled, scored and refused. Texts whose characters all differ let a token id tell its place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.task import Text
from swapformer.task.base import Pieces, Split
from swapformer.task.division import SPLITS, split_of
from swapformer.task.source import Library
from swapformer.task.tokeniser import Bytes, Characters, Tokeniser
from texts import text as make

N = 3000
DISTINCT = "".join(chr(0x4E00 + place) for place in range(N))
"""Characters in the order of their code points: the token id of each is its place in the text."""


@pytest.fixture
def distinct(tmp_path: Path) -> Path:
    path = tmp_path / "distinct.txt"
    path.write_text(DISTINCT, encoding="utf-8")
    return path


def windows(task: Text, split: Split, name: str = "") -> Tensor:
    """Inputs and the last target [n,L+1] of all blocks of a set, or of 40 training batches."""
    if split == "train":
        batches = [task.train_batch(0, step) for step in range(40)]
    else:
        one = next(one for one in task.evaluation(split) if one.name == name)
        assert one.batches is not None
        batches = [one.batch(index) for index in range(one.batches)]
    return torch.cat([torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1) for batch in batches])


def test_targets_are_the_inputs_shifted_by_one_in_every_split(distinct: Path) -> None:
    task = make(distinct, block=8, eval_lengths=[16])
    for split in ("val", "test"):
        for one in task.evaluation(split):
            batch = one.batch(0)
            assert torch.equal(batch.targets, batch.inputs + 1) and batch.padding is None
    batch = task.train_batch(0, 0)
    assert torch.equal(batch.targets, batch.inputs + 1)
    assert batch.inputs.shape == (16, 8) and batch.inputs.dtype == torch.int64
    assert (batch.inputs[:, 1:] == batch.inputs[:, :-1] + 1).all()


def test_in_shuffled_order_each_block_is_seen_once_an_epoch(distinct: Path) -> None:
    task = make(distinct, split=[0.8, 0.1, 0.1], block=8, batch_size=7, order="shuffled")
    blocks = (2400 - 1) // 8

    def starts(seed: int, first: int, count: int) -> list[int]:
        """Where the blocks `first` … of the endless sequence begin."""
        steps = range(first // 7, (first + count - 1) // 7 + 1)
        found = torch.cat([task.train_batch(seed, step).inputs[:, 0] for step in steps])
        return found[first % 7 :][:count].tolist()

    first, second = starts(0, 0, blocks), starts(0, blocks, blocks)
    assert sorted(first) == sorted(second) == [8 * index for index in range(blocks)]
    assert first != second and first != starts(1, 0, blocks) and first == starts(0, 0, blocks)
    again = make(distinct, split=[0.8, 0.1, 0.1], block=8, batch_size=7, order="shuffled")
    assert torch.equal(again.train_batch(0, 50).inputs, task.train_batch(0, 50).inputs)
    short = make(distinct, split=[0.4, 0.4, 0.2], block=500, batch_size=5, order="shuffled")
    several = short.train_batch(0, 0).inputs[:, 0]  # a batch of several epochs
    assert sorted(several[:2].tolist()) == sorted(several[2:4].tolist()) == [0, 500]


def test_no_character_is_in_the_blocks_of_two_splits(distinct: Path) -> None:
    task = make(distinct, split=[0.8, 0.1, 0.1], block=8, eval_lengths=[32])
    bounds = {"train": (0, 2400), "val": (2400, 2700), "test": (2700, 3000)}
    for split in SPLITS:
        for name in ("", "@32") if split != "train" else ("",):
            places = windows(task, split, name)
            assert bounds[split][0] <= places.min() and places.max() < bounds[split][1]


def test_training_reaches_every_place_of_its_split(distinct: Path) -> None:
    task = make(distinct, split=[0.01, 0.98, 0.01], block=8, batch_size=64)
    assert windows(task, "train").unique().tolist() == list(range(30))


def test_evaluation_scores_every_token_once(distinct: Path) -> None:
    task = make(distinct, split=[0.5, 0.4, 0.1], block=8)
    scored = windows(task, "val")[:, 1:].flatten()
    assert sorted(scored.tolist()) == list(range(1501, 1501 + (1200 - 1) // 8 * 8))
    assert scored.tolist() != sorted(scored.tolist()), "the first batches are not the text's beginning"


def test_the_same_batches_of_all_lengths_score_the_same_tokens(distinct: Path) -> None:
    task = make(distinct, split=[0.5, 0.4, 0.1], block=8, batch_size=16, eval_lengths=[32, 64, 2])
    sets = {one.name: one for one in task.evaluation("val")}
    assert list(sets) == ["", "@32", "@64", "@2"]
    assert {one.batches for one in sets.values()} == {math.ceil((1200 - 1) // 64 / 2)}
    for index in range(3):
        batches = {name: one.batch(index) for name, one in sets.items()}
        assert {name: tuple(batch.inputs.shape) for name, batch in batches.items()} == {
            "": (16, 8), "@32": (4, 32), "@64": (2, 64), "@2": (64, 2),
        }  # fmt: skip
        assert len({tuple(sorted(batch.targets.flatten().tolist())) for batch in batches.values()}) == 1
    for name in sets:
        scored = windows(task, "val", name)[:, 1:].flatten().tolist()
        assert sorted(scored) == list(range(1501, 1501 + (1200 - 1) // 64 * 64)), "and every token once"
    assert task.max_length == 64 and task.train_length == 8


def test_no_share_for_the_test_leaves_it_no_token_by_rounding(distinct: Path) -> None:
    task = make(distinct, split=[0.6, 0.3999995, 0.0], block=8)
    assert task.corpus.lengths == (1800, 1200, 0) and task.evaluation("test") == []


def test_nanogpts_split_of_a_text_as_long_as_tiny_shakespeare(tmp_path: Path) -> None:
    # 1 115 394 characters with 65 distinct ones: nanoGPT prepares 1 003 854 for training and 111 540 for validation.
    path = tmp_path / "text.txt"
    alphabet = "\n !$&',-.3:;?" + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    path.write_text((alphabet * (1_115_394 // 65 + 1))[:1_115_394], encoding="utf-8")
    task = make(path, split=[0.9, 0.1, 0.0], batch_size=12)
    assert task.vocab_size == 65 and task.tokens == tuple(alphabet), "sorted by code point, as nanoGPT does"
    assert task.corpus.lengths == (1_003_854, 111_540, 0)
    assert task.evaluation("test") == []
    assert task.evaluation("val")[0].batches == math.ceil(111_539 // 64 / 12)


def test_rare_characters_become_one_unknown_token(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab" * 200 + "xyz" + "c" * 3, encoding="utf-8")
    task = make(path, tokeniser=Characters(min_count=3), block=4)
    assert task.tokens == ("a", "b", "c", "<unk>") and task.vocab_size == 4
    assert task.encode("abx") == [0, 1, 3] and task.decode([0, 3, 2]) == "a<unk>c"
    everything = make(path, block=4)
    assert everything.tokens == tuple("abcxyz"), "where every character is known there is no <unk>"
    with pytest.raises(UsageError, match="'q' is not"):
        everything.encode("aq")
    with pytest.raises(UsageError, match=r"task.tokeniser.min_count must leave some characters, but none occurs 999"):
        make(path, tokeniser=Characters(min_count=999), block=4)


@pytest.mark.parametrize("kind", [Characters, Bytes])
def test_ids_are_the_text(tmp_path: Path, kind: type[Tokeniser]) -> None:
    path = tmp_path / "text.txt"
    text = "naïve 日本語 🙂\r\n\t" * 50
    path.write_bytes(text.encode())
    task = make(path, tokeniser=kind(), block=4)
    assert "".join(task.decode(task.corpus.split(split)) for split in SPLITS) == text
    assert task.decode(task.corpus.ids) == text
    assert task.decode(task.encode("naïve 語🙂")) == "naïve 語🙂"
    assert task.vocab_size == (256 if kind is Bytes else len(set(text)))
    assert all(int(task.train_batch(0, step).targets.max()) < task.vocab_size for step in range(20))


def test_bits_per_byte_is_the_same_for_characters_and_bytes_that_a_uniform_code_describes(distinct: Path) -> None:
    # Each character costs ln V nats under uniform logits and has 3 bytes; each byte costs 8 bits.
    tokenisers: list[tuple[Tokeniser, float]] = [(Characters(), math.log2(N) / 3), (Bytes(), 8.0)]
    for tokeniser, bits in tokenisers:
        task = make(distinct, tokeniser=tokeniser, block=8)
        metrics = task.metrics()
        batch = task.train_batch(0, 0)
        metrics.update(torch.zeros(*batch.inputs.shape, task.vocab_size), batch.targets)
        found = metrics.compute()
        assert float(found["bits_per_byte"]) == pytest.approx(bits, rel=1e-5)
        assert float(found["perplexity"]) == pytest.approx(task.vocab_size, rel=1e-4)


def test_the_standard_library_has_no_tests_and_its_files_go_to_one_split_each() -> None:
    source = Library()
    names = [name for name, _ in source.files]
    assert "argparse.py" in names and "asyncio/base_events.py" in names and names == sorted(names)
    assert not any(
        part in {"test", "tests", "idle_test", "site-packages"} for name in names for part in name.split("/")
    )
    task = make()
    assert task.tokens[-1] == "<unk>" and 90 <= task.vocab_size <= 120
    known = set(task.tokens)
    for split in SPLITS:
        files = [path for name, path in source.files if split_of(name, (0.9, 0.05, 0.05)) == split]
        text = "".join(path.read_bytes().decode() for path in files)
        assert len(text) == len(task.corpus.split(split)) > 100_000
        assert task.decode(task.corpus.split(split)[:5000]) == "".join(
            c if c in known else "<unk>" for c in text[:5000]
        )


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (None, {}, "task.source.path must be a file, a folder or a pattern, but there is nothing at '.*text.txt'"),
        (None, {"path": "*.nothing"}, r"task.source.path must lead to at least one file, but '\*.nothing' has none"),
        (b"", {}, "there must be text in '.*text.txt', but it is empty"),
        (b"good \xff bad", {}, "byte 5 of '.*text.txt' is 0xff .*iconv"),
        (b"cut off \xe6\x97", {}, "byte 8 of '.*text.txt' is 0xe6"),
        (b"a" * 64, {}, "train split of '.*text.txt' must have at least 65 tokens .* but has 57; take a longer text"),
        (b"a" * 1000, {}, "val split of .* must have at least 65 tokens .* but has 50"),
        (b"a" * 2000, {"eval_lengths": [100]}, r"val split .* at least 101 .*task.eval_lengths=\[100\], but has 100"),
        (b"a" * 2000, {"split": [0.9, 0.09999, 0.00001]}, "test split .* at least 65 tokens .* but has 1"),
        (b"a" * 9999, {"split": [0.9, 0.2, 0.1]}, r"task.split must be three shares .* but is \[0.9, 0.2, 0.1\]"),
        (b"a" * 9999, {"split": [0.9, 0.1]}, r"task.split must be three shares .* but is \[0.9, 0.1\]"),
        (b"a" * 9999, {"split": [1.0, 0.0, 0.0]}, "training and validation above 0"),
        (b"a" * 9999, {"reset_positions": True}, "task.reset_positions needs documents .* set task.packing=documents"),
    ],
)
def test_wrong_use_gets_one_line_that_says_what_must_hold(
    tmp_path: Path, content: bytes | None, settings: dict[str, Any], message: str
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        make(**{"path": path} | settings)
    assert "\n" not in str(caught.value)


def test_a_library_without_source_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swapformer.task.source.library.sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UsageError, match=r"source is not in .*; take texts of your own, task/source=files"):
        Library()


def test_the_shortest_text_that_fits_is_used_to_its_last_token(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(DISTINCT[:90], encoding="utf-8")
    task = make(path, split=[1 / 3, 1 / 3, 1 / 3], block=29)
    assert windows(task, "train").unique().tolist() == list(range(30))
    assert windows(task, "val").tolist() == [list(range(30, 60))]
    assert windows(task, "test").tolist() == [list(range(60, 90))]


@pytest.mark.parametrize(("count", "size"), [(0, 3), (1, 3), (6, 3), (7, 3), (5, 1), (4, 9)])
def test_pieces_are_those_of_a_split(count: int, size: int) -> None:
    values = torch.arange(count)
    pieces = Pieces(values, size)
    wanted = torch.split(values, size) if count else ()
    assert len(pieces) == len(wanted)
    assert all(torch.equal(one, other) for one, other in zip(pieces, wanted, strict=True))
    with pytest.raises(IndexError):
        pieces[len(pieces)]
