"""Where texts come from: what is a document, what it is called, and what is said of one that cannot be read."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import feather, ipc
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


def write_arrow(path: Path) -> None:
    """The stream that Hugging Face's library writes, in batches of one row."""
    table = pyarrow.Table.from_pylist(ROWS)
    with ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=1)


def write_feather(path: Path) -> None:
    feather.write_feather(pyarrow.Table.from_pylist(ROWS), path)


WRITERS = {
    "jsonl": write_jsonl,
    "ndjson": write_jsonl,
    "csv": write_csv,
    "tsv": write_tsv,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "feather": write_feather,
}


@pytest.mark.parametrize("stream", [False, True])
def test_batches_of_arrow_of_any_length_lose_no_row(stream: bool, tmp_path: Path) -> None:
    table = pyarrow.table({"text": [f"document {number}" for number in range(2500)]})
    path = tmp_path / "rows.arrow"
    with (ipc.new_stream if stream else ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2400)
    assert [text for text, _ in texts(Files(path=str(path), column="text"))] == table["text"].to_pylist()


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
        ("a.csv", b"text,label,text\na,1,b\n", r"a.csv', line 1 must have one column 'text', but has several"),
        ("a.csv", b'text,label\na,1\n"b"x,1\n', r"a.csv', line 3 must be a row of values, but: ',' expected"),
        ("a.parquet", b"PAR1 is not enough", r"a.parquet' must be a file of parquet, but: "),
        ("a.arrow", b"ARROW1 is not enough", r"a.arrow' must be a file of arrow, but: "),
        ("a.arrow", b"", r"a.arrow' must be a file of arrow, but: "),
        ("a.arrow", b'{"text": "a"}', r"a.arrow' must be a file of arrow, but: "),
        ("a.jsonl", b"PAR1\x00\x01", r"a.jsonl' is a parquet table; let its name end in .parquet and say"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n{"txt": "b"}'), r"a.jsonl.gz', line 2 must have the column"),
        ("a.csv.gz", gzip.compress(b"text,label\na,1\n")[:-9], r"a table must be readable, but .*a.csv.gz' is not"),
        ("a.txt", b"text", r"the column 'text' must be in a table .* but '.*a.txt' is plain text; give a table"),
    ],
)  # fmt: skip
def test_a_malformed_row_names_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        texts(Files(path=str(tmp_path / name), column="text"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_column_that_is_there_twice_is_refused(kind: str, tmp_path: Path) -> None:
    """Of parquet the last one was read, arrow ended in a KeyError."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    if kind == "parquet":
        parquet.write_table(table, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
            file.write_table(table)
    with pytest.raises(UsageError, match=r"a\.\w+' must have one column 'text', but has several; rename the others"):
        texts(Files(path=str(tmp_path / f"a.{kind}"), column="text"))


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


def test_what_gzip_has_packed_is_read_as_what_is_in_it(tmp_path: Path) -> None:
    """Texts and tables, by what the files hold: one that was packed and renamed, too."""
    text = "naïve 日本語\r\n" * 30_000  # more than a piece
    (tmp_path / "plain.txt").write_bytes(text.encode())
    for name in ("packed.txt.gz", "renamed.txt"):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    read = {
        name: next(Files(path=str(tmp_path / name)).documents())
        for name in ("plain.txt", "packed.txt.gz", "renamed.txt")
    }
    assert {document.text() for document in read.values()} == {text} and len(list(read["packed.txt.gz"].pieces())) > 1
    assert len({document.key for document in read.values()}) == 1, "packing does not move a document to another split"
    for kind in ("jsonl", "csv", "tsv"):
        WRITERS[kind](tmp_path / f"rows.{kind}")
        (tmp_path / f"rows.{kind}.gz").write_bytes(gzip.compress((tmp_path / f"rows.{kind}").read_bytes()))
        plain, packed = (
            Files(path=str(tmp_path / name), column="text") for name in (f"rows.{kind}", f"rows.{kind}.gz")
        )
        assert texts(packed, "label") == texts(plain, "label") and len(texts(packed)) == len(ROWS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a text" * 1000)[:-20], r"must be readable, but .*' is not: Compressed file ended"),
        (gzip.compress(b"a text" * 1000)[:-8] + bytes(8), r"must be readable, but .*' is not: CRC check failed"),
        (b"PK\x03\x04 and what follows", r"is a zip archive; unpack it first, or pack it with gzip"),
        (b"%PDF-1.7 all of it ASCII", r"is a PDF; give its text"),
        (b"ARROW1\x00\x00", r"is an arrow table; let its name end in .arrow and say task.source.column"),
        (b"\xff\xff\xff\xff\x10", r"is an arrow table"),
        ("text".encode("utf-16"), r"is UTF-16; convert it \(iconv -f UTF-16 -t UTF-8\)"),
        (b"member.txt" + bytes(90) + b"what a tar holds", r"is binary; remove it, such as by a pattern"),
        (b"x" * (PIECE + 5) + b"\0", r"is binary; remove it"),
        ("naïve".encode("latin-1"), r"byte 2 of .* is 0xef .* convert it \(iconv -f LATIN1 -t UTF-8\)"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_named_and_never_read_as_one(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        texts(Files(path=str(tmp_path)))
    assert "\n" not in str(caught.value) and "tokeniser=bytes" not in str(caught.value)


def test_bytes_are_read_from_any_file(tmp_path: Path) -> None:
    """What task/tokeniser=bytes asks for: whoever wants the bytes of a binary file gets every one of them."""
    content = b"PK\x03\x04\0\xff"
    (tmp_path / "a.bin").write_bytes(content)
    [document] = Files(path=str(tmp_path / "a.bin")).documents()
    assert "".join(document.pieces(strict=False)).encode("utf-8", "surrogateescape") == content


SAVED = {"train": [f"row {n} of train" for n in range(5)], "test": ["row 0 of test", "row 1 of test"]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `save_to_disk` writes: `both` of two splits, and `one`, turned round, in two files, as tensors."""
    import datasets

    place = tmp_path_factory.mktemp("saved")
    splits = {
        split: datasets.Dataset.from_dict({"text": rows, "label": list(range(len(rows)))})
        for split, rows in SAVED.items()
    }
    datasets.DatasetDict(splits).save_to_disk(place / "both")
    backwards = splits["train"].select([4, 3, 2, 1, 0]).with_format("torch")
    backwards.save_to_disk(place / "one", num_shards=2)
    assert len(list((place / "one").glob("*.arrow"))) == 2
    return place


def test_a_saved_data_set_is_its_rows_and_nothing_else_of_its_folder(saved: Path) -> None:
    backwards = [(text, {"label": number}) for number, text in enumerate(SAVED["train"])][::-1]
    for source in (Files(path=str(saved / "one"), column="text"), HuggingFace(name=str(saved / "one"))):
        assert texts(source, "label") == backwards
        assert type(next(source.documents(["label"])).values["label"]) is int
    for split, rows in SAVED.items():
        wanted = [(text, {"label": number}) for number, text in enumerate(rows)]
        assert texts(Files(path=str(saved / "both" / split), column="text"), "label") == wanted
        assert texts(HuggingFace(name=str(saved / "both"), split=split), "label") == wanted


def test_a_folder_that_holds_a_saved_data_set_has_its_rows_beside_its_texts(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "one", tmp_path / "data" / "one")
    (tmp_path / "data" / "a.txt").write_text("a text")
    found = [text for text, _ in texts(Files(path=str(tmp_path / "data"), column="text"))]
    assert found == ["a text", *SAVED["train"][::-1]]


def test_a_folder_of_the_librarys_cache_is_its_rows(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text("{}")
    write_arrow(tmp_path / "data-train.arrow")
    write_arrow(tmp_path / "cache-1234.arrow")
    assert len(texts(Files(path=str(tmp_path), column="text"))) == len(ROWS)


def test_what_is_wrong_with_a_saved_data_set_is_said(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"one split, but .* is a data set of train, test; say task.source.path=.*/train"
    ):
        Files(path=str(saved / "both"), column="text")
    with pytest.raises(UsageError, match=r"task.source.column must name the column .*; it has text, label"):
        Files(path=str(saved / "one"))
    with pytest.raises(UsageError, match=r"must be one of train for the dataset .*, but is 'test'"):
        texts(HuggingFace(name=str(saved / "one"), split="test"))
    with pytest.raises(UsageError, match=r"has no configurations and revisions, but task.source has config=small"):
        texts(HuggingFace(name=str(saved / "one"), config="small"))
    shutil.copytree(saved / "one", tmp_path / "one")
    next((tmp_path / "one").glob("data-00001*")).unlink()
    with pytest.raises(
        UsageError, match=r"state.json' must describe a saved data set, but its file 'data-00001-of-00002"
    ):
        Files(path=str(tmp_path / "one"), column="text")
    for content in ("{", "[]", '{"_data_files": [{}]}'):
        (tmp_path / "one" / "state.json").write_text(content)
        with pytest.raises(
            UsageError, match=r"state.json' must describe a saved data set, but .*; save the data set again"
        ):
            Files(path=str(tmp_path / "one"), column="text")


def test_a_changed_saved_data_set_has_another_stamp(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "one", tmp_path / "one")
    for source in (Files(path=str(tmp_path / "one"), column="text"), HuggingFace(name=str(tmp_path / "one"))):
        before = source.stamp()
        write_arrow(next((tmp_path / "one").glob("data-00000*")))
        assert source.stamp() != before


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


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain.txt", tmp_path / "marked.txt"
    plain.write_text("the cat \ufeff sat", encoding="utf-8")
    marked.write_text("the cat \ufeff sat", encoding="utf-8-sig")
    assert TextFile(marked).text() == TextFile(plain).text() == "the cat \ufeff sat"
