"""The adapter to the lm-evaluation-harness, held to loops over symbols; the harness itself where it is installed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from swapformer.probes import harness
from swapformer.study.config.compose import compose, task_of
from swapformer.training.assemble import build_model

TEXT = ["task.block=32", "model/position=learned"]


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Any]:
    """A text task and a model with wide weights, which therefore prefers some symbols."""
    config = compose(TEXT)
    task = task_of(config)
    model = build_model(config, task.interface).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model, task


def by_definition(model: Any, ids: list[int], count: int) -> tuple[float, bool]:
    """log p of the last `count` symbols, one forward for each, and whether each was the most probable."""
    total, right = 0.0, True
    for end in range(len(ids) - count, len(ids)):
        with torch.no_grad():
            logits = model(torch.tensor([ids[:end]]))[0, -1]
        total += float(logits.log_softmax(-1)[ids[end]])
        right = right and int(logits.argmax()) == ids[end]
    return total, right


def test_a_continuation_has_the_likelihood_of_its_symbols(trained: tuple[Any, Any]) -> None:
    model, task = trained
    found = harness._continuation(model, task, "def main", "(self):")
    assert found == pytest.approx(by_definition(model, task.encode("def main(self):"), 7))
    first = harness._continuation(model, task, "", "def")
    assert first == pytest.approx(by_definition(model, task.encode("def"), 2)), "nothing precedes the first symbol"


def test_positions_are_drawn_as_in_an_evaluation() -> None:
    """A model of drawn positions has hardly seen 0, 1, 2 … in training."""
    config = compose(["task.block=32", "model/position=randomized", "model.position.drawn_from=4096"])
    task = task_of(config)
    model, seen = build_model(config, task.interface).eval(), list[torch.Tensor]()
    model.stack.register_forward_pre_hook(lambda stack, given: seen.append(given[1].position))
    harness._continuation(model, task, "def main", "(self):")
    list(harness._symbols(model, task.encode("def"), 3))
    few = {**config, "model": {**config["model"], "position": {**config["model"]["position"], "drawn_from": 40}}}
    short = build_model(few, task.interface).eval()
    assert harness._limit(short) == 40 and harness._limit(model) == 4096
    assert len(list(harness._symbols(short, [1] * 60, 30))) == 30, "no more tokens than there are positions"
    assert harness._scores(short, [1] * 100)[0].shape == (99,)
    assert len(seen) > 2 and all(int(each.max()) > 20 for each in seen)


def test_white_space_before_a_continuation_is_the_continuations(trained: tuple[Any, Any]) -> None:
    """A tokeniser may write it as one token with the word behind, which then has a likelihood."""
    model, task = trained
    assert harness._continuation(model, task, "def main ", "x") == harness._continuation(model, task, "def main", " x")


def test_a_symbol_that_joins_both_is_the_continuations(trained: tuple[Any, Any]) -> None:
    """A tokeniser that writes `return` as one symbol writes nothing behind `retur` where `n` follows."""
    model, task = trained
    plain = task.encode("def main")

    class Joins:
        """Writes the last letter of the context and what follows as one symbol."""

        def encode(self, text: str) -> list[int]:
            return [*plain[:3], plain[-1]] if text.endswith("!") else plain[: len(text)]

    for context in ("defX", "defXY"):  # as many symbols as both together, and more
        found = harness._continuation(model, cast("Any", Joins()), context, "!")
        assert found == pytest.approx(by_definition(model, [*plain[:3], plain[-1]], 1)) and found[0] < 0


def test_what_greedy_writing_gives_is_told(trained: tuple[Any, Any]) -> None:
    model, task = trained
    text = harness._written(model, task, "import", {"max_gen_toks": 5})
    assert len(text) == 5 and harness._continuation(model, task, "import", text)[1]
    cut = harness._written(model, task, "import", {"max_gen_toks": 5, "until": [text[3]]})
    assert cut == text[: text.index(text[3])]


def test_long_texts_are_cut_to_what_the_model_reads(trained: tuple[Any, Any]) -> None:
    model, task = trained
    limit = int(model.stack.limit)
    long = ("abcdefghij " * 20)[: 2 * limit + 9]
    ids = task.encode(long)
    likelihoods, _ = harness._scores(model, ids)
    assert len(likelihoods) == len(ids) - 1
    by_hand = [by_definition(model, ids[limit * (i // limit) : i + 2], 1)[0] for i in range(len(ids) - 1)]
    assert likelihoods.tolist() == pytest.approx(by_hand)
    context = harness._continuation(model, task, long, "x")
    assert context == pytest.approx(by_definition(model, [*ids[-limit:], *task.encode("x")], 1))


def test_a_model_of_no_text_is_refused() -> None:
    config = compose(["task=copy", "probes=harness", "probes.harness.tasks=[spelling]"])
    task = task_of(config)
    problem = harness.Harness(tasks=["x"], include_path=None, num_fewshot=None, limit=None).unsuited(
        build_model(config, task.interface), task
    )
    assert problem is not None and ("Copy does not read" in problem or "pip install" in problem)


def test_tasks_of_a_folder_are_asked(trained: tuple[Any, Any], tmp_path: Path) -> None:
    """Four forms of question, each held to the adapter's own numbers."""
    pytest.importorskip("lm_eval")
    rows = [{"question": "import ", "right": "sys", "wrong": "qqq"}, {"question": "def f(", "right": "x", "wrong": "~"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
    }
    tasks: dict[str, dict[str, Any]] = {
        "choosing": {
            "output_type": "multiple_choice",
            "doc_to_choice": ["{{right}}", "{{wrong}}"],
            "doc_to_target": 0,
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}],
        },
        "rolling": {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{question}}{{right}}",
            "metric_list": [{"metric": "byte_perplexity"}],
        },
    }
    for name, own in tasks.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"task": name, **common, **own}))
    model, task = trained
    probe = harness.Harness(tasks=list(tasks), include_path=str(tmp_path), num_fewshot=None, limit=None)
    found = probe.measure(model, task).metrics
    right = [
        harness._continuation(model, task, row["question"], row["right"])[0]
        > harness._continuation(model, task, row["question"], row["wrong"])[0]
        for row in rows
    ]
    assert found["probe/harness/choosing/acc"] == sum(right) / 2
    texts = [row["question"] + row["right"] for row in rows]
    total = sum(float(harness._scores(model, task.encode(text))[0].sum()) for text in texts)
    expected = math.exp(-total / sum(len(text.encode()) for text in texts))
    assert found["probe/harness/rolling/byte_perplexity"] == pytest.approx(expected)
