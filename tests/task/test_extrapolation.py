"""What is said of longer lengths than were trained, against areas and lengths by hand."""

from __future__ import annotations

import math

import pytest

from swapformer.errors import UsageError
from swapformer.task import Copy
from swapformer.task.settings import evaluation_lengths
from swapformer.task.synthetic import extrapolation


def test_the_area_is_that_of_straight_lines_from_the_trained_length_on() -> None:
    values = {"exact_match": 1.0, "exact_match@20": 0.5, "exact_match@40": 0.1, "loss@40": 3.0, "accuracy@20": 0.9}
    # From 10 to 20 the mean is 0.75, from 20 to 40 it is 0.3: (10 · 0.75 + 20 · 0.3) / 30.
    assert extrapolation(values, 10) == {"extrapolation_area": pytest.approx(0.45), "longest_90": 10.0}


def test_the_trained_length_counts_with_its_own_set_where_there_is_one() -> None:
    values = {"exact_match": 1.0, "exact_match@5": 0.95, "exact_match@10": 0.8, "exact_match@20": 0.6}
    assert extrapolation(values, 10) == {"extrapolation_area": pytest.approx(0.7), "longest_90": 5.0}


@pytest.mark.parametrize(
    ("at", "longest"),
    [
        ((1.0, 0.95, 0.91), 40.0),
        ((1.0, 0.91, 0.5), 20.0),
        ((1.0, 0.9, 0.95), 10.0),  # not above, and what lies beyond a gap does not count
        ((0.5, 1.0, 1.0), 0.0),
        ((math.nan, 1.0, 1.0), 0.0),
    ],
)
def test_the_longest_solved_length_has_only_solved_ones_before_it(at: tuple[float, ...], longest: float) -> None:
    values = dict(zip(("exact_match", "exact_match@20", "exact_match@40"), at, strict=True))
    assert extrapolation(values, 10)["longest_90"] == longest


def test_nothing_is_said_where_nothing_longer_was_measured() -> None:
    assert extrapolation({"exact_match": 1.0, "exact_match@5": 1.0}, 10) == {}
    assert extrapolation({"loss": 1.0}, 10) == {}
    assert not Copy(lengths=[2, 9], eval_lengths=[9]).summaries
    assert set(Copy(lengths=[2, 9], eval_lengths=[10]).summaries) == {"extrapolation_area", "longest_90"}


def test_lengths_are_numbers_or_multiples_of_the_longest_trained() -> None:
    assert evaluation_lengths("eval_lengths", ["1x", 20, "3x"], 16) == (16, 20, 48)
    task = Copy(lengths=[2, 8], eval_lengths=["2x", 12])
    assert [one.name for one in task.evaluation("val")] == ["", "@16", "@12"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["2.5x"], "entries must be whole numbers, or multiples of the longest trained length such as 2x, but one is"),
        (["0x"], "entries must be at least 1, but is 0"),
        ([0], "entries must be at least 1, but is 0"),
    ],
)
def test_other_lengths_are_refused(values: object, message: str) -> None:
    with pytest.raises(UsageError, match=f"task.eval_lengths {message}"):
        Copy(eval_lengths=values)  # type: ignore[arg-type]
