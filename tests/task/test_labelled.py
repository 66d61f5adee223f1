"""Labelled examples: rows keep their answers, splits share nothing, texts are placed as BERT and T5 place them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import IGNORE, Task
from swapformer.task.division import split_of
from swapformer.task.labelled import Classification, Regression, SequenceToSequence
from swapformer.task.labelled.base import LabelledTask
from swapformer.task.source import Files, Functions, Library, Snippets
from swapformer.task.tokeniser import Characters

NAMES = ("ant", "bee", "cat")
SPLITS = ("train", "val", "test")


def rows(count: int = 150) -> list[dict[str, Any]]:
    """Texts of all lengths, each only once, whose answers follow from them."""
    return [
        {
            "text": f"{n}:" + "abcde"[n % 5] * (n % 23),
            "other": f"{n}?" + "xyz"[n % 3] * (n % 17),
            "label": NAMES[n % 3] if n % 4 else "ant",
            "value": n * 1.5,
            "target": str(n)[::-1] + "." * (n % 11),
        }
        for n in range(count)
    ]


def write(path: Path, held: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in held), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, held[0])
            writer.writeheader()
            writer.writerows(held)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(held)), path)
    return path


def made(kind: type[LabelledTask], path: Path, **settings: Any) -> Any:
    source = Files(path=str(path), column=settings.pop("column", "text"))
    return kind(**{"source": source, "tokeniser": Characters()} | settings)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", rows())


def read(task: Any, ids: torch.Tensor) -> str:
    return str(task.decode([index for index in ids.tolist() if index != task.id_of("[PAD]")]))


def evaluated(task: Task, split: str) -> list[Any]:
    return [one.batch(n) for one in task.evaluation(split) for n in range(one.batches or 0)]  # type: ignore[arg-type]


def trained(task: Task, steps: int = 60) -> list[Any]:
    return [task.train_batch(0, step) for step in range(steps)]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_row_keeps_its_label_and_is_in_the_split_that_its_text_says(tmp_path: Path, suffix: str) -> None:
    task = made(Classification, write(tmp_path / f"rows{suffix}", rows()), split=[0.5, 0.3, 0.2])
    known = {f"[CLS]{row['text']}[SEP]": row["label"] for row in rows()}
    seen: dict[str, list[str]] = {}
    for split in SPLITS:
        batches = evaluated(task, split) if split != "train" else trained(task)
        found = [
            (read(task, ids), task.classes[int(kind)])
            for b in batches
            for ids, kind in zip(b.inputs, b.targets, strict=True)
        ]
        assert all(known[text] == label for text, label in found)
        seen[split] = [text for text, _ in found]
    assert task.classes == tuple(sorted(NAMES))
    for split in ("val", "test"):
        assert len(seen[split]) == len(set(seen[split])), "evaluation goes through its rows once"
    assert sorted({*seen["train"], *seen["val"], *seen["test"]}) == sorted(known)
    assert len({*seen["train"]}) + len(seen["val"]) + len(seen["test"]) == len(known), "no row is in two splits"


def test_tables_of_all_formats_are_the_same_task(tmp_path: Path) -> None:
    made_of = [
        made(Classification, write(tmp_path / f"rows{suffix}", rows())) for suffix in (".jsonl", ".csv", ".parquet")
    ]
    assert len({task.fingerprint() for task in made_of}) == 1
    other = rows()
    other[7]["label"] = "ant" if other[7]["label"] != "ant" else "bee"
    changed = made(Classification, write(tmp_path / "other.jsonl", other))
    assert changed.fingerprint() != made_of[0].fingerprint()


def bert(first: list[str], second: list[str] | None, block: int) -> tuple[list[str], list[int]]:
    """The places of a text or a pair, token by token: of a pair the longer loses its last, the second where equal."""
    if second is None:
        held = ["[CLS]", *first[: block - 2], "[SEP]"]
        return held, [0] * len(held)
    first, second = list(first), list(second)
    while len(first) + len(second) > block - 3:
        (first if len(first) > len(second) else second).pop()
    return ["[CLS]", *first, "[SEP]", *second, "[SEP]"], [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.mark.parametrize("second", [None, "other"])
@pytest.mark.parametrize("block", [11, 16, 23, 48])
def test_texts_and_pairs_are_placed_token_by_token_as_bert_does(table: Path, second: str | None, block: int) -> None:
    task = made(Classification, table, second=second, block=block, segments=True, split=[0.3, 0.6, 0.1])
    by_prefix = {row["text"].split(":")[0]: row for row in rows()}
    placed = 0
    for batch in evaluated(task, "val"):
        for ids, padding, segment in zip(batch.inputs, batch.padding, batch.tags["segment"], strict=True):
            tokens = [task.tokens[index] for index in ids.tolist()]
            row = by_prefix["".join(tokens[1:]).split(":")[0]]
            expected, segments = bert(list(row["text"]), list(row["other"]) if second else None, block)
            filler = block - len(expected)
            assert tokens == expected + ["[PAD]"] * filler
            assert padding.tolist() == [False] * len(expected) + [True] * filler
            assert segment.tolist() == segments + [0] * filler
            placed += 1
    assert placed > 60 and task.interface.segments == 2
    assert task.interface.readouts[""] == type(task.interface.readouts[""])(3, "classes", "sequence")


def test_without_segments_there_is_no_tag_of_them(table: Path) -> None:
    task = made(Classification, table, second="other")
    assert task.interface.segments == 0 and task.tags == () and task.train_batch(0, 0).tags == {}
    assert task.predicts_next is False


def test_balanced_classes_are_equally_frequent_everywhere_and_others_as_in_the_table(table: Path) -> None:
    balanced, natural = (
        made(Classification, table, balanced=True, split=[0.5, 0.3, 0.2], batch_size=6),
        made(Classification, table, split=[0.5, 0.3, 0.2], batch_size=6),
    )
    shares = {}
    for task in (balanced, natural):
        train = Counter(int(kind) for batch in trained(task, 300) for kind in batch.targets)
        shares[task] = [train[kind] / 1800 for kind in range(3)]
        for split in ("val", "test"):
            kinds = Counter(int(kind) for batch in evaluated(task, split) for kind in batch.targets)
            of_table = Counter(row["label"] for row in rows() if split_of(key(row["text"]), (0.5, 0.3, 0.2)) == split)
            smallest = min(of_table.values())
            assert sorted(kinds.values()) == ([smallest] * 3 if task is balanced else sorted(of_table.values()))
    first = balanced.evaluation("val")[0].batch(0)
    assert Counter(first.targets.tolist()) == {0: 2, 1: 2, 2: 2}, "so are the first batches"
    assert all(abs(share - 1 / 3) < 0.04 for share in shares[balanced])  # standard deviation 0.011
    assert shares[natural][0] > 0.42 > 0.3 > shares[natural][1]


def key(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_whole_numbers_are_classes_in_their_order_and_true_and_false_are_words(tmp_path: Path) -> None:
    held = [{"text": f"row {n}", "label": n % 12, "sure": n % 2 == 0} for n in range(200)]
    path = write(tmp_path / "rows.jsonl", held)
    assert made(Classification, path).classes == tuple(map(str, range(12)))
    assert made(Classification, path, label="sure").classes == ("False", "True")


def test_values_are_those_of_the_row_in_standard_deviations_of_training(table: Path) -> None:
    task = made(Regression, table, values=["value", "value"], split=[0.5, 0.3, 0.2])
    known = {f"[CLS]{row['text']}[SEP]": row["value"] for row in rows()}
    training = [row["value"] for row in rows() if split_of(key(row["text"]), (0.5, 0.3, 0.2)) == "train"]
    mean, deviation = np.mean(training), np.std(training)
    for batch in [*trained(task, 5), *evaluated(task, "val"), *evaluated(task, "test")]:
        assert batch.targets.dtype == torch.float32 and batch.targets.shape[1] == 2
        for ids, targets in zip(batch.inputs, batch.targets.tolist(), strict=True):
            assert targets == pytest.approx([(known[read(task, ids)] - mean) / deviation] * 2, abs=1e-5)
    assert task.interface.readouts[""].kind == "values" and task.interface.readouts[""].per == "sequence"
    assert {name for name in task.metrics().keys() if not name.endswith("_se")} == set(task.directions)  # noqa: SIM118


@pytest.mark.parametrize(("block", "answer"), [(40, 20), (8, 5), (12, 9)])
def test_an_answer_is_predicted_token_by_token_from_a_source_that_ends(table: Path, block: int, answer: int) -> None:
    task = made(SequenceToSequence, table, block=block, answer=answer, split=[0.3, 0.6, 0.1])
    by_prefix = {row["text"].split(":")[0]: row for row in rows()}
    for batch in evaluated(task, "val"):
        assert batch.inputs.shape == batch.targets.shape == (len(batch.inputs), answer)
        for row in range(len(batch.inputs)):
            source = [task.tokens[index] for index in batch.source.inputs[row].tolist()]
            known = by_prefix["".join(source).split(":")[0]]
            expected = [*known["text"][: block - 1], "<eos>"]
            assert source == expected + ["[PAD]"] * (block - len(expected))
            assert batch.source.padding[row].tolist() == [n >= len(expected) for n in range(block)]
            whole = [*known["target"], "<eos>"][:answer]
            read = ["[PAD]", *whole[:-1]]
            assert [task.tokens[index] for index in batch.inputs[row].tolist()] == read + ["[PAD]"] * (
                answer - len(read)
            )
            scored = [index for index in batch.targets[row].tolist() if index != IGNORE]
            assert [task.tokens[index] for index in scored] == whole == whole[: len(scored)]
            assert batch.targets[row, len(scored) :].eq(IGNORE).all()
            assert batch.padding[row].tolist() == [n >= len(whole) for n in range(answer)]
    assert task.interface.source and task.predicts_next and task.max_length == max(block, answer)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_column_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", rows(30))
    for kind, settings in (
        (Classification, {"label": "lable"}),
        (Classification, {"second": "lable"}),
        (Regression, {"values": ["lable"]}),
        (SequenceToSequence, {"target": "lable"}),
    ):
        with pytest.raises(UsageError, match="the column 'lable', but its columns are text, other, label, value"):
            made(kind, path, **settings)


@pytest.mark.parametrize(
    ("kind", "change", "settings", "message"),
    [
        (Classification, {"label": None}, {}, r"the column 'label' must hold a word .*rows.jsonl', line 8 it is null"),
        (Classification, {"label": 1.5}, {}, r"line 8 it is 1.5; correct that row"),
        (Regression, {"value": "many"}, {}, r"the column 'value' must hold a number, but at .*line 8 it is 'many'"),
        (Regression, {"value": None}, {}, r"line 8 it is null"),
        (Regression, {"value": "nan"}, {}, r"line 8 it is 'nan'"),
        (Regression, {}, {"values": []}, r"task.values must be a list of columns"),
        (Classification, {"text": ""}, {}, r"must have a text, but at .*line 8 it is empty; remove that row"),
        (SequenceToSequence, {"target": 3}, {}, r"the column 'target' must hold text, but at .*line 8 it is 3"),
        (Classification, {}, {"split": [0.999, 0.0005, 0.0005]}, "the val split of .*rows.jsonl' must have rows"),
    ],
)  # fmt: skip
def test_wrong_use_gets_one_line_that_says_what_must_hold(
    tmp_path: Path, kind: type[LabelledTask], change: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    held = rows()
    held[7] |= change
    with pytest.raises(UsageError, match=message) as caught:
        made(kind, write(tmp_path / "rows.jsonl", held), **settings)
    assert "\n" not in str(caught.value)


def test_a_class_that_training_lacks_is_named_with_its_row(tmp_path: Path) -> None:
    held = rows()
    strange = next(n for n, row in enumerate(held) if split_of(key(row["text"]), (0.8, 0.1, 0.1)) == "test")
    held[strange]["label"] = "dog"
    with pytest.raises(UsageError, match=rf"has ant, bee, cat, but at .*line {strange + 1} the test split has 'dog'"):
        made(Classification, write(tmp_path / "rows.jsonl", held))
    held[strange]["label"] = "ant"
    test = [n for n, row in enumerate(held) if split_of(key(row["text"]), (0.8, 0.1, 0.1)) == "test"]
    rare = [row | {"label": "ant"} if n in test else row for n, row in enumerate(held)]
    with pytest.raises(UsageError, match="every split must have rows of every class, but test has none of 'bee'"):
        made(Classification, write(tmp_path / "rare.jsonl", rare), balanced=True)
    same = [row | {"label": "ant"} for row in rows()]
    with pytest.raises(UsageError, match="at least two classes to tell apart, but training has ant"):
        made(Classification, write(tmp_path / "same.jsonl", same))
    with pytest.raises(UsageError, match=r"the column 'value' must vary, but is 2.0 in every training row"):
        made(Regression, write(tmp_path / "value.jsonl", [row | {"value": 2} for row in rows()]))


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", rows())
    path.write_text(path.read_text().replace('"value": 6.0', '"value": 6.0.0'), encoding="utf-8")
    with pytest.raises(UsageError, match=r"rows.jsonl', line 5 must be JSON"):
        made(Classification, path)


PACKAGES = ["asyncio", "email", "importlib"]


def files_by_split(fractions: tuple[float, float, float]) -> dict[str, str]:
    """All that the files of each split hold."""
    found = dict.fromkeys(SPLITS, "")
    for name, path in Library(packages=PACKAGES).files:
        found[split_of(name, fractions)] += path.read_text(encoding="utf-8") + "\n"
    return found


def test_snippets_are_pieces_of_files_of_their_split_and_package() -> None:
    fractions = (0.7, 0.2, 0.1)
    task = Classification(
        source=Snippets(packages=PACKAGES, lines=5), tokeniser=Characters(min_count=1), label="package",
        split=fractions, block=1000, batch_size=64, balanced=True,
    )  # fmt: skip
    assert task.classes == tuple(PACKAGES)
    by_package = {
        package: "\n".join(path.read_text(encoding="utf-8") for _, path in Library(packages=[package]).files)
        for package in PACKAGES
    }
    texts = files_by_split(fractions)
    for split in SPLITS:
        batches = evaluated(task, split)[:2] if split != "train" else trained(task, 2)
        for batch in batches:
            for ids, kind in zip(batch.inputs, batch.targets, strict=True):
                snippet = read(task, ids).removeprefix("[CLS]").removesuffix("[SEP]")
                assert snippet in texts[split] and snippet in by_package[task.classes[int(kind)]]
                assert snippet.strip() and snippet.count("\n") <= 5


def test_docstrings_and_names_are_those_of_functions_in_files_of_their_split() -> None:
    fractions = (0.7, 0.2, 0.1)
    task = SequenceToSequence(
        source=Functions(packages=PACKAGES), tokeniser=Characters(min_count=1), target="name",
        split=fractions, block=4000, answer=60, batch_size=64,
    )  # fmt: skip
    texts = files_by_split(fractions)
    docstrings: dict[str, set[str]] = {}
    for split in SPLITS:
        found = docstrings.setdefault(split, set())
        for batch in evaluated(task, split) if split != "train" else trained(task, 8):
            for ids, targets in zip(batch.source.inputs, batch.targets, strict=True):
                docstring, name = read(task, ids), read(task, targets[targets != IGNORE])
                assert docstring.endswith("<eos>") and name.endswith("<eos>")
                first = docstring.removesuffix("<eos>").split("\n")[0]
                assert f"def {name.removesuffix('<eos>')}(" in texts[split]
                assert first.replace("\\", "\\\\") in texts[split] or "\\" in first or first.isspace()
                found.add(docstring)
    assert not docstrings["train"] & docstrings["val"] and not docstrings["val"] & docstrings["test"]
    assert not docstrings["train"] & docstrings["test"]


@pytest.mark.parametrize("source", [Snippets, Functions, Library])
def test_a_package_that_is_none_is_named_with_those_that_are(source: Any) -> None:
    settings = {"lines": 3} if source is Snippets else {}
    with pytest.raises(UsageError, match=r"task.source.packages must be packages .* 'asyncia' is not one.*asyncio"):
        source(packages=["asyncia"], **settings)
