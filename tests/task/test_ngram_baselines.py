"""Baselines: counts worked out by hand, and probabilities by the formula, token by token."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import Masked, Text, ngram_baselines
from swapformer.task.base import IGNORE
from swapformer.task.ngram_baselines import NgramBaselines, NgramCounts, measure
from swapformer.task.source import Files
from swapformer.task.tokeniser import Characters
from swapformer.tools.baseline import main
from texts import text as make

TEXT = "".join("abcd"[n * n * 7 % 31 % 4] for n in range(900)) + "e" * 100


@pytest.fixture
def task(tmp_path: Path) -> Text:
    (tmp_path / "text.txt").write_text(TEXT)
    return make(tmp_path / "text.txt", split=[0.8, 0.1, 0.1], block=10, batch_size=4)


def witten_bell(runs: Mapping[int, Counter[tuple[int, ...]]], size: int, after: int, before: tuple[int, ...]) -> float:
    """p(after | before) by the formula, from the counts of runs by their length."""
    if not before:
        return (runs[1][after,] + 1) / (runs[1].total() + size)
    follows = {run[-1]: times for run, times in runs[len(before) + 1].items() if run[:-1] == before}
    total, kinds, shorter = sum(follows.values()), len(follows), witten_bell(runs, size, after, before[1:])
    return (follows.get(after, 0) + kinds * shorter) / (total + kinds) if total else shorter


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_counts_are_those_of_the_training_text(task: Text, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Oracle: the formula of Witten and Bell, token by token, from counters of tuples."""
    monkeypatch.setattr(ngram_baselines, "_AT_ONCE", at_once)
    ids, size = task.ids["train"].tolist(), task.vocab_size
    counts = NgramCounts(task)
    runs = {n: Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)) for n in range(1, 6)}

    contexts = {tuple(ids[i : i + n]) for n in range(5) for i in range(60)} | {(0,), (4, 7), (7, 5, 4), (6, 6, 6)}
    for before in contexts:
        found = counts.following(before)
        assert found.tolist() == pytest.approx(
            [witten_bell(runs, size, after, before) for after in range(size)], rel=1e-12
        )
        assert found.sum() == pytest.approx(1, rel=1e-12)
    for after in range(size):
        found = counts.leading_to(after)
        assert found.tolist() == pytest.approx(
            [witten_bell(runs, size, after, (before,)) for before in range(size)], rel=1e-12
        )
    assert counts.following((1, 2, *ids[:4])).tolist() == counts.following(ids[:4]).tolist()


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_counters_see_no_other_document_where_models_see_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Oracle: the formula on each document alone; the first token of a document is predicted by nobody."""
    monkeypatch.setattr(ngram_baselines, "_AT_ONCE", at_once)
    written = [np.base_repr(n * 7919 % 99991, 5) for n in range(1, 300)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in written))

    def made(packing: str) -> Text:
        return make(
            tmp_path / "d.jsonl", column="text", packing=packing, split=[0.8, 0.1, 0.1], block=12, eval_batch_size=2
        )

    task = made("documents")
    ids, begins, size = task.ids["train"].tolist(), task.begins["train"].tolist(), task.vocab_size
    own = [ids[a:b] for a, b in pairwise(begins)]
    runs = {n: Counter(tuple(d[i : i + n]) for d in own for i in range(len(d) - n + 1)) for n in range(2, 6)}
    runs[1] = Counter((token,) for d in own for token in d[1:])

    answers = NgramBaselines(task)
    batch = task.evaluation("val")[0].batch(0)
    assert batch.document is not None
    for row, place in (batch.targets != IGNORE).nonzero().tolist():
        here = batch.document[row] == batch.document[row, place]
        first = int(here.nonzero()[0])
        for most, kind in enumerate(answers.kinds):
            before = tuple(batch.inputs[row, max(first, place + 1 - most) : place + 1].tolist()) if most else ()
            found = answers.answer(kind, batch)[row, place].exp().tolist()
            assert found == pytest.approx([witten_bell(runs, size, after, before) for after in range(size)], rel=1e-5)
    whole = NgramCounts(made("blocks"))
    assert whole.unigram.tolist() != answers._counts.unigram.tolist(), "the planted fault: one text"


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_only_what_was_seen_is_counted(task: Text, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Oracle: the formula on each stretch of seen tokens alone, whose first token nobody predicts."""
    monkeypatch.setattr(ngram_baselines, "_AT_ONCE", at_once)
    ids, size, seen = task.ids["train"].tolist(), task.vocab_size, task.seen(0, 7)
    assert 0.2 < seen.mean() < 0.5
    own: list[list[int]] = [[]]
    for token, known in zip(ids, seen, strict=True):
        own[-1].append(token) if known else own.append([])
    runs = {n: Counter(tuple(d[i : i + n]) for d in own for i in range(len(d) - n + 1)) for n in range(2, 6)}
    runs[1] = Counter((token,) for d in own for token in d[1:])
    if seen[0]:
        runs[1][ids[0],] += 1
    counts = NgramCounts(task, seen=seen)
    for before in {tuple(ids[i : i + n]) for n in range(5) for i in range(60)}:
        expected = [witten_bell(runs, size, after, before) for after in range(size)]
        assert counts.following(before).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", ["random", "shuffled"])
def test_what_is_seen_are_the_tokens_of_the_batches(tmp_path: Path, order: str) -> None:
    """Every token of this text is another one, so that a batch tells where it is from."""
    (tmp_path / "text.txt").write_text("".join(chr(0x4E00 + n) for n in range(1000)))
    task = make(tmp_path / "text.txt", split=[0.8, 0.1, 0.1], block=10, batch_size=3, order=order)
    for steps in (1, 4, 9):
        batches = [task.train_batch(3, step) for step in range(steps)]
        expected = {
            *torch.cat([part.flatten() for batch in batches for part in (batch.inputs, batch.targets)]).tolist()
        }
        found = {*task.ids["train"][task.seen(3, steps)].tolist()}
        assert found == expected


def test_runs_are_as_long_as_their_numbers_fit(task: Text) -> None:
    assert [NgramCounts(task, longest).longest for longest in (1, 2, 5)] == [2, 2, 5]
    task.vocab_size = 60_000
    assert NgramCounts(task).longest == 3


def test_answers_to_a_language_model_are_the_formulas_place_by_place(task: Text) -> None:
    answers, counts = NgramBaselines(task), NgramCounts(task)
    assert answers.kinds == ("unigram", "bigram", "trigram", "4-gram", "5-gram")
    batch = task.evaluation("val")[0].batch(0)
    for row, place in ((0, 0), (2, 5), (3, 9)):
        expected = np.log(counts.following([int(batch.inputs[row, place])]))
        assert answers.answer("bigram", batch)[row, place].tolist() == pytest.approx(expected.tolist(), rel=1e-5)
        for kind, most in (("trigram", 2), ("4-gram", 3), ("5-gram", 4)):  # no token of another sequence
            seen = batch.inputs[row, max(0, place + 1 - most) : place + 1].tolist()
            expected = np.log(counts.following(seen)).tolist()
            assert answers.answer(kind, batch)[row, place].tolist() == pytest.approx(expected, rel=1e-5)
        assert answers.answer("unigram", batch)[row, place].tolist() == pytest.approx(
            np.log(counts.unigram).tolist(), rel=1e-5
        )
    found = measure(task, "val", 100)
    rows = [task.evaluation("val")[0].batch(index) for index in range(3)]
    inputs, targets = (torch.cat([getattr(row, name).flatten() for row in rows]) for name in ("inputs", "targets"))
    nats = [-math.log(counts.following([int(one)])[int(other)]) for one, other in zip(inputs, targets, strict=True)]
    assert found["bigram"]["loss"] == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    commonest = int((targets == int(counts.unigram.argmax())).sum())
    assert found["unigram"]["accuracy"] == pytest.approx(commonest / len(targets), rel=1e-6)


def test_hidden_tokens_are_guessed_from_the_neighbours_that_are_seen(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    task = Masked(
        source=Files(path=str(tmp_path / "text.txt")), tokeniser=Characters(), split=(0.8, 0.1, 0.1), block=12, rate=0.4
    )
    answers, counts = NgramBaselines(task), NgramCounts(task)
    batch = task.evaluation("val")[0].batch(0)
    found = answers.answer("both", batch)
    seen = set()
    for row, place in (batch.targets != IGNORE).nonzero().tolist():
        before, after = int(batch.inputs[row, place - 1]), int(batch.inputs[row, place + 1])
        expected = np.log(counts.following([before]) if before >= 4 else counts.unigram)
        expected = expected + (np.log(counts.leading_to(after)) if after >= 4 else 0)
        assert found[row, place].tolist() == pytest.approx(expected.tolist(), rel=1e-5)
        seen.add((before >= 4, after >= 4))
    assert len(seen) == 4 and not found[batch.targets == IGNORE].any()


def test_a_text_whose_next_letter_is_certain_is_no_task_for_a_bigram(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcd" * 300)
    path = ["task/source=files", f"task.source.path={tmp_path}/text.txt", "task.split=[0.8,0.1,0.1]"]
    found = measure(make(tmp_path / "text.txt", split=[0.8, 0.1, 0.1], block=10), "val", 100)
    assert found["bigram"]["accuracy"] == 1 and found["unigram"]["accuracy"] == pytest.approx(0.25, abs=0.01)
    assert main([*path, "task=masked", "task/tokeniser=characters", "--json"]) == 0


def test_the_command_counts_what_a_trial_has_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    source = ["task/source=files", f"task.source.path={tmp_path}/text.txt", "task.split=[0.8,0.1,0.1]", "task.block=10"]
    overrides = [*source, "task.batch_size=4", "seed=5", "--seen", "--json"]
    for budget in ("budget.steps=7", "budget.tokens=280"):
        assert main([*overrides, budget, "schedule.warmup_steps=0", "eval.every=1"]) == 0
        printed = json.loads(capsys.readouterr().out)
        task = make(tmp_path / "text.txt", split=[0.8, 0.1, 0.1], block=10, batch_size=4)
        found = measure(task, "val", 50, task.seen(5, 7))
        assert printed["5-gram"]["loss"] == pytest.approx(found["5-gram"]["loss"], rel=1e-6)
    assert found["5-gram"]["loss"] > measure(task, "val", 50)["5-gram"]["loss"], "the bar rises with the budget"
    with pytest.raises(UsageError, match="--seen needs the steps that are trained"):
        main([*overrides, "budget.steps=0"])


def test_the_command_prints_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    overrides = ["task/source=files", f"task.source.path={tmp_path}/text.txt", "task.block=10", "task.batch_size=4"]
    assert main([*overrides, "task.split=[0.8,0.1,0.1]", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    task = make(tmp_path / "text.txt", split=[0.8, 0.1, 0.1], block=10, batch_size=4)
    assert printed["bigram"]["loss"] == pytest.approx(measure(task, "val", 50)["bigram"]["loss"], rel=1e-6)
    assert main([*overrides, "task.split=[0.8,0.1,0.1]"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["val", "accuracy", "bits_per_byte", "loss", "perplexity"]
    for other in (
        "copy",
        "spans",
    ):  # the sentinels of spans stand in no text: counts of it would be worse than guessing
        with pytest.raises(
            ValueError, match=f"but those of {other.title()} are not; use task=text, masked or masked_nsp"
        ):
            main([f"task={other}"])
    with pytest.raises(ValueError, match="the test split must have text, but it has none"):
        main([*overrides, "task.split=[0.8,0.2,0]", "--split", "test"])
