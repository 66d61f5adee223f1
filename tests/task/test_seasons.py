"""The generated series: what comes round does, levels last until the next event, and nothing is asked of an event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task.seasons import Seasons, seasons

PLAIN: dict[str, Any] = {
    "length": 30000, "periods": (12, 60), "persistence": 0.9, "event_every": 50, "delay": 0, "level": 1.0,
    "noise": 0.3, "series": 0,
}  # fmt: skip


def correlation(values: np.ndarray[Any, Any], lag: int, kept: np.ndarray[Any, Any]) -> float:
    both = kept[lag:] & kept[:-lag]
    return float(np.corrcoef(values[lag:][both], values[:-lag][both])[0, 1])


def test_both_parts_come_round_after_their_periods_and_no_other() -> None:
    """With hardly any level and noise the correlation at 12 is ρ/2, at 60 (ρ + ρ⁵)/2, elsewhere 0."""
    announced, values = seasons(**PLAIN | {"level": 1e-6, "noise": 1e-6})
    found = {lag: correlation(values, lag, ~announced) for lag in (12, 60, 1, 7, 13, 30, 61)}
    assert found[12] == pytest.approx(0.45, abs=0.04)
    assert found[60] == pytest.approx((0.9 + 0.9**5) / 2, abs=0.05)
    assert max(abs(found[lag]) for lag in (1, 7, 30)) < 0.05
    assert max(abs(found[lag]) for lag in (13, 61)) < 0.05, (
        "the next value, and what stands whole periods before its query"
    )
    assert values[~announced].std() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("delay", [0, 20])
def test_a_level_is_announced_and_in_force_from_the_delay_until_that_of_the_next_event(delay: int) -> None:
    announced, values = seasons(**PLAIN | {"level": 50.0, "delay": delay})
    assert announced[0] and announced.mean() == pytest.approx(1 / 50, rel=0.15)
    begins = np.flatnonzero(announced)
    for begin, end in zip(begins, [*begins[1:], len(values)], strict=True):
        in_force = values[begin + delay : end + delay][~announced[begin + delay : end + delay]]
        assert np.abs(in_force - values[begin]).max(initial=0) < 6, "u, v and noise have a variance of 1.09"
    assert values[begins].std() == pytest.approx(50, rel=0.15)


def test_a_model_is_given_the_level_where_it_is_announced_and_asked_for_nothing_there() -> None:
    task = Seasons()
    batch = task.train_batch(0, 0)
    assert task.interface.channels == 2 and batch.inputs.shape == (16, 192, 2) and batch.targets.shape == (16, 192, 1)
    announced = batch.inputs[..., 1] == 1
    assert torch.equal(batch.tags["event"], announced.long()) and announced.any()
    assert torch.equal(batch.targets[:, :-1, 0].isnan(), announced[:, 1:]) and not batch.inputs.isnan().any()
    known = ~announced[:, 1:]
    assert torch.equal(batch.targets[:, :-1, 0][known], batch.inputs[:, 1:, 0][known])
    assert batch.inputs[..., 0][announced].std() > 0.3, "levels differ"


def test_the_series_is_another_one_by_its_number_and_the_same_for_every_seed() -> None:
    first, again, other = Seasons(), Seasons(), Seasons(series=1)
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    louder = Seasons(level=1.0000001)
    assert louder.fingerprint() != first.fingerprint()


@pytest.mark.parametrize("periods", [(12,), (12, 12)])
def test_periods_must_be_two_different_numbers(periods: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"task\.periods"):
        Seasons(periods=periods)


def test_a_block_must_hold_the_first_period_twice() -> None:
    with pytest.raises(UsageError, match=r"must exceed task\.season=12"):
        Seasons(block=12)
