"""The clock against seconds that are known, and the bytes of computations whose tensors can be counted by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from measure.conftest import Hand
from swapformer.measure.clock import LEAST, Clock, LiveBytes, OtherWork, peak_bytes, spread

CPU = torch.device("cpu")


def acts(clock: Clock, hand: Hand, seconds: list[float]) -> Callable[[], dict[str, float]]:
    """A computation that takes the next of some seconds at each call."""
    rest = iter(seconds)

    def advance() -> None:
        hand.seconds += next(rest)

    return lambda: {"time/all@8": clock.timed(advance)}


def test_a_timing_is_the_median_of_its_samples_without_the_warm_up(hand: Hand) -> None:
    clock = Clock(CPU, hand)
    assert clock.sample(acts(clock, hand, [90, 1, 1, 2, 9, 3, 1]), warm_up=2, repeats=5) == {"time/all@8": 2}
    # quartiles of 1, 1, 2, 3, 9 are 1 and 3
    assert clock.spreads == {"time/all@8": 1.0} == {"time/all@8": spread([1, 1, 2, 3, 9])}
    assert clock.note == "the repeats of a timing spread by more than 50 % of its median, between quartiles"
    clock.spreads = {"time/all@8": 0.1, "time/mix@8": 0.0}
    assert clock.note is None


def test_a_sample_is_the_mean_of_as_many_calls_as_outlast_the_clocks_grain(hand: Hand) -> None:
    clock, calls = Clock(CPU, hand), []

    def act() -> dict[str, float]:
        calls.append(1)
        return {"time/all@8": LEAST / 4}

    clock.sample(act, warm_up=1, repeats=3)
    assert len(calls) == 1 + 3 * 4 and clock.note is None
    clock.sample(act, warm_up=1, repeats=3, most=2)
    assert len(calls) == 13 + 1 + 3 * 2


def two_of_three() -> None:
    """Three tensors of 4000 bytes, of which two live at a time; what lies in them or is a view of them is no more."""
    first = torch.ones(1000)
    second = first + 1
    second.add_(1).view(10, 100)[3:].t()
    del first
    third = second * 2
    del second, third


def test_bytes_are_those_of_the_tensors_that_live_at_a_time() -> None:
    given = torch.ones(500)
    assert peak_bytes(two_of_three, CPU) == 8000
    assert peak_bytes(lambda: given.view(5, 100).add_(1), CPU) == 0, "what was there before is not counted"
    assert peak_bytes(lambda: (given + 1).double(), CPU) == 2000 + 4000


def test_bytes_that_are_never_given_back_would_be_noticed() -> None:
    class Hoarder(LiveBytes):
        def _hold(self, storage: torch.UntypedStorage) -> None:
            self._known[storage._cdata] = storage
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)

    with Hoarder() as live:
        two_of_three()
    assert live.peak == 12000


def test_the_work_of_others_is_what_all_cores_did_less_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: Any = iter([(10.0, 100.0), (13.0, 102.0)])
    monkeypatch.setattr(OtherWork, "_read", lambda self: next(readings))
    assert OtherWork().note == f"other processes kept about 1.5 of {os.cpu_count()} cores busy beside it"
    monkeypatch.setattr(OtherWork, "_read", lambda self: None)
    assert OtherWork().note is None
