"""Seeds that may fail: the gap statistic with its power, and the sentences beside a verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from report.statistics.test_verdicts import METRICS, evidence
from swapformer.report.page.wording import error_text
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.failing_seeds import Groups, excluded_share, seeds_to_reach, two_groups
from swapformer.report.statistics.verdicts import judge


def found(make: object, n: int) -> float:
    generator = np.random.default_rng(4)
    return float(np.mean([two_groups(make(generator, n)) is not None for _ in range(1000)]))  # type: ignore[operator]


@pytest.mark.parametrize(("n", "power"), [(5, 0.80), (8, 0.95), (16, 0.99)])
def test_two_groups_are_recognised_and_normal_values_are_not(n: int, power: float) -> None:
    """Halves of the seeds that lie 50 standard deviations apart; the powers are those of docs/statistics.md."""
    assert found(lambda g, n: g.normal(0, 1, n), n) <= 0.02
    both = found(lambda g, n: g.choice([0.0, 1.0], n) + g.normal(0, 0.02, n), n)
    assert both >= power


def test_groups_say_where_the_gap_is() -> None:
    values = np.array([0.9, 0.02, 0.91, 0.03, 0.92, 0.9, 0.89, 0.01])
    assert two_groups(values) == Groups(3, 5, (0.03, 0.89))
    assert two_groups(np.ones(8)) is None and two_groups(values[:3]) is None


def test_a_share_of_failing_seeds_is_excluded_only_above_what_the_seeds_could_show() -> None:
    """1 − .05^(1/8) = .312: with that share, eight seeds show no failure in 5 % of studies."""
    assert excluded_share(8) == pytest.approx(0.312, abs=5e-4)
    assert (1 - excluded_share(8)) ** 8 == pytest.approx(0.05)


def test_a_verdict_on_means_says_what_it_cannot_know() -> None:
    body = {"arm": "a", "than": "b", "metric": "val/accuracy", "margin": 0.1}
    apart, even = [0.9, 0.02, 0.91, 0.03, 0.92, 0.9, 0.89, 0.01], np.linspace(0.4, 0.5, 8)
    split = evidence({"a": apart, "b": even}, "val/accuracy")
    (verdict,) = judge(parse([{"text": "x", "better": body}], "ab", METRICS), split)
    assert verdict.notes == (
        "seeds of a fall into two groups in val/accuracy: 3 up to 0.03, 5 from 0.89 on; a mean describes neither",
        "8 seeds leave open what up to 31 % of all seeds do; claim `reaches`, which counts them",
    )
    near = evidence(
        {"a": [0.99988, 0.99981, 0.99987, 0.99812, 0.99986, 0.99984, 0.99985, 0.99983], "b": even}, "val/accuracy"
    )
    (verdict,) = judge(parse([{"text": "x", "better": body}], "ab", METRICS), near)
    assert ": 1 up to 0.9981, 7 from 0.9998 on;" in verdict.notes[0], "in the digits that tell the groups apart"
    saturated = evidence({"a": [1.0] * 8, "b": even}, "val/accuracy")
    (verdict,) = judge(parse([{"text": "x", "better": body}], "ab", METRICS), saturated)
    assert [note.partition(" of all")[0] for note in verdict.notes] == ["8 seeds leave open what up to 31 %"]
    plain = evidence({"a": 0.2 + even, "b": even}, "val/accuracy")
    (verdict,) = judge(parse([{"text": "x", "better": body}], "ab", METRICS), plain)
    assert verdict.notes == ()


@pytest.mark.parametrize(("claims", "seeds"), [(1, 5), (2, 6), (8, 8), (30, 10)])
def test_how_many_seeds_count_failures_follows_from_the_studys_claims(claims: int, seeds: int) -> None:
    """Clopper and Pearson: n of n seeds decide “more than half” where .5^n is at most the level."""
    assert seeds_to_reach(0.04 / claims) == seeds
    assert 0.5**seeds <= 0.04 / claims < 0.5 ** (seeds - 1)
    body = {"arm": "a", "than": "b", "metric": "val/accuracy", "margin": 0.1}
    saturated = evidence({"a": [0.0, 0.0, 0.0], "b": [0.4, 0.5, 0.45]}, "val/accuracy")
    raw = [{"text": str(number), "better": {**body, "margin": 0.1 + number}} for number in range(claims)]
    (note,) = judge(parse(raw, "ab", METRICS), saturated, 0.04)[0].notes
    assert note == f"3 seeds leave open what up to 63 % of all seeds do; to count them by `reaches` takes {seeds} seeds"


def test_verdicts_say_where_seeds_do_not_look_normal() -> None:
    """There the error that the headline states does not hold."""
    draw = np.random.default_rng(5).normal(0, 0.01, (2, 8))
    body = {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.1}
    claims = parse([{"text": "x", "worse": body}], "ab", ["val/loss"])
    cases = {
        (): evidence({"a": 3 + draw[0], "b": 1 + draw[1]}),
        ("seeds of a fall into two groups",): evidence({"a": 3 + draw[0] + np.repeat([0, 0.12], 4), "b": 1 + draw[1]}),
        ("a fails with some seeds",): evidence(
            {"a": [*(3 + draw[0, :7]), math.nan], "b": 1 + draw[1]}, diverged={"a": [7]}
        ),
    }
    for expected, seen in cases.items():
        (verdict,) = judge(claims, seen)
        assert verdict.outcome == "supported" and verdict.doubts == expected
        said = error_text([0.04], [verdict])
        assert ("if seeds are roughly normal" in said) == (not expected) and all(each in said for each in expected)
    (wide,) = judge(claims, evidence({"a": 9 + 40 * draw[0], "b": 1 + draw[1]}))
    assert len(wide.doubts) == 1 and wide.doubts[0].startswith("seeds of a differ ") and "those of b" in wide.doubts[0]
