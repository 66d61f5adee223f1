"""The law that what is evaluated depends on neither batch size, accumulation nor devices.

Devices stand in `training/test_ranks.py`, where two ranks train.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.results.items import read_items
from swapformer.study.config.compose import compose
from swapformer.task import Copy, Task
from swapformer.task.base import Batch, EvaluationSet
from swapformer.training.data import EvaluationStream, ItemDigest
from swapformer.training.fit import Outcome, fit
from task.test_purity import YAMLS, build


def evaluated(task: Task, sequences: int = 12) -> dict[str, dict[str, Any]]:
    """The digests of the first items of every evaluation set."""
    found = {}
    for item in (*task.evaluation("val"), *task.evaluation("test")):
        digest, rows = ItemDigest(), 0
        for batch in islice(map(item.batch, range(item.batches or sequences)), sequences):
            digest.update(batch)
            rows += len(batch.inputs)
            if rows >= sequences:
                break
        found[f"{len(found)} {item.name}"] = digest.summary
    return found


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_no_tasks_batch_size_changes_what_is_evaluated(path: Path) -> None:
    assert evaluated(build(path, batch_size=5)) == evaluated(build(path, batch_size=7)) != {}


def test_a_task_whose_batch_size_decides_what_is_evaluated_is_found_out() -> None:
    """The planted fault: evaluation in batches as large as those of training."""
    (path,) = (path for path in YAMLS if path.stem == "copy")
    five, seven = (build(path, batch_size=size, eval_batch_size=size) for size in (5, 7))
    assert evaluated(five) != evaluated(seven)


TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "model.d_model=16", "model.num_heads=2"),
    *("model.num_layers=1", "schedule=constant", "schedule.warmup_steps=0", "budget.steps=2", "eval.every=2"),
    *("eval.batches=2", "eval.final_batches=3", "task.eval_batch_size=5"),
]
STILL = "optim.lr=1e-30"
"""Too little to move a weight, so that all trials measure the same model."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """The same weights evaluated by trials that train in other batches, or were asked for other things."""
    asked = {
        "four": ["task.batch_size=4"],
        "six": ["task.batch_size=6"],
        "six in three parts": ["task.batch_size=6", "trainer.accumulate_grad_batches=3"],
        "other seed of batches": ["task.batch_size=4", "data_seed=9"],
        "evaluated in fives": ["task.batch_size=5", "task.eval_batch_size=null"],
        "evaluated in sixes": ["task.batch_size=6", "task.eval_batch_size=null"],
        "fewer batches": ["task.batch_size=4", "eval.final_batches=2"],
    }
    place = tmp_path_factory.mktemp("evaluated")
    return {name: fit(compose([*TINY, STILL, *own]), place / name) for name, own in asked.items()}


@pytest.mark.parametrize("name", ["six", "six in three parts", "other seed of batches", "evaluated in fives"])
def test_the_same_model_has_the_same_numbers_however_it_was_trained(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].evaluation == outcomes["four"].evaluation
    assert outcomes[name].metrics == outcomes["four"].metrics
    assert outcomes[name].standard_errors == outcomes["four"].standard_errors


@pytest.mark.parametrize("name", ["evaluated in sixes", "fewer batches"])
def test_other_items_have_another_hash_and_other_numbers(name: str, outcomes: dict[str, Outcome]) -> None:
    """The planted faults: a batch size that decides, and fewer items."""
    for part in ("val", "val@8", "test", "test@8"):
        assert outcomes[name].evaluation[part] != outcomes["four"].evaluation[part]
    assert outcomes[name].metrics["val/loss"] != outcomes["four"].metrics["val/loss"]


def test_an_outcome_says_how_many_items_were_evaluated(outcomes: dict[str, Outcome]) -> None:
    assert {name: found["items"] for name, found in outcomes["four"].evaluation.items()} == dict.fromkeys(
        ("val", "val@8", "test", "test@8"), 15
    )


def test_a_trial_keeps_the_sums_of_its_items_which_give_its_metrics(tmp_path: Path) -> None:
    found = fit(compose([*TINY, "task.batch_size=4"]), tmp_path)
    kept = read_items(tmp_path / "items.npz")
    assert kept.keys() == found.evaluation.keys()
    for name, rows in kept.items():
        split, at, length = name.partition("@")
        nats, tokens, hits, _, matches, sequences = rows.sum(axis=0)
        assert sequences == found.evaluation[name]["items"]
        for metric, value in (
            ("loss", nats / tokens),
            ("accuracy", hits / tokens),
            ("exact_match", matches / sequences),
        ):
            assert found.metrics[f"{split}/{metric}{at}{length}"] == pytest.approx(value, rel=1e-5)


class TestDigests:
    BATCH = Batch(
        inputs=torch.arange(12).reshape(4, 3), targets=torch.arange(12).reshape(4, 3) + 1,
        labels={"kind": torch.tensor([0, 1, 0, 1])},
    )  # fmt: skip

    @staticmethod
    def of(*batches: Batch) -> dict[str, Any]:
        digest = ItemDigest()
        for batch in batches:
            digest.update(batch)
        return digest.summary

    def test_do_not_depend_on_how_items_are_cut_into_batches(self) -> None:
        halves = [
            Batch(inputs=b.inputs[cut], targets=b.targets[cut], labels={"kind": b.labels["kind"][cut]})
            for b in [self.BATCH]
            for cut in (slice(0, 1), slice(1, 4))
        ]
        assert self.of(*halves) == self.of(self.BATCH)
        assert self.of(*reversed(halves)) != self.of(self.BATCH)

    @pytest.mark.parametrize("part", ["inputs", "targets", "labels"])
    def test_change_with_whatever_is_read_or_asked(self, part: str) -> None:
        held: Any = getattr(self.BATCH, part)
        other = {"kind": 1 - held["kind"]} if part == "labels" else held.flip(1)
        assert self.of(Batch(**{**vars(self.BATCH), part: other})) != self.of(self.BATCH)

    def test_are_of_the_items_and_not_of_the_positions_that_are_drawn_for_them(self) -> None:
        """Arms with and without drawn positions are evaluated on the same items."""
        source = Copy(symbols=9, lengths=[2, 4]).evaluation("val")[0]
        plain, drawn = ItemDigest(), ItemDigest()
        list(EvaluationStream(source, 2, None, plain))
        list(EvaluationStream(source, 2, 50, drawn))
        assert plain.summary == drawn.summary and plain.items == 64


def test_sets_of_one_length_are_judged_at_positions_of_their_own() -> None:
    """Equal draws would judge all sets at the same places, and call that evidence from several."""
    inputs = torch.zeros(2, 6, dtype=torch.int64)

    def positions(name: str) -> list[list[int]]:
        source = EvaluationSet(name, 3, lambda _: Batch(inputs=inputs, targets=inputs))
        return [batch.position[0].tolist() for batch in EvaluationStream(source, 3, 100)]  # type: ignore[index]

    one, other = positions("val"), positions("val@64")
    assert one == positions("val") and one != other
    assert all(here != there for here, there in zip(one, other, strict=True))
    assert one[0] != one[1], "and so is each batch"
