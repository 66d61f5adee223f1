"""Ladders of known answer: speed-ups, how they go with size, the next size, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from report.store import Store
from swapformer.report.records import read
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.estimates import FactorEstimate, MeanEstimate, UnknownEstimate
from swapformer.report.statistics.evidence import Evidence, gather, join
from swapformer.report.statistics.ladder import ArmLadder, Unfit
from swapformer.report.statistics.ladder_summary import ladder_summaries
from swapformer.report.statistics.power import seeds_for
from swapformer.report.statistics.verdicts import judge
from swapformer.results.manifest import Manifest

RUNGS = 4
C = 1e12 * 4.0 ** np.arange(RUNGS)
CONDITIONS = {f"rung=s{at}": {"rung": f"s{at}"} for at in range(RUNGS)}


def law(computation: np.ndarray) -> np.ndarray:
    return np.asarray(1.5 + 2 * (computation / 1e12) ** -0.12)


def ladder(speed_ups: np.ndarray, noise: float, seed: int, seeds: int = 5, cost: float = 1.0) -> ArmLadder:
    """Losses of a baseline on its law, and of an arm that is as good as the baseline with S times the operations."""
    generator = np.random.default_rng(seed)
    common = generator.normal(0, 0.8 * noise, (RUNGS, seeds))
    rows = [
        losses[:, None] + common + generator.normal(0, 0.6 * noise, (RUNGS, seeds))
        for losses in (law(C * speed_ups * cost), law(C))
    ]
    return ArmLadder(tuple(CONDITIONS), rows[0], rows[1], cost * C, C)


def test_speed_ups_are_times_the_operations_of_the_baseline_at_equal_loss() -> None:
    """Without noise: as good as the baseline with 1.1 … 1.5 times what the arm costs, which is twice the baseline's."""
    true = np.array([1.1, 1.2, 1.35, 1.5])
    found = ladder(true, 1e-6, 1, cost=2.0)
    assert np.exp(found.log_speed_ups(range(5))) == pytest.approx(true, rel=2e-3)
    assert found.next_computation == pytest.approx(4 * C[-1])
    slope = np.polyfit(np.log(C), np.log(true), 1)
    assert found.trend().value == pytest.approx(slope[0], rel=0.05)
    assert found.next_size().value == pytest.approx(np.polyval(slope, math.log(4 * C[-1])), rel=0.05)
    same = replace(found, here=found.base, own=found.computation)
    assert same.log_speed_ups(range(5)) == pytest.approx(np.zeros(RUNGS), abs=1e-12)


def test_intervals_cover_known_speed_ups_and_growth_is_seldom_false() -> None:
    """A fast version of `python -m benchmarks statistics ladders`: 160 ladders of five seeds."""
    covered, grows, studies = np.zeros(3), 0, 160
    for seed in range(studies):
        found = ladder(np.full(RUNGS, 1.2), 0.01, seed)
        try:
            parts = [found.at_rung(RUNGS - 1), found.trend(), found.next_size()]
        except Unfit:
            studies -= 1
            continue
        for index, (estimate, truth) in enumerate(zip(parts, (math.log(1.2), 0.0, math.log(1.2)), strict=True)):
            covered[index] += estimate.lower(0.025) <= truth <= estimate.upper(0.025)
        grows += parts[1].lower(0.025) > 0
    assert studies >= 150
    assert ((covered / studies >= 0.9) & (covered / studies <= 0.99)).all() and grows / studies <= 0.06


def test_taking_the_arms_share_of_noise_alone_would_be_too_sure() -> None:
    """Planted: intervals from the spread of pseudo-values over rungs, not seeds, would miss: they are not used."""
    found = ladder(np.full(RUNGS, 1.2), 0.02, 3)
    estimate = found.at_rung(0)
    assert isinstance(estimate, MeanEstimate) and estimate.n == 5 and estimate.freedom == 4
    halves = [found.log_speed_ups([s for s in range(5) if s != out])[0] for out in range(5)]
    jackknife = math.sqrt(4 / 5 * ((np.array(halves) - np.mean(halves)) ** 2).sum())
    assert estimate.standard_error == pytest.approx(jackknife, rel=1e-9)


def evidence(found: ArmLadder) -> Evidence:
    """Evidence of the baseline `a` and the arm `b` at every rung."""
    rows = {("a", at): found.base[i] for i, at in enumerate(CONDITIONS)}
    rows |= {("b", at): found.here[i] for i, at in enumerate(CONDITIONS)}
    names = {key: f"{key[0]} with {key[1]}" for key in rows}
    return Evidence(
        tuple(names.values()), tuple(range(5)),
        {(names[k], "val/loss"): row for k, row in rows.items()},
        {names[k]: np.full(5, True) for k in rows}, {names[k]: np.full(5, False) for k in rows},
        {"val/loss": "lower"},
        operations={names[k]: C[i % RUNGS] for i, k in enumerate(rows)},
    )  # fmt: skip


def claims(*bodies: dict[str, object]) -> list:  # type: ignore[type-arg]
    raw = [{"text": str(number), **body} for number, body in enumerate(bodies)]
    return parse(raw, ["a", "b"], ["val/loss"], CONDITIONS)


ABOUT = {"arm": "b", "than": "a", "metric": "val/loss"}


def test_claims_about_ladders_are_judged_once() -> None:
    found = evidence(ladder(np.array([1.1, 1.3, 1.6, 1.9]), 0.002, 1))
    verdicts = judge(
        claims(
            {"speed_up": {**ABOUT, "above": 1.5}},
            {"speed_up": {**ABOUT, "where": "s0", "above": 1.5}},
            {"speed_up": {**ABOUT, "where": "next", "between": [1.5, 4]}},
            {"grows": {**ABOUT, "above": 0}},
        ),
        found,
    )
    assert [each.outcome for each in verdicts] == ["supported", "refuted", "supported", "supported"]
    first = verdicts[0].contrasts[0]
    assert first.estimate.value == pytest.approx(1.9, rel=0.1) and 1.5 < first.lower < first.estimate.value
    assert first.arm == "speed-up of b over a at rung=s3"
    wide = judge(claims({"speed_up": {**ABOUT, "above": 1.2}}), evidence(ladder(np.full(RUNGS, 1.3), 0.03, 1)))[0]
    assert wide.outcome == "undecided" and wide.needed is not None and wide.needed.low is not None


def test_a_speed_up_of_exact_losses_is_that_of_their_law() -> None:
    """And not the sum of the losses' differences over the sizes."""
    found = evidence(ladder(np.full(RUNGS, 1.3), 0.0, 1))
    (claim,) = claims({"speed_up": {**ABOUT, "above": 1.2}})
    (estimate,) = (each.estimate for each in replace(claim, exact=True).estimates(found))
    assert estimate.value == pytest.approx(1.3, rel=0.02)


REASON = "`num_heads` must divide `d_model`, but 7 does not divide 96"


def taller(absent: str | None, at: int, rungs: int = RUNGS + 1) -> tuple[Evidence, list[str]]:
    """A ladder of one size more, on which the arm needs 1.5^(rung) times less; at one rung it has no result.

    `absent`: impossible, failed or diverged; None: nothing is lost.
    """
    generator = np.random.default_rng(5)
    computation = 1e12 * 4.0 ** np.arange(rungs)
    names = [f"rung=s{number}" for number in range(rungs)]
    speed_ups = 1.1 * 1.25 ** np.arange(rungs)
    values, kept, finished, diverged, operations = {}, [], {}, {}, {}
    for arm, factor in (("a", np.ones(rungs)), ("b", speed_ups)):
        for number, name in enumerate(names):
            own = f"{arm} with {name}"
            lost = absent is not None and (arm, number) == ("b", at)
            loss = law(computation[number] * factor[number]) + generator.normal(0, 0.001, 5)
            if not (lost and absent == "impossible"):
                kept.append(own)
                values[own, "val/loss"] = np.full(5, math.nan) if lost else loss
                finished[own], diverged[own] = np.full(5, not lost), np.full(5, lost and absent == "diverged")
                operations[own] = computation[number]
    why = {"impossible": f"is impossible: {REASON}", "failed": "has no trial that came to an end (failed: no memory)"}
    gone = {f"b with {names[at]}": why[absent]} if absent in why else {}
    return Evidence(
        tuple(kept),
        tuple(range(5)),
        values,
        finished,
        diverged,
        {"val/loss": "lower"},
        operations=operations,
        absent=gone,
    ), names


def taller_claims(names: list[str], *bodies: dict[str, object]) -> list:  # type: ignore[type-arg]
    raw = [{"text": str(number), **body} for number, body in enumerate(bodies)]
    return parse(raw, ["a", "b"], ["val/loss"], {name: {"rung": name.removeprefix("rung=")} for name in names})


WHY = {
    "impossible": f"b is impossible: {REASON}",
    "failed": "b has no trial that came to an end (failed: no memory)",
    "diverged": "b has no value with any seed",
}


@pytest.mark.parametrize("absent", WHY)
def test_an_arm_without_some_size_is_not_judged_and_told_why(absent: str) -> None:
    """What lies one step behind the other sizes would be another one than claims and figures are about."""
    found, names = taller(absent, 1)
    bodies: list[dict[str, object]] = [
        {"speed_up": {**ABOUT, "above": 1.5}},
        {"grows": {**ABOUT, "above": 0}},
        {"speed_up": {**ABOUT, "where": "next", "above": 1.5}},
    ]
    verdicts = judge(taller_claims(names, *bodies), found)
    for verdict in verdicts:
        assert verdict.outcome == "undecided"
        told = f"both arms must have values at every size, but with rung=s1 {WHY[absent]}; leave the size out"
        assert told in verdict.notes
    whole, _ = taller(None, 0)
    without = [name for name in names if name != "rung=s1"]
    assert [each.outcome for each in judge(taller_claims(without, *bodies), whole)] == ["supported"] * 3
    assert not judge(taller_claims(names, *bodies), whole)[0].notes


def test_a_summary_tells_the_next_size_and_the_law_of_the_baseline_whichever_arm_lacks_a_size() -> None:
    found, names = taller("diverged", RUNGS)
    by_condition = {name: at_condition(found, name, "a", "b") for name in names}
    manifest = Manifest(
        "x", "a", {"a": (), "b": ()}, tuple(range(5)), ("val/loss",), (),
        conditions={name: {"rung": name.removeprefix("rung=")} for name in names},
    )  # fmt: skip
    (summary,) = ladder_summaries(manifest, by_condition)
    assert summary.arms == () and summary.law is not None
    assert summary.next_computation == pytest.approx(1e12 * 4.0 ** (RUNGS + 1))
    (note,) = summary.notes
    assert note.startswith("no speed-up of b: both arms must have values at every size, but with rung=s4 b ")


def test_why_an_arm_has_no_result_is_that_of_the_records(tmp_path: Path) -> None:
    """Impossible arms by the manifest, those without a trial that ended by the first record."""
    arms = {"a": [], "odd": [], "large": [], "mixed": [], "wild": []}
    store = Store(tmp_path, arms, "a", ["val/loss"], seeds=range(2))
    store.manifest["impossible"] = [{"arm": "odd", "reason": f"{REASON}; try 8."}]
    for seed in range(2):
        store.write_trial("a", seed, {"val/loss": 2.0})
        store.write_trial("large", seed, {}, status="failed", reason=f"OutOfMemoryError: {'x' * 400}")
        store.write_trial("mixed", seed, {"val/loss": 2.0}, status=("finished", "failed")[seed])
        store.write_trial("wild", seed, {}, status="diverged")
    store.write_manifest()
    found = gather(read(store.study, store.runs)).absent
    assert found.keys() == {"odd", "large"}
    assert found["odd"] == f"is impossible: {REASON}; try 8"
    assert found["large"].startswith("has no trial that came to an end (failed: OutOfMemoryError: xxx")
    assert len(found["large"]) < 300
    joined = join({"rung=s0": gather(read(store.study, store.runs))})
    assert joined.absent["odd with rung=s0"] == found["odd"]


@pytest.mark.parametrize(
    ("must_beat", "behind"),
    [
        ({"val/loss": {"a trigram": 2.05}}, []),
        ({"val/loss": {"a trigram": 2.0, "a bigram": 2.5}}, ["a trigram in val/loss (2.04995, which has 2)"]),
        ({"val/accuracy": {"the commonest": 0.5}}, ["the commonest in val/accuracy (0.4, which has 0.5)"]),
        ({"val/accuracy": {"chance": 0.1}, "val/loss": {"chance": 3}}, []),
    ],
)
def test_the_mean_of_the_baseline_must_beat_each_number(
    tmp_path: Path, must_beat: dict[str, dict[str, float]], behind: list[str]
) -> None:
    """To the better side of each metric; the other arms need not."""
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "val/accuracy"], seeds=range(2))
    store.manifest["must_beat"] = must_beat
    for seed in range(2):
        store.write_trial("a", seed, {"val/loss": 2.0 + 0.0999 * seed, "val/accuracy": 0.4})
        store.write_trial("b", seed, {"val/loss": 4.0, "val/accuracy": 0.0})
    store.write_manifest()
    found = gather(read(store.study, store.runs))
    assert [line.removeprefix("not judged: a has not beaten ") for line in found.unbeaten] == behind
    assert join({"k=1": found, "k=2": found}).unbeaten == found.unbeaten


def test_seeds_that_diverged_at_a_size_that_is_judged_still_open_the_limits() -> None:
    """One seed of five lost at a rung that stays: what is left of the arm there are its survivors."""
    found, names = taller(None, 1)
    row = found.values["b with rung=s2", "val/loss"].copy()
    row[0] = math.nan
    found = replace(
        found, values={**found.values, ("b with rung=s2", "val/loss"): row},
        finished={**found.finished, "b with rung=s2": np.isfinite(row)},
        diverged={**found.diverged, "b with rung=s2": ~np.isfinite(row)},
    )  # fmt: skip
    (verdict,) = judge(taller_claims(names, {"speed_up": {**ABOUT, "above": 1.5}}), found)
    assert verdict.outcome == "undecided"
    assert "b with rung=s2 diverged with 1 of 5 seeds: not favoured" in verdict.notes


def test_trials_that_are_lost_at_the_smallest_size_open_both_limits_of_the_next() -> None:
    """There a line's smallest sizes weigh against its end: who lost trials may be flattered or wronged."""
    found, names = taller(None, 1)
    row = found.values["a with rung=s0", "val/loss"].copy()
    row[0] = math.nan
    found = replace(
        found, values={**found.values, ("a with rung=s0", "val/loss"): row},
        finished={**found.finished, "a with rung=s0": np.isfinite(row)},
        diverged={**found.diverged, "a with rung=s0": ~np.isfinite(row)},
    )  # fmt: skip
    last, after = judge(
        taller_claims(names, *({"speed_up": {**ABOUT, "where": at, "above": 1.1}} for at in ("s4", "next"))), found
    )
    assert (last.contrasts[0].lower > 1, math.isinf(last.contrasts[0].upper)) == (True, True)
    assert after.outcome == "undecided" and not math.isfinite(after.contrasts[0].lower)


def test_sizes_that_are_not_listed_smallest_first_are_told() -> None:
    """`speed_up` means the last of them where it says none."""
    found, names = taller(None, 1)
    (verdict,) = judge(taller_claims(names[::-1], {"speed_up": {**ABOUT, "above": 1.1}}), found)
    assert verdict.outcome == "undecided" and any("lists its sizes smallest first" in note for note in verdict.notes)


def test_a_loss_that_the_baseline_never_reaches_has_no_speed_up() -> None:
    good = ladder(np.ones(RUNGS), 0.002, 1)
    found = evidence(replace(good, here=good.here - 3))
    (verdict,) = judge(claims({"speed_up": {**ABOUT, "above": 1.2}}), found)
    assert verdict.outcome == "undecided" and isinstance(verdict.contrasts[0].estimate, UnknownEstimate)
    assert any("has a loss that a reaches at no size" in note for note in verdict.notes)


def test_a_baseline_below_the_floor_of_its_own_law_gives_no_speed_up() -> None:
    """On a plateau noise lies about E: an arm that is worse everywhere must not look astronomically faster."""
    refused = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        losses = 1.5 + 0.2 * (C / 1e12) ** -1.2
        rows = [losses[:, None] + 0.01 * worse + generator.normal(0, 0.005, (RUNGS, 5)) for worse in (1, 0)]
        try:
            found = ArmLadder(tuple(CONDITIONS), rows[0], rows[1], C, C).log_speed_ups(range(5))
        except Unfit as error:
            refused += "lies below E, the floor of its law" in str(error)
        else:
            assert (found < 10).all() or math.inf in found
    assert refused > 2


def at_condition(found: Evidence, at: str, *arms: str) -> Evidence:
    """The part of joined evidence that is of one condition."""
    own = {arm: f"{arm} with {at}" for arm in arms if f"{arm} with {at}" in found.arms}
    return replace(
        found, arms=tuple(own), absent={},
        values={(arm, "val/loss"): found.values[name, "val/loss"] for arm, name in own.items()},
        finished={arm: found.finished[name] for arm, name in own.items()},
        diverged={arm: found.diverged[name] for arm, name in own.items()},
        operations={arm: found.operations[name] for arm, name in own.items()},
    )  # fmt: skip


def test_a_summary_says_law_and_speed_ups() -> None:
    parts = evidence(ladder(np.array([1.1, 1.3, 1.6, 1.9]), 0.002, 1))
    by_condition = {at: at_condition(parts, at, "a", "b") for at in CONDITIONS}
    manifest = Manifest("x", "a", {"a": (), "b": ()}, tuple(range(5)), ("val/loss",), (), conditions=CONDITIONS)
    (summary,) = ladder_summaries(manifest, by_condition)
    assert summary.arms[0].slope[1] > 0 and summary.law is not None
    said = " ".join(summary.lines())
    assert "Law of a in val/loss over C operations: " in said and "(slope of its logarithm 0." in said
    assert ladder_summaries(replace(manifest, conditions={"": {}}), {"": parts}) == []
    first = by_condition["rung=s0"]
    row = first.values["b", "val/loss"].copy()
    row[4] = math.nan
    by_condition["rung=s0"] = replace(
        first, values={**first.values, ("b", "val/loss"): row},
        finished={**first.finished, "b": np.isfinite(row)}, diverged={**first.diverged, "b": ~np.isfinite(row)},
    )  # fmt: skip
    (summary,) = ladder_summaries(manifest, by_condition)
    assert summary.arms[0].slope[1] == -math.inf and all(low == 0 for _, low, _ in summary.arms[0].rungs.values())


def test_a_factor_has_the_limits_and_p_values_of_its_logarithm() -> None:
    found = FactorEstimate(MeanEstimate(math.log(1.3), 5, 0.1))
    assert found.lower(0.025) == pytest.approx(math.exp(found.inner.lower(0.025)))
    assert found.p_above(found.lower(0.05)) == pytest.approx(0.05) and found.p_below(
        found.upper(0.05)
    ) == pytest.approx(0.05)
    assert found.p_above(0) < 1e-12 and found.p_below(-1) == 1
    assert seeds_for(found, (1.2, math.inf), 0.05) == seeds_for(found.inner, (math.log(1.2), math.inf), 0.05)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"speed_up": {**ABOUT, "where": "s9", "above": 1}},
            "`where` must be next or one rung, s0, s1, s2, s3, not 's9'",
        ),
        ({"speed_up": {**ABOUT, "below": 0}}, "a speed-up is a factor above 0"),
        ({"grows": {**ABOUT, "where": "s0", "above": 0}}, "`grows` has no key 'where'"),
        ({"grows": {**ABOUT}}, "needs exactly one of above, below, between"),
    ],
)
def test_a_wrong_claim_about_a_ladder_is_told(body: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claims(body)
    with pytest.raises(ValueError, match="needs a `ladder`"):
        parse([{"text": "x", "grows": {**ABOUT, "above": 0}}], ["a", "b"], ["val/loss"], {"": {}})
