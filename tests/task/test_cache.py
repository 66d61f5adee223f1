"""The cache of tokenised texts: quick where it can be, and never a part of the answer."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import Text, cache, corpus
from swapformer.task.tokeniser import BPE, Bytes, Characters
from texts import text as make

WORDS = "the quick brown fox jumps over the lazy dog " * 200


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text that counts as old enough for the cache."""
    monkeypatch.setattr(cache, "_SETTLED", 0)
    path = tmp_path / "words.txt"
    path.write_text(WORDS, encoding="utf-8")
    return path


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each text that is tokenised."""
    calls: list[int] = []
    tokenise = corpus._tokenise

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return tokenise(*arguments)

    monkeypatch.setattr(corpus, "_tokenise", counted)
    return calls


def facts(task: Text) -> tuple[Any, ...]:
    return task.fingerprint(), task.tokens, task.corpus.lengths, task.corpus.ids.tolist()


def test_a_text_is_tokenised_once(words: Path, builds: list[int]) -> None:
    first, second = make(words), make(words)
    assert len(builds) == 1
    assert facts(first) == facts(second)
    assert torch.equal(first.train_batch(0, 0).inputs, second.train_batch(0, 0).inputs)
    assert torch.equal(first.train_batch(0, 0).inputs, first.train_batch(0, 0).inputs)


def test_a_text_that_is_in_the_cache_needs_no_library_that_reads_or_writes_texts(
    words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokeniser = BPE(vocab_size=270)
    expected = facts(make(words, tokeniser=tokeniser))
    for library in ("tokenizers", "datasets", "pyarrow", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, library, None)  # importing it fails from here on
    task = make(words, tokeniser=tokeniser)
    assert facts(task) == expected and task.train_batch(0, 0).inputs.shape == (16, 64)
    with pytest.raises(ImportError):
        task.encode("the quick brown fox")


def test_what_tokenisation_depends_on_has_an_entry_of_its_own(words: Path, builds: list[int]) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"tokeniser": Bytes()},
        {"tokeniser": Characters(min_count=300)},
        {"tokeniser": Characters(special=["[MASK]"])},
        {"split": [0.8, 0.1, 0.1]},
    ]
    fresh = [facts(make(words, **variant)) for variant in variants]
    assert len({found[0] for found in fresh}) == len(variants) == len(builds)
    assert [facts(make(words, **variant)) for variant in variants] == fresh
    assert make(words, block=32, batch_size=3, eval_lengths=[7]).fingerprint() == fresh[0][0]
    assert len(builds) == len(variants)


def truncate(entry: Path, ids: Path) -> None:
    ids.write_bytes(ids.read_bytes()[:-1000])


def flip_a_bit(entry: Path, ids: Path) -> None:
    content = bytearray(ids.read_bytes())
    content[-500] ^= 1
    ids.write_bytes(content)


def break_the_header(entry: Path, ids: Path) -> None:
    ids.write_bytes(ids.read_bytes().replace(b"{'descr'", b"{'descr(", 1))


def empty_the_ids(entry: Path, ids: Path) -> None:
    ids.write_bytes(b"")


def remove_the_ids(entry: Path, ids: Path) -> None:
    ids.unlink()


def empty_the_entry(entry: Path, ids: Path) -> None:
    entry.write_bytes(b"")


def not_an_entry(entry: Path, ids: Path) -> None:
    entry.write_text("[1, 2]")


def move_the_cut(entry: Path, ids: Path) -> None:
    content = json.loads(entry.read_text())
    content["header"]["lengths"][0] -= 1
    content["header"]["lengths"][1] += 1
    entry.write_text(json.dumps(content))


def swap_the_vocabulary(entry: Path, ids: Path) -> None:
    content = json.loads(entry.read_text())
    content["header"]["learned"]["tokens"] = content["header"]["learned"]["tokens"][::-1]
    entry.write_text(json.dumps(content))


DAMAGES = [truncate, flip_a_bit, break_the_header, empty_the_ids, remove_the_ids, empty_the_entry, not_an_entry,
           move_the_cut, swap_the_vocabulary]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_noticed_and_repaired(
    words: Path, builds: list[int], own_cache: Path, damage: Callable[[Path, Path], None]
) -> None:
    expected = facts(make(words))
    [entry], [ids] = own_cache.rglob("*.json"), own_cache.rglob("*.ids.npy")
    damage(entry, ids)
    assert facts(make(words)) == expected and len(builds) == 2
    assert facts(make(words)) == expected and len(builds) == 2, "the repaired entry serves again"


def test_a_cache_that_cannot_be_written_is_done_without(
    words: Path, builds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = facts(make(words))
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file" / "cache", Path("/proc/nowhere")):
        monkeypatch.setenv("SWAPFORMER_CACHE", str(folder))
        assert facts(make(words)) == expected
    assert len(builds) == 3


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_full_disk_leaves_no_half_written_file(
    words: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, everywhere: bool, tmp_path: Path
) -> None:
    save = np.save
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def full(path: Path, array: Any) -> None:
        if everywhere or own_cache in path.parents:
            path.write_bytes(b"half of it")
            raise OSError(28, "No space left on device")
        save(path, array)

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        if everywhere:
            with pytest.raises(UsageError, match=r"No space left on device; make room, or set SWAPFORMER_CACHE"):
                make(words)
        else:
            task = make(words)
            assert task.decode(task.corpus.ids) == WORDS
    assert [path for place in (own_cache, tmp_path / "temporary") for path in place.rglob("*") if path.is_file()] == []


def test_what_a_killed_process_left_behind_is_removed_after_a_day(words: Path, own_cache: Path) -> None:
    left = [own_cache / "corpora" / f".swapformer-unfinished-{name}" for name in ("old", "new")]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "train").write_text("half of it")
    os.utime(left[0], (1, 1))
    make(words)
    assert not left[0].exists() and left[1].exists()


def test_arrays_that_have_only_been_touched_are_read_again_and_trusted_again(
    words: Path, own_cache: Path, builds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(words)
    [ids] = own_cache.rglob("*.ids.npy")
    digests: list[int] = []
    digest = cache.digest_of_arrays
    monkeypatch.setattr(cache, "digest_of_arrays", lambda *given: (digests.append(1), digest(*given))[1])
    make(words)
    assert digests == [], "what nobody has touched is not read whole"
    os.utime(ids, (1, 1))
    make(words)
    make(words)
    assert len(digests) == 1 and len(builds) == 1


def test_of_many_at_once_one_tokenises_and_all_agree_and_leave_one_entry(
    words: Path, builds: list[int], own_cache: Path
) -> None:
    """The lock is one of an open file, so that threads stand for processes."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: facts(make(words)), range(24)))
    assert all(one == found[0] for one in found)
    assert len(builds) == 1
    assert sorted(path.suffix for path in own_cache.rglob("*") if path.is_file()) == [".json", ".npy", ".npy"]


def test_a_changed_text_is_noticed_although_size_and_time_of_change_are_as_before(words: Path) -> None:
    before, times = make(words), words.stat()
    words.write_text(WORDS.replace("fox", "cat"), encoding="utf-8")
    os.utime(words, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = make(words)
    assert "cat" in after.decode(after.corpus.ids) and "cat" not in before.decode(before.corpus.ids)
    assert after.fingerprint() != before.fingerprint()


def test_a_text_that_has_just_been_written_is_not_trusted_to_stay(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text(WORDS, encoding="utf-8")
    make(path)
    assert not list(own_cache.rglob("*.json"))


def test_the_fingerprint_is_of_the_content_and_not_of_where_or_when(words: Path, tmp_path: Path) -> None:
    reference = make(words).fingerprint()
    other = tmp_path / "moved.md"
    other.write_text(WORDS, encoding="utf-8")
    os.utime(other, (1, 1))
    assert make(other).fingerprint() == reference
    other.write_text(WORDS[:-2] + "!\n", encoding="utf-8")
    assert make(other).fingerprint() != reference


def test_fingerprints_do_not_drift(words: Path) -> None:
    # Frozen: a change here means that every stored trial on text is another trial.
    assert make(words).fingerprint()[:16] == "6e1b92e5dc3738c6"
