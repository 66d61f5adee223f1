"""Evaluation of language models by windows that overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import IGNORE, Text
from texts import text

DISTINCT = "".join(chr(0x4E00 + index) for index in range(600))
"""Every token is known by its place."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(DISTINCT, encoding="utf-8")
    return path


def predictions(task: Text, index: int, every: bool = False) -> list[tuple[int, int]]:
    """(place of the target in the text, places before it in its window) of all scored targets of a set, in order."""
    one = task.evaluation("val")[index]
    assert one.batches is not None
    found = []
    for number in range(one.batches):
        batch = one.batch(number)
        for row, place in (batch.targets != IGNORE).nonzero().tolist():
            assert torch.equal(batch.inputs[row].diff(), torch.ones(batch.inputs.shape[1] - 1, dtype=torch.int64))
            assert batch.targets[row, place] == batch.inputs[row, place] + 1
            found.append((int(batch.targets[row, place]), place + 1))
    return found


SETTINGS: dict[str, Any] = {"split": [0.2, 0.8, 0.0], "block": 16, "eval_lengths": [32], "batch_size": 4}


@pytest.mark.parametrize("stride", [1, 4, 8])
def test_every_token_is_predicted_once_from_enough_before_it(file: Path, stride: int) -> None:
    plain, sliding = text(file, **SETTINGS), text(file, **SETTINGS, stride=stride)
    first = 120  # of 600 tokens, where validation begins
    for index, length in enumerate((16, 32)):
        blocks, windows = predictions(plain, index), predictions(sliding, index)
        assert sorted(target for target, _ in windows) == sorted(target for target, _ in blocks)
        assert min(seen for _, seen in blocks) == 1, "a block's first token is predicted from one alone"
        for target, seen in windows:
            assert seen > min(length - stride, target - first - 1) and seen <= length


def test_batches_score_the_tokens_of_the_blocks_batches(file: Path) -> None:
    plain, sliding = text(file, **SETTINGS), text(file, **SETTINGS, stride=4)
    for one, other in zip(plain.evaluation("val"), sliding.evaluation("val"), strict=True):
        assert (one.name, one.batches) == (other.name, other.batches)
        for number in range(3):
            targets = [
                batch.targets[batch.targets != IGNORE].sort().values
                for batch in (one.batch(number), other.batch(number))
            ]
            assert torch.equal(*targets)


def test_a_stride_of_a_whole_block_is_no_overlap(file: Path) -> None:
    settings = SETTINGS | {"eval_lengths": []}
    plain, sliding = text(file, **settings), text(file, **settings, stride=16)
    for number in range(plain.evaluation("val")[0].batches or 0):
        one, other = (task.evaluation("val")[0].batch(number) for task in (plain, sliding))
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def test_a_stride_that_leaves_tokens_out_is_refused(file: Path) -> None:
    message = "task.stride must be at most the shortest block, 16, or tokens would be left out, but is 17; lower it"
    with pytest.raises(UsageError, match=message):
        text(file, **SETTINGS, stride=17)
    with pytest.raises(UsageError, match=r"task.stride must divide the longest block, .*, but is 5; take"):
        text(file, **SETTINGS, stride=5)
