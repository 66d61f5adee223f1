"""Until when a schedule does not depend on the length of the training, and which trials keep their state there."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from swapformer.study.config.compose import compose
from swapformer.training.schedule import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    StableDecaySchedule,
    branch_step,
)

CASES = list(product((0, 1, 7, 50), (0.0, 0.1), (0.01, 0.1, 0.2, 1 / 3, 0.5, 0.9), ("linear", "sqrt"), (23, 100, 777)))


@pytest.mark.parametrize("shape", ["linear", "sqrt"])
def test_stable_steps_are_those_of_any_longer_training_and_one_more_is_not(shape: str) -> None:
    """By definition: factor by factor, the one of the next step too, against trainings that are longer by 1 and ×9."""
    for warmup, final, decay, other, steps in CASES:
        if shape != other or warmup >= steps:
            continue
        schedule = StableDecaySchedule(warmup_steps=warmup, final=final, decay=decay, shape=shape)  # type: ignore[arg-type]
        stable = schedule.stable_steps(steps)
        for longer in (steps + 1, 9 * steps):
            same = [schedule.factor(step, steps) == schedule.factor(step, longer) for step in range(steps)]
            assert all(same[: stable + 1])
        assert stable + 1 == steps or not same[stable + 1], (warmup, final, decay, shape, steps)


def test_stable_steps_end_where_the_decay_is_said_to_begin() -> None:
    """The formula: warm-up and (1 − decay) of the rest; there the factor is 1 for the last time."""
    schedule = StableDecaySchedule(warmup_steps=10, final=0.0, decay=0.25, shape="linear")
    assert schedule.stable_steps(110) == 10 + 75
    assert schedule.factor(85, 110) == 1.0 > schedule.factor(86, 110)


@pytest.mark.parametrize(
    "schedule",
    [
        ConstantSchedule(warmup_steps=5),
        CosineSchedule(warmup_steps=5, final=0.1),
        LinearSchedule(warmup_steps=5, final=0.0),
    ],
)
def test_other_schedules_know_of_none(schedule: Any) -> None:
    assert schedule.stable_steps(100) == 0


WSD = ["task=copy", "schedule=wsd", "schedule.warmup_steps=5", "budget.steps=100"]


def test_a_trial_of_wsd_keeps_its_state_before_the_decay() -> None:
    assert branch_step(compose(WSD)) == 5 + 76


@pytest.mark.parametrize(
    "overrides",
    [
        ["budget.branch=false"],
        ["schedule=cosine"],
        ["schedule=constant"],
        ["schedule.decay=1"],
        ["budget.steps=0"],
        ["trainer.devices=2", "trainer.strategy=ddp"],
        ["trainer.fold=4"],
        ["probes=activation_moments", "probes.activation_moments.at=[10,end]"],
    ],
)
def test_a_trial_keeps_none(overrides: list[str]) -> None:
    assert branch_step(compose([*WSD, *overrides])) == 0


def test_probes_before_and_after_the_training_do_not_matter() -> None:
    found = compose([*WSD, "probes=activation_moments", "probes.activation_moments.at=[init,end]"])
    assert branch_step(found) == 81


def test_a_trial_with_callbacks_keeps_none() -> None:
    """A callback may ask how long the training is: then two lengths are not the same up to the decay."""
    assert branch_step({**compose(WSD), "callbacks": {"watch": {"_target_": "my.Callback"}}}) == 0
