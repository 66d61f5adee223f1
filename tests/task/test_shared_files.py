"""What is judged is not trained on: one split of the library for every task, and no example that training has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.task import Task
from swapformer.task.division import SPLITS, split_of
from swapformer.task.labelled import Classification, Regression, SequenceToSequence
from swapformer.task.overlap import overlap
from swapformer.task.source import Files, Functions, Library, Snippets
from swapformer.task.tokeniser import Characters

READERS = {f"swapformer.task.source.{one.__name__}" for one in (Library, Snippets, Functions)}
"""The sources whose documents are the library's files, or parts of them."""


def yaml(path: Path) -> Any:
    return OmegaConf.to_container(OmegaConf.load(path))


def readers() -> dict[str, dict[str, Any]]:
    """The settings of every task that reads the library, with its source."""
    folder, found = conf_dir() / "task", {}
    for path in sorted(folder.glob("*.yaml")):
        settings = yaml(path)
        chosen = {
            name: option
            for entry in settings.pop("defaults", [])
            if entry != "_self_"
            for name, option in entry.items()
        }
        parts = {name: yaml(folder / name / f"{option}.yaml") for name, option in chosen.items()}
        if parts.get("source", {}).get("_target_") in READERS:
            found[path.stem] = settings | parts
    return found


def test_a_file_of_the_library_is_in_the_same_split_of_every_task() -> None:
    tasks = readers()
    assert {"text", "source_code", "masked", "masked_nsp", "spans", "roles", "packages", "function_names"} <= set(tasks)
    files: dict[str, dict[str, set[str]]] = {}
    for name, task in tasks.items():
        source = instantiate(task["source"] | {"packages": ["asyncio", "email", "encodings", "importlib"]})
        files[name] = {split: set() for split in SPLITS}
        for document in source.documents():
            files[name][split_of(document.key, task["split"])].add(document.key)
    for name, held in files.items():
        for split in SPLITS:
            assert held[split] and held[split] <= files["text"][split], (name, split)


def table(path: Path, texts: list[str]) -> Files:
    rows = [{"text": text, "label": "xy"[n % 2], "value": n, "target": text[::-1]} for n, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Files(path=str(path), column="text")


def evaluated(task: Any, split: Any) -> list[str]:
    batches = [one.batch(index) for one in task.evaluation(split) for index in range(one.batches)]
    sources = [batch.inputs if batch.source is None else batch.source.inputs for batch in batches]
    return sorted(
        task.decode([index for index in row if index != task.id_of("[PAD]")]) for ids in sources for row in ids.tolist()
    )


TEXTS = [f"{n % 37}{'abc'[n % 3]}, number {n}" for n in range(400)]
SHARES = [0.5, 0.3, 0.2]


@pytest.mark.parametrize("kind", [Classification, Regression, SequenceToSequence])
def test_what_training_reads_too_once_texts_are_cut_is_not_judged(tmp_path: Path, kind: Any) -> None:
    source = table(tmp_path / "rows.jsonl", TEXTS)
    task = kind(source=source, tokeniser=Characters(), split=SHARES, block=9)
    ends = ("", "<eos>", 8) if kind is SequenceToSequence else ("[CLS]", "[SEP]", 7)
    by_split: dict[str, list[str]] = {split: [] for split in SPLITS}
    for document in source.documents():
        by_split[split_of(document.key, SHARES)].append(f"{ends[0]}{document.text()[: ends[2]]}{ends[1]}")
    for split in ("val", "test"):
        expected = sorted(text for text in by_split[split] if text not in by_split["train"])
        assert evaluated(task, split) == expected != []
        assert task.left_out[split] == len(by_split[split]) - len(expected) > 0
        assert overlap(task, split).shared == 0


def test_whole_texts_that_differ_are_all_judged(tmp_path: Path) -> None:
    source = table(tmp_path / "rows.jsonl", TEXTS)
    cut, whole = (Classification(source=source, tokeniser=Characters(), block=block) for block in (9, 40))
    assert set(whole.left_out.values()) == {0} and len(evaluated(whole, "val")) > len(evaluated(cut, "val"))
    assert whole.fingerprint() != cut.fingerprint(), "what is judged belongs to the data"


def test_balanced_classes_are_equally_frequent_among_what_is_judged(tmp_path: Path) -> None:
    source = table(tmp_path / "rows.jsonl", TEXTS)
    task = Classification(source=source, tokeniser=Characters(), split=SHARES, block=9, balanced=True)
    kinds = [
        kind
        for one in task.evaluation("val")
        for n in range(one.batches or 0)
        for kind in one.batch(n).targets.tolist()
    ]
    assert kinds.count(0) == kinds.count(1) > 10 and overlap(task, "val").shared == 0


def test_a_split_of_which_training_has_all_is_refused(tmp_path: Path) -> None:
    source = table(tmp_path / "rows.jsonl", [f"always the same {text}" for text in TEXTS])
    with pytest.raises(
        UsageError,
        match=r"the val split must have rows that training does not have, but all of its .* raise task.block",
    ):
        Regression(source=source, tokeniser=Characters(), split=SHARES, block=9)


@pytest.mark.parametrize(("name", "settings"), [("packages", {"block": 40}), ("function_names", {"block": 16})])
def test_a_task_on_the_library_shares_no_item_with_its_training(name: str, settings: dict[str, int]) -> None:
    node = readers()[name] | settings
    node["source"] |= {"packages": ["asyncio", "email"]}
    task: Task = instantiate(node)
    for split in ("val", "test"):
        assert task.left_out[split] > 0, "there is something to leave out"
        assert overlap(task, split, trained=20_000).shared == 0
