"""Moments that a trial does not have are refused in one line, before anything trains."""

from __future__ import annotations

from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose

TRIAL = [
    "task=copy",
    "model.num_layers=1",
    "model.d_model=16",
    "budget.steps=20",
    "schedule.warmup_steps=2",
    "probes=head_similarity",
]


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("[]", "must be a list of moments such as [init, 10, end], but it is []"),
        ("init", "must be a list of moments such as [init, 10, end], but it is 'init'"),
        ("[10,init]", "must name each moment once, in order, but it is [10, init]; use [init, 10]"),
        (
            "[init,10,10,end]",
            "must name each moment once, in order, but it is [init, 10, 10, end]; use [init, 10, end]",
        ),
        ("[-1]", "must be init, a number of steps from 1, or end, but one is -1"),
        ("[0,end]", "but one is 0; before the first step is init"),
        ("[true]", "but one is True"),
        ("[1.5]", "but one is 1.5"),
        ("[start]", "but one is 'start'"),
        ("[20]", "must be before the last, but it has 20 and budget.steps is 20; use end"),
        ("[10,1000]", "must be before the last, but it has 1000 and budget.steps is 20"),
    ],
)
def test_wrong_moments_are_told_in_one_line(at: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        check(compose([*TRIAL, f"probes.head_similarity.at={at}"]))
    text = str(error.value)
    assert message in text and "`probes.head_similarity.at`" in text
    assert "\n" not in text and len(text) <= 300


def test_moments_within_a_training_on_several_devices_are_refused() -> None:
    several = ["trainer.devices=2", "trainer.strategy=ddp"]
    with pytest.raises(UsageError, match=r"the trial has 2 devices; use trainer\.devices=1, or init and end alone"):
        check(compose([*TRIAL, *several, "probes.head_similarity.at=[10]"]))
    check(compose([*TRIAL, *several, "probes.head_similarity.at=[init,end]"]))


def test_right_moments_are_kept_and_the_end_alone_is_as_if_nothing_was_said() -> None:
    def probe(*more: str) -> Any:
        config = compose([*TRIAL, *more])
        check(config)
        return config["probes"]["head_similarity"]

    assert probe("probes.head_similarity.at=[init,1,19,end]")["at"] == ["init", 1, 19, "end"]
    assert "at" not in probe() and probe("probes.head_similarity.at=[end]") == probe()
