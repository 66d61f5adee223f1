"""Numbers in words."""

from __future__ import annotations

import math

import pytest

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import length_families, reported_metrics


def test_a_number_shows_as_many_digits_as_its_interval_bears() -> None:
    assert number_format.number(1.23456, number_format.decimals_for(1.23456, 1.20, 1.27)) == "1.235"
    assert number_format.number(1.23456, number_format.decimals_for(1.23456, 0.2, 2.3)) == "1.2"
    assert number_format.number(123.456, number_format.decimals_for(123.456, 23.0, 223.0)) == "123"


def test_signs_are_true_minus_signs_and_zero_has_none() -> None:
    assert number_format.number(-0.5, 2, signed=True) == "−0.50"
    assert number_format.number(0.5, 2, signed=True) == "+0.50"
    assert number_format.number(-0.0001, 2, signed=True) == "0.00"


def test_what_rounding_leaves_of_a_zero_is_zero_beside_a_wide_interval() -> None:
    assert number_format.difference_text(9.25e-17, (-0.8, 0.8)) == "0.00 [−0.80, +0.80]"
    assert number_format.difference_text(3.56e-14, (3.51e-14, 3.61e-14)) == "+3.56e−14 [+3.51e−14, +3.61e−14]"


def test_open_ends_have_round_brackets() -> None:
    assert number_format.interval(0.1, math.inf, 2, signed=True) == "[+0.10, ∞)"
    assert number_format.interval(-math.inf, 0.1, 2) == "(−∞, 0.10]"
    assert number_format.interval(-math.inf, math.inf, 2) == "–"


@pytest.mark.parametrize(("p", "text"), [(0.0004, "< .001"), (0.0312, ".031"), (1.0, "1"), (math.nan, "–")])
def test_p_values(p: float, text: str) -> None:
    assert number_format.p_value(p) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.21, "3.2 s"), (59.99, "1 min 0 s"), (61, "1 min 1 s"), (7384, "2 h 3 min"), (math.nan, "–")],
)
def test_durations(seconds: float, text: str) -> None:
    assert number_format.duration(seconds) == text


def test_ticks_of_a_narrow_range_are_told_apart() -> None:
    low, high = 3768.0, 3774.0
    digits = number_format.digits_for(low, high)
    ticks = [number_format.scaled(value, digits) for value in (3768, 3770, 3772, 3774)]
    assert len(set(ticks)) == 4 and ticks[0] == "3.768 k"
    assert number_format.digits_for(1.0, 900.0) == number_format.digits_for(5.0, 5.0) == 3


@pytest.mark.parametrize(("count", "text"), [(512, "512 B"), (46_200_000, "46.2 MB"), (math.nan, "–")])
def test_sizes(count: float, text: str) -> None:
    assert number_format.size(count) == text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 4, 8], True),
        ([3e-4, 3e-3, 3e-2], True),
        ([1, 2, 3], False),
        ([2, 4], False),
        ([0, 1, 2], False),
        (["a"], False),
    ],
)
def test_power_series_are_recognised(values: list[object], expected: bool) -> None:
    assert svg.is_power_series(values) is expected


def test_long_names_wrap_at_separators_and_lose_no_character() -> None:
    name = "model/position=rope,fraction=0.5_base=500000 and so on"
    wrapped = svg.wrap(name, 20)
    assert max(map(len, wrapped.split("\n"))) <= 20
    assert wrapped.replace("\n", "").replace(" ", "") == name.replace(" ", "")


def test_a_metric_by_length_brings_its_whole_family() -> None:
    recorded = ["val/acc", "val/acc@128", "val/acc@16", "val/loss", "test/acc@16"]
    assert length_families(["val/acc@16"], recorded) == {"val/acc": {16: "val/acc@16", 128: "val/acc@128"}}
    swept = ["probe/replay/w/loss@0", "probe/replay/w/loss@7"]
    assert length_families(swept, swept) == {}, "a number that a replay changes is no length"
    pruned = ["probe/pruning/random@30", "probe/pruning/random@60"]
    assert length_families(pruned, pruned) == {}, "nor is a share of heads that are left out"
    longer = ["probe/replay/x/loss", "probe/replay/x/loss@64"]
    assert length_families(longer, longer) == {"probe/replay/x/loss": {64: "probe/replay/x/loss@64"}}
    assert reported_metrics(["val/loss", "val/acc@16"], recorded) == [
        "val/loss",
        "val/acc@16",
        "val/acc",
        "val/acc@128",
    ]
