"""What counting tells of the roles that 04_head_count/roles asks for: as much as its models of any number of heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from swapformer.study.config.compose import compose, task_of
from swapformer.task.base import IGNORE
from swapformer.task.source_code import Roles

pytestmark = pytest.mark.evidence
MOST = 6

Ids = NDArray[np.int64]


def contexts(ids: Ids, length: int, size: int) -> Ids:
    """The `length` characters up to each place of rows [B,T], as a number in base `size`; -1 where a row has fewer."""
    found = np.full(ids.shape, -1, dtype=np.int64)
    found[:, length - 1 :] = sum(ids[:, length - 1 - back : ids.shape[1] - back] * size**back for back in range(length))
    return found


def test_the_commonest_role_behind_the_last_six_characters_is_right_as_often_as_a_model_is() -> None:
    """At the places where the models are judged, in the same blocks: one head has .902, four .907, sixteen .906."""
    task = task_of(compose(["task=roles"]))
    assert isinstance(task, Roles)
    seen = np.asarray(task.ids["train"], dtype=np.int64)[None]
    roles = task.annotations.windows("train", "role", torch.tensor([0]), seen.shape[1]).numpy().astype(np.int64)
    asked = roles < len(task.classes)
    batches = [task.evaluation("val")[0].batch(index) for index in range(64)]
    ids = np.concatenate([batch.inputs.numpy() for batch in batches]).astype(np.int64)
    answers = np.concatenate([batch.targets.numpy() for batch in batches])
    found = np.full(ids.shape, np.bincount(roles[asked]).argmax())
    for length in range(1, MOST + 1):
        counted = asked & (contexts(seen, length, task.vocab_size) >= 0)
        known, index = np.unique(contexts(seen, length, task.vocab_size)[counted], return_inverse=True)
        times = np.zeros((len(known), len(task.classes)), dtype=np.int32)
        np.add.at(times, (index, roles[counted]), 1)
        here = contexts(ids, length, task.vocab_size)
        at = np.minimum(np.searchsorted(known, here), len(known) - 1)
        found = np.where(known[at] == here, times.argmax(1)[at], found)
    assert (found == answers)[answers != IGNORE].mean() == pytest.approx(0.908, abs=0.0005)
