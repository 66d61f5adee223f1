"""Token ids of other programs: what is read, what is refused, and splits that a source has of its own."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import shards
from swapformer.task.base import IGNORE
from swapformer.task.labelled import Classification
from swapformer.task.shards import Shards
from swapformer.task.source import Files, HuggingFace
from swapformer.task.text import Text
from swapformer.task.tokeniser import Bytes, Characters, Numbers

IDS = np.random.default_rng(0).integers(0, 50, 5000)


def write_npy(path: Path, ids: Any) -> None:
    np.save(path.with_suffix(".npy"), np.asarray(ids, dtype=np.int32))


def write_plain(path: Path, ids: Any) -> None:
    np.asarray(ids, dtype="<u2").tofile(path.with_suffix(".bin"))


def write_llmc(path: Path, ids: Any, magic: int = 20240520, version: int = 1) -> None:
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(ids)
    kind = "<u4" if magic == 20240801 else "<u2"
    path.with_suffix(".bin").write_bytes(header.tobytes() + np.asarray(ids, dtype=kind).tobytes())


def write_llama(path: Path, ids: Any) -> None:
    write_llmc(path, ids, 20240801, 7)


WRITERS = [write_npy, write_plain, write_llmc, write_llama]


def task(folder: Path, size: int = 50, **settings: Any) -> Text:
    source = {name: settings.pop(name) for name in ("train", "val", "test", "end", "fingerprint") if name in settings}
    return Text(source=Shards(path=str(folder), **source), tokeniser=Numbers(vocab_size=size), block=16, **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_plain(tmp_path / "train_1", IDS[:3000])
    write_plain(tmp_path / "train_2", IDS[3000:4000])
    write_plain(tmp_path / "val", IDS[4000:])
    return tmp_path


@pytest.mark.parametrize("write", WRITERS)
def test_files_of_every_kind_are_read_as_one_text(write: Callable[..., None], tmp_path: Path) -> None:
    write(tmp_path / "train_1", IDS[:3000])
    write(tmp_path / "train_2", IDS[3000:4000])
    write(tmp_path / "val", IDS[4000:])
    made = task(tmp_path)
    assert made.corpus.lengths == (4000, 1000, 0)
    starts = torch.tensor([0, 2990, 2999, 3000, 3984])
    expected = np.stack([IDS[start : start + 16] for start in starts.tolist()])
    assert np.array_equal(made.windows("train", starts, 16).numpy(), expected)
    assert np.array_equal(made.ids["train"][2995:3005], IDS[2995:3005])
    batch = made.train_batch(0, 0)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    scored = torch.cat([made.evaluation("val")[0].batch(index).targets.flatten() for index in range(3)])
    assert set(scored.tolist()) <= set(IDS[4000:].tolist())


def test_a_document_ends_with_its_id_or_with_its_file(folder: Path) -> None:
    whole, cut = (task(folder, packing="documents", end=end) for end in (None, 7))
    assert whole.begins["train"].tolist() == [0, 3000, 4000]
    ends = np.flatnonzero(IDS[:4000] == 7) + 1
    assert cut.begins["train"].tolist() == sorted({0, *ends.tolist(), 4000})
    batch = cut.batch("train", torch.tensor([int(ends[0]) - 4]), 8)
    assert batch.inputs[0, 3] == 7 and batch.targets[0, 3] == IGNORE  # the first of a document is no target
    assert batch.document is not None and batch.document[0, 3] + 1 == batch.document[0, 4]


def test_the_fingerprint_is_of_the_ids_wherever_they_lie(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = task(folder).fingerprint()
    other = tmp_path_factory.mktemp("other")
    for name, ids in {"train_1": IDS[:3000], "train_2": IDS[3000:4000], "val": IDS[4000:]}.items():
        write_npy(other / name, ids)
    assert task(other).fingerprint() == before
    assert task(folder, end=7).fingerprint() != before
    changed = IDS[:3000].copy()
    changed[1700] += 1
    write_plain(folder / "train_1", changed)
    assert task(folder).fingerprint() != before


def test_a_full_fingerprint_sees_what_samples_of_a_large_file_do_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_SAMPLE", 8)
    monkeypatch.setattr(shards, "_SAMPLES", 4)

    def known() -> list[str]:
        return [task(folder, fingerprint=kind).fingerprint() for kind in ("samples", "full")]

    before = known()
    changed = IDS[:3000].copy()
    changed[20] += 1  # between the first sample and the second
    write_plain(folder / "train_1", changed)
    after = known()
    assert after[0] == before[0] and after[1] != before[1]


def test_nothing_is_copied_of_a_large_file(tmp_path: Path) -> None:
    """Sparse files of 2 GB: a batch takes its windows, the fingerprint its samples."""
    for name in ("train", "val"):
        with (tmp_path / f"{name}.bin").open("wb") as file:
            file.truncate(2 << 30)
    tracemalloc.start()
    try:
        made = task(tmp_path)
        assert made.corpus.lengths[0] == 1 << 30
        for step in range(50):
            made.train_batch(0, step)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.bin", b"abc", "3 bytes, and ids of uint16 take an even number"),
        ("train.bin", b"", "0 bytes"),
        ("train.npy", b"\x93NUMPY nothing", "cannot be read"),
        ("train.npy", b"", "cannot be read"),
        ("train.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fo", "cannot be read"),
        ("train.npy", b"PK\x03\x04 of an npz", "cannot be read"),
        ("train.txt", b"a text of ASCII has ids below 50257", "must be in files that end in .npy or .bin"),
        ("train.npy", np.zeros((2, 3), dtype=np.int32), r"array \[2, 3\] of int32; write one axis of whole numbers"),
        ("train.npy", np.zeros(9), "of float64"),
        ("train.bin", np.array([20240520, 1, 9, *[0] * 253, 1, 2], dtype="<i4"), "says 9 ids, but there are 4"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(name: str, content: Any, message: str, folder: Path) -> None:
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    elif name.endswith(".npy"):
        np.save(folder / name, content)
    else:
        content.tofile(folder / name)
    with pytest.raises(UsageError, match=message) as refused:
        task(folder, train=name)
    assert "\n" not in str(refused.value)


def test_ids_of_uint16_are_not_those_of_a_large_vocabulary(folder: Path) -> None:
    """A file of uint32 without a header would be read as twice as many ids."""
    np.arange(40, dtype="<u2").tofile(folder / "train.bin")
    assert task(folder, train="train.bin", size=1 << 16).corpus.lengths[0] == 40
    with pytest.raises(
        UsageError, match=r"ids are uint16, below 65536, but task/tokeniser has 65537; write it as .npy"
    ):
        task(folder, train="train.bin", size=(1 << 16) + 1)


def test_a_file_with_llmcs_header_of_uint16_is_not_of_a_large_vocabulary(folder: Path) -> None:
    for name in ("train_9", "val_9"):
        write_llmc(folder / name, np.arange(40))
    files = {"train": "train_9.bin", "val": "val_9.bin"}
    assert task(folder, size=1 << 16, **files).corpus.lengths[0] == 40
    with pytest.raises(
        UsageError, match=r"ids are uint16, below 65536, but task/tokeniser has 65537; write it as uint32"
    ):
        task(folder, size=(1 << 16) + 1, **files)


def test_a_document_may_end_far_into_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_AT_ONCE", 64)
    ends = np.flatnonzero(IDS[:4000] == 7) + 1
    assert task(folder, packing="documents", end=7).begins["train"].tolist() == sorted({0, *ends.tolist(), 4000})


def test_the_last_ids_of_a_large_file_are_sampled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_SAMPLE", 8)
    monkeypatch.setattr(shards, "_SAMPLES", 4)
    before = task(folder).fingerprint()
    changed = IDS[:3000].copy()
    changed[-1] += 1
    write_plain(folder / "train_1", changed)
    assert task(folder).fingerprint() != before


def test_a_header_of_which_the_end_is_missing_is_none(folder: Path) -> None:
    np.array([20240520, *[1] * 9], dtype="<i4").tofile(folder / "train.bin")
    assert task(folder, train="train.bin", size=1 << 16).corpus.lengths[0] == 20, "ids of uint16 without a header"


def test_ids_of_uint32_without_a_header_are_no_ids_of_uint16(folder: Path) -> None:
    """Read as uint16 there are twice as many, and every second one is 0."""
    for kind, refused in (("<u4", True), ("<u2", False)):
        np.arange(40, dtype=kind).tofile(folder / "train.bin")
        if refused:
            with pytest.raises(UsageError, match="every second one is 0, as in a file of uint32"):
                task(folder, train="train.bin")
        else:
            assert task(folder, train="train.bin").corpus.lengths[0] == 40


def test_a_header_of_llmc_with_another_number_is_no_ids(folder: Path) -> None:
    write_llmc(folder / "train_8", np.arange(40), 20250101)
    with pytest.raises(UsageError, match=r"looks like one of llm\.c, but begins with 20250101 in place of one of 2024"):
        task(folder, train="train_8.bin")


def test_negative_ids_are_refused_where_they_are_met(folder: Path) -> None:
    np.save(folder / "train_9.npy", np.array([3, -1, 5] * 20))
    np.save(folder / "val_9.npy", IDS[:100])
    made = task(folder, train="train_9.npy", val="val_9.npy")
    with pytest.raises(UsageError, match=r"below the 50 of task/tokeniser, but '.*train_9.npy' has -1"):
        made.ids["train"][:20]


def test_an_array_of_uint16_is_not_of_a_large_vocabulary(folder: Path) -> None:
    """Ids above 65535 wrapped around when they were written."""
    np.save(folder / "train_9.npy", np.arange(40, dtype=np.uint16))
    np.save(folder / "val_9.npy", np.arange(40, dtype=np.uint16))
    files = {"train": "train_9.npy", "val": "val_9.npy"}
    assert task(folder, size=1 << 16, **files).corpus.lengths[0] == 40
    with pytest.raises(
        UsageError,
        match=r"_9\.npy' .*its ids are uint16, below 65536, but task/tokeniser has 65537; write it as uint32",
    ):
        task(folder, size=(1 << 16) + 1, **files)


def test_ids_beyond_the_vocabulary_are_refused_where_they_are_met(folder: Path) -> None:
    made = task(folder, size=40)
    with pytest.raises(UsageError, match=r"below the 40 of task/tokeniser, but '.*train_1.bin' has 49"):
        made.ids["train"][:200]


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    odd = tmp_path / "ids [1] of *"
    odd.mkdir()
    for name in ("train", "val"):
        write_plain(odd / name, IDS[:100])
    assert task(odd).corpus.lengths == (100, 100, 0)


def test_what_cannot_be_meant_is_refused(folder: Path) -> None:
    write_plain(folder / "even", IDS[:100] // 2)
    with pytest.raises(UsageError, match=r"task.source.test must be a file, a folder or a pattern"):
        task(folder, test="no_test.bin")
    with pytest.raises(UsageError, match=r"'.*val.bin' must be in one split, but task.source.val and task.source.test"):
        task(folder, test="val.bin")
    np.save(folder / "train_3.npy", IDS[:100])
    with pytest.raises(
        UsageError, match=r"numbers of one type, but '.*train_2.bin' has uint16 and '.*train_3.npy' int64"
    ):
        task(folder)
    with pytest.raises(UsageError, match=r"task.source.end must be below the 50 ids of task/tokeniser, but is 50"):
        task(folder, train="train_1.bin", end=50)
    with pytest.raises(UsageError, match=r"task.source.end must occur in training, but no id there is 49"):
        task(folder, train="even.bin", end=49, packing="documents").train_batch(0, 0)
    with pytest.raises(UsageError, match="no text that a tokeniser could learn from; take what wrote them"):
        Text(source=Shards(path=str(folder)), tokeniser=Characters(), block=16)
    with pytest.raises(UsageError, match="has token ids and no text"):
        next(Shards(path=str(folder)).documents())
    with pytest.raises(UsageError, match=r"the val split of .* must have at least 2001 tokens"):
        task(folder, train="train_1.bin", eval_lengths=[2000])


def test_files_may_have_a_validation_of_their_own(folder: Path) -> None:
    for name in ("first", "second", "held_out"):
        (folder / f"{name}.txt").write_text(f"{name} text " * 40)

    def made(**source: Any) -> Text:
        return Text(source=Files(path=str(folder / "*t.txt"), **source), tokeniser=Bytes(), block=16)

    with pytest.raises(UsageError, match=r"must be in one split, but task.source.path and task.source.val"):
        made(val=str(folder / "first.txt"))
    held = str(folder / "second.txt")
    for joined in (False, True):
        text = made(val=held, joined=joined)
        assert [text.decode(text.ids[split]) for split in ("val", "test")] == ["second text " * 40, ""]
        assert "first text" in text.decode(text.ids["train"]) and "held_out text" in text.decode(text.ids["train"])
        assert text.evaluation("test") == []
    with pytest.raises(UsageError, match=r"task.source.val is null; give both"):
        made(test=held)


def test_rows_of_a_validation_of_its_own_are_in_no_training(tmp_path: Path) -> None:
    for name in ("train", "val"):
        rows = [{"text": f"{name} row number {row}", "label": row % 2} for row in range(30)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = Files(path=str(tmp_path / "train.jsonl"), val=str(tmp_path / "val.jsonl"), column="text")
    found = Classification(source=source, tokeniser=Bytes(), label="label", block=32)
    for split in ("train", "val", "test"):
        read = [found.decode(row) for row in found.read(np.array(found.examples.rows(split), dtype=np.int64)).inputs]  # type: ignore[arg-type]
        assert len(read) == (0 if split == "test" else 30) and all(f"{split} row number" in text for text in read)


def test_a_data_set_may_have_a_validation_of_its_own(tmp_path: Path) -> None:
    splits = {name: datasets.Dataset.from_dict({"text": [f"{name} {row} " * 9 for row in range(3)]}) for name in "abc"}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))

    def made(**source: Any) -> Text:
        source = {"name": str(tmp_path / "saved"), "split": "a", **source}
        return Text(source=HuggingFace(**source), tokeniser=Bytes(), block=16)

    text = made(val="b", test="c")
    for split, letter in (("train", "a"), ("val", "b"), ("test", "c")):
        assert text.decode(text.ids[split]) == "".join(f"{letter} {row} " * 9 for row in range(3))  # type: ignore[index]
    with pytest.raises(UsageError, match=r"task.source.val must be one of a, b, c"):
        made(val="d")
    for wrong in ({"val": "a"}, {"test": "c"}):
        with pytest.raises(UsageError, match="must be different splits, with a val where there is a test"):
            made(**wrong)
