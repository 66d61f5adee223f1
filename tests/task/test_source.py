"""Where texts come from: what is a document, what it is called, and what is said of one that cannot be read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow.parquet import write_table

from swapformer.errors import UsageError
from swapformer.task.source import Document, Files, HuggingFace, Library
from swapformer.task.source import huggingface as hub
from swapformer.task.source.base import PIECE, TextFile, TextRow

ROWS = [{"text": "naïve 日本", "label": 1}, {"text": 'a "quoted", line\nand another', "label": 0}]


def texts(source: Any, *columns: str) -> list[tuple[str, dict[str, Any]]]:
    return [(document.text(), dict(document.values)) for document in source.documents(columns)]


def write_jsonl(path: Path) -> None:
    path.write_text("\n\n".join(json.dumps(row) for row in ROWS) + "\n", encoding="utf-8")


def write_csv(path: Path) -> None:
    path.write_text('﻿label,text\n1,naïve 日本\n0,"a ""quoted"", line\nand another"\n', encoding="utf-8")


def write_tsv(path: Path) -> None:
    path.write_text('text\tlabel\nnaïve 日本\t1\n"a ""quoted"", line\nand another"\t0\n', encoding="utf-8")


def write_parquet(path: Path) -> None:
    write_table(pyarrow.Table.from_pylist(ROWS), path)


WRITERS = {"jsonl": write_jsonl, "ndjson": write_jsonl, "csv": write_csv, "tsv": write_tsv, "parquet": write_parquet}


@pytest.mark.parametrize("kind", WRITERS)
def test_each_row_of_a_table_is_a_document_with_the_columns_that_were_asked_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    WRITERS[kind](path)
    found = texts(Files(path=str(path), column="text"), "label")
    as_text = kind in ("csv", "tsv")  # which have no numbers
    assert found == [(row["text"], {"label": str(row["label"]) if as_text else row["label"]}) for row in ROWS]
    assert texts(Files(path=str(path), column="text")) == [(text, {}) for text, _ in found]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_missing_column_lists_those_that_exist(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    WRITERS[kind](path)
    columns = "label, text" if kind == "csv" else "text, label"
    with pytest.raises(UsageError, match=rf"rows.{kind}'.* must have the column 'txt', but its columns are {columns};"):
        texts(Files(path=str(path), column="txt"))
    with pytest.raises(UsageError, match=r"must have the column 'kind', but its columns are"):
        texts(Files(path=str(path), column="text"), "kind")
    with pytest.raises(UsageError, match=rf"task.source.column must name the column of .* it has {columns}"):
        Files(path=str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a.jsonl', line 2 must be JSON, but: Expecting value"),
        ("a.jsonl", b'{"text": "a"}\n\n["b"]\n', r"a.jsonl', line 3 must be a JSON object .* but is '\[\"b\"\]'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": 7}', r"column 'text' must hold text, but at .*a.jsonl', line 2 it is 7"),
        ("a.jsonl", b'{"text": "a"}\n{"text": null}', r"but at .*a.jsonl', line 2 it is null"),
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}', r"line 2 must have the column 'text', .* columns are txt"),
        ("a.jsonl", b'{"text": "a\\ud800"}', r"a.jsonl', line 1 must be Unicode text, but its character 1 is"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}', r"a.jsonl', line 2 must be UTF-8, but invalid start byte"),
        ("a.csv", b"text,label\na,1\nb\n", r"a.csv', line 3 must have 2 values, as the first line has, but has 1"),
        ("a.csv", b'text,label\na,1\n"b"x,1\n', r"a.csv', line 3 must be a row of values, but: ',' expected"),
        ("a.parquet", b"PAR1 is not enough", r"a.parquet' must be a parquet file, but: "),
        ("a.txt", b"text", r"the column 'text' must be in a table .* but '.*a.txt' is plain text; give a table"),
    ],
)  # fmt: skip
def test_a_malformed_row_names_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        texts(Files(path=str(tmp_path / name), column="text"))
    assert "\n" not in str(caught.value)


def test_a_field_of_any_length_is_read_and_the_processs_limit_stays(tmp_path: Path) -> None:
    import csv

    (tmp_path / "a.csv").write_text("text\n" + "x" * 300_000 + "\n")
    before = csv.field_size_limit()
    assert len(texts(Files(path=str(tmp_path / "a.csv"), column="text"))[0][0]) == 300_000 > before
    assert csv.field_size_limit() == before


def folder(path: Path) -> dict[str, str]:
    content = {"b/2.txt": "bb" * 40, "a.txt": "aa" * 40, "c.md": "cc" * 40, ".hidden": "h", "e.txt": ""}
    (path / "b").mkdir()
    for name, text in content.items():
        (path / name).write_text(text, encoding="utf-8")
    return content


def test_folders_and_patterns_give_their_files_in_the_order_of_names(tmp_path: Path) -> None:
    content = folder(tmp_path)
    found = [text for text, _ in texts(Files(path=str(tmp_path)))]
    assert found == [content[name] for name in ("a.txt", "b/2.txt", "c.md", "e.txt")]
    found = [text for text, _ in texts(Files(path=str(tmp_path / "**" / "*.txt")))]
    assert found == [content[name] for name in ("a.txt", "b/2.txt", "e.txt")]


def test_joined_files_are_one_text(tmp_path: Path) -> None:
    folder(tmp_path)
    [(text, _)] = texts(Files(path=str(tmp_path), joined=True))
    assert text == "a" * 80 + "b" * 80 + "c" * 80
    write_csv(tmp_path / "rows.csv")
    with pytest.raises(UsageError, match=r"only text files can be joined, but .*rows.csv' is a table"):
        Files(path=str(tmp_path), column="text", joined=True)


def test_a_folder_may_hold_texts_and_tables(tmp_path: Path) -> None:
    folder(tmp_path)
    write_jsonl(tmp_path / "rows.jsonl")
    source = Files(path=str(tmp_path), column="text")
    assert len(texts(source)) == 4 + len(ROWS)
    with pytest.raises(UsageError, match=r"the column 'label' must be in a table .* but .*a.txt' is plain text"):
        texts(source, "label")
    with pytest.raises(UsageError, match="the column 'label' must be in a table"):
        texts(Library(), "label")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_file_is_read_in_pieces_wherever_they_cut_its_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("swapformer.task.source.base.PIECE", size)
    text = "naïve 日本語 🙂\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    document = TextFile(tmp_path / "a.txt")
    assert document.text() == text and len(list(document.pieces())) > 3
    (tmp_path / "a.txt").write_bytes(text.encode() + b"\xff" + text.encode())
    with pytest.raises(UsageError, match=rf"byte {len(text.encode())} of .*a.txt' is 0xff"):
        document.text()
    assert "".join(document.pieces(strict=False)) == text + "\udcff" + text
    assert PIECE > 1000


def test_a_document_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    made: list[Document] = [TextRow("here", "the text", {}), TextRow("there", "the text", {"label": 1})]
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("the text")
        made.append(TextFile(tmp_path / name))
    assert len({document.key for document in made}) == 1
    assert TextRow("here", "another text", {}).key != made[0].key


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data files as Hugging Face's library reads it, which then keeps its own files elsewhere too."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    place = tmp_path / "dataset"
    place.mkdir()
    for split, count in (("train", 3), ("test", 2)):
        rows = [json.dumps({"text": f"row {n} of {split}", "label": n}) for n in range(count)]
        (place / f"{split}.jsonl").write_text("\n".join(rows))
    return place


def test_a_dataset_is_read_through_its_library(dataset: Path) -> None:
    source = HuggingFace(name=str(dataset))
    assert texts(source, "label") == [(f"row {n} of train", {"label": n}) for n in range(3)]
    assert texts(HuggingFace(name=str(dataset), split="test")) == [(f"row {n} of test", {}) for n in range(2)]
    assert next(source.documents()).name == f"row 1 of {str(dataset)!r}"
    before = source.stamp()
    (dataset / "train.jsonl").write_text('{"text": "another", "label": 0}')
    assert source.stamp() != before and texts(source) == [("another", {})]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"column": "txt"}, "must have the column 'txt', but its columns are text, label; name one of them"),
        ({"column": "label"}, r"the column 'label' must hold text, but at row 1 of .* it is 0"),
        ({"split": "dev"}, r"task.source.split must be one of train, test for the dataset .*, but is 'dev'"),
        ({"config": "small"}, r"must be one that can be loaded, but: BuilderConfig 'small' not found"),
    ],
)
def test_what_a_dataset_does_not_have_is_said_with_what_it_has(
    dataset: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        texts(HuggingFace(name=str(dataset), **settings))
    assert "\n" not in str(caught.value)


def test_without_network_and_copy_a_dataset_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", None)  # which takes seconds to import, and here cannot be
    with pytest.raises(UsageError, match=r"'some/data' must be on this machine or the network, but the hub cannot"):
        texts(HuggingFace(name="some/data"))


def test_a_copy_on_this_machine_is_used_without_network_and_nothing_is_changed_for_others(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets

    seen: list[bool] = []
    load: Callable[..., Any] = datasets.load_dataset

    def loading(*_: Any, **__: Any) -> Any:
        seen.append(datasets.config.HF_HUB_OFFLINE)
        return load(str(dataset))

    monkeypatch.setattr(datasets, "load_dataset", loading)
    monkeypatch.setattr(hub, "_reachable", lambda: False)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "copies"))
    (tmp_path / "copies" / "some_one___some_data").mkdir(parents=True)
    assert len(texts(HuggingFace(name="SomeOne/SomeData"))) == 3
    assert seen == [True] and not datasets.config.HF_HUB_OFFLINE
