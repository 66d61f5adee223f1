"""A verdict of a look holds for the values that it judged; a claim that has others since is judged at the next look."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.statistics.test_other_text import rows
from report.statistics.test_paths import ARMS, NOISE, VALUES, better, errors, judged, noise, train
from report.statistics.test_paths import TestClaimsThatAreStatedLater as Stated
from report.store import ENVIRONMENT, Store
from swapformer.report.build import build
from swapformer.report.results_csv import read_results, results_csv
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claim_identity import identify
from swapformer.report.statistics.estimates import ShareEstimate
from swapformer.report.statistics.judged_values import JudgedValues
from swapformer.report.statistics.kept_looks import adopt_looks
from swapformer.report.statistics.look_path import look_path
from swapformer.report.statistics.remembered_looks import JUDGED
from swapformer.report.statistics.sequential import judge_all
from swapformer.report.statistics.statements import AFTERWARDS, stated_later
from swapformer.results.items import write_items
from swapformer.results.ledger import Ledger, Look, without_settings
from swapformer.results.manifest import read_manifest

state, note = Stated().state, Stated().note
METRICS = ["val/loss", "derived/t"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
    train(made, ARMS, range(5))
    return made


def trained(store: Store, of: Mapping[str, str]) -> dict[str, Any]:
    """A manifest whose arms train what other arms trained."""
    cells = [
        {"arm": arm, "seed": seed, "trial": store.trial(of.get(arm, arm), seed)} for arm in ARMS for seed in store.seeds
    ]
    return {"cells": cells, "settings": [{"arm": arm, "id": f"id of {of.get(arm, arm)}"} for arm in ARMS]}


def levels(store: Store, *claims: Mapping[str, Any], **manifest: Any) -> list[tuple[float, int]]:
    """The level and the pairs of each verdict."""
    return [(verdict.level, verdict.pairs) for verdict in judged(store, *claims, **manifest).verdicts]


class TestOtherValuesAreTheNextLook:
    def test_arms_that_trade_what_they_train(self, store: Store) -> None:
        """“a is better than c” was refuted; said of the same trials the other way round it is another claim."""
        claim = better("a", 0.1, than="c")
        assert levels(store, claim, **trained(store, {})) == [(0.04, 5)]
        assert levels(store, claim, **trained(store, {"a": "c", "c": "a"})) == [(0.005, 5)]
        assert errors(store) == [[0.04, 0.005]]

    def test_and_the_claim_says_that_their_results_were_seen(self, tmp_path: Path) -> None:
        store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
        claim = better("a", 0.1, than="c")
        state(store, claim, **trained(store, {}))
        train(store, ARMS, range(5))
        assert AFTERWARDS not in note(store, claim, **trained(store, {})).verdicts[0].qualifiers
        (swapped,) = note(store, claim, **trained(store, {"a": "c", "c": "a"})).verdicts
        assert swapped.outcome == "supported" and AFTERWARDS in swapped.qualifiers

    def test_a_trial_that_was_deleted(self, store: Store) -> None:
        store.write_trial("c", 4, {"val/loss": 5.0})
        assert judged(store, better("c", 0.2)).verdicts[0].outcome == "undecided"
        shutil.rmtree(store.directory("c", 4))
        assert levels(store, better("c", 0.2)) == [(0.005, 4)]

    def test_a_trial_that_was_measured_once_more(self, store: Store) -> None:
        assert judged(store, better("a", 0.3)).verdicts[0].outcome != "supported"
        for seed in range(5):
            store.write_trial("a", seed, {"val/loss": 1.5 + noise("a", seed)})
        assert levels(store, better("a", 0.3)) == [(0.005, 5)]

    def test_a_metric_that_trials_have_later(self, store: Store) -> None:
        store.metrics = ["val/loss", "probe/x"]
        claim = {"text": "p", "lower": {"arm": "c", "than": "b", "metric": "probe/x", "margin": 0.2}}
        for count in (3, 5):
            for arm in ARMS:
                for seed in range(count):
                    value = VALUES[arm] + noise(arm, seed)
                    store.write_trial(arm, seed, {"val/loss": value}, probes={"probe/x": value})
            assert levels(store, claim) == [(0.04 if count == 3 else 0.005, count)]

    def test_an_arm_that_moves_the_horizon_of_all_times(self, store: Store) -> None:
        store.metrics, store.seeds = METRICS, range(6)
        derive = {"derived/t": {"time_to": "val/loss", "value": 1.0, "unit": "seconds", "interpolate": False}}
        claim = {"text": "sooner", "lower": {"arm": "c", "than": "b", "metric": "derived/t", "margin": 0}}
        times = {"c": [500, 600, 500, 600, 700, 1900], "b": [900, 800, 900, 1000, 900, 1000], "d": [400] * 6}

        def write(arm: str, seconds: float) -> None:
            for seed in range(6):
                curve = [(step, 1.0 if step >= times[arm][seed] else 2.0) for step in range(100, 2100, 100)]
                store.write_trial(arm, seed, {"val/loss": 1.0}, history={"val/loss": curve}, seconds=seconds)

        write("b", 20.0), write("c", 20.0)
        assert levels(store, claim, derive=derive, arms=("b", "c")) == [(0.04, 6)]
        write("d", 20.0)
        assert levels(store, claim, derive=derive, arms=("b", "c", "d")) == [(0.04, 6)], "its horizon is the same"
        write("d", 10.5)
        assert levels(store, claim, derive=derive, arms=("b", "c", "d")) == [(0.005, 6)]

    def test_the_planted_fault_judges_other_values_at_the_same_look(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(JudgedValues, "of", lambda *of: "")
        assert levels(store, better("a", 0.3)) == [(0.04, 5)]
        for seed in range(5):
            store.write_trial("a", seed, {"val/loss": 1.5 + noise("a", seed)})
        assert levels(store, better("a", 0.3)) == [(0.04, 5)] and errors(store) == [[0.04]]


class TestWhatStaysTheSame:
    def test_the_claim_that_had_other_values_shares_the_error_of_its_look(self, store: Store) -> None:
        claims = [better("a", 0.3), better("d", 0.3)]
        judged(store, *claims)
        for seed in range(5):
            store.write_trial("a", seed, {"val/loss": 1.5 + noise("a", seed)})
        first, second = judged(store, *claims).verdicts
        assert (first.level, second.level) == (0.005, 0.02), "as if it were still at the first, undecided"

    def test_values_that_differ_beyond_nine_digits_are_the_same(self, store: Store) -> None:
        judged(store, better("a", 0.3))
        for seed in range(5):
            store.write_trial("a", seed, {"val/loss": (VALUES["a"] + noise("a", seed)) * (1 + 1e-13)})
        assert levels(store, better("a", 0.3)) == [(0.04, 5)]

    def test_a_look_of_before_values_were_kept_is_at_all(self, store: Store) -> None:
        report = judged(store, better("a", 0.3))
        look = report.records.manifest.ledger.series[0].looks[0]
        older = ".".join(look.claims.split(".")[:4])
        path = look_path(claims_of(report.records.manifest), report.records)
        assert look.claims.count(".") == 5 and replace(path, looks=(replace(look, claims=older),)).judged[0]

    def test_a_table_tells_them_too(self, store: Store) -> None:
        report = judged(store, better("a", 0.3))
        (look,) = report.records.manifest.ledger.series[0].looks
        assert without_settings(look.claims).split(".")[3:5] == ["", ""]
        assert without_settings(look.claims).split(".")[5] == look.claims.split(".")[5]
        again = read_again(store, report.records)
        assert [found.level for found in judge_all(claims_of(again.manifest), again)[""]] == [0.04]
        text = (store.root / "results.csv").read_text()
        value = next(line.split(",")[4] for line in text.splitlines() if ",a,0,val/loss," in line)
        (store.root / "results.csv").write_text(text.replace(value, "1.25"))
        edited = read_results(store.root / "results.csv", asked_of(report.records))
        assert [found.level for found in judge_all(claims_of(edited.manifest), edited)[""]] == [0.005]

    def test_a_failed_trial_that_is_run_again_after_its_folder_was_deleted(self, store: Store) -> None:
        train(store, ["c"], [3, 4], status="failed")
        assert levels(store, better("c", 0.3)) == [(0.04, 3)]
        shutil.rmtree(store.study)
        for seed in (3, 4):
            shutil.rmtree(store.directory("c", seed))
        train(store, ["c"], [3, 4])
        store.manifest = {}
        (found,) = judged(store, better("c", 0.3)).verdicts
        assert (found.level, found.pairs) == (0.04, 3), "the look of before keeps its data"
        assert errors(store) == [[0.04, 0.005]]

    def test_cells_that_come_after_a_look_are_not_part_of_it(self, store: Store) -> None:
        def cells(of_c: int) -> list[dict[str, Any]]:
            return [
                {"arm": arm, "seed": seed, "trial": store.trial(arm, seed)}
                for arm in ARMS
                for seed in range(of_c if arm == "c" else 5)
            ]

        claims = better("a", 0.05), better("c", 0.44)
        judged(store, *claims, cells=cells(3), looks=[3, 5])
        look = read_manifest(store.study).ledger.series[0].looks[-1]
        assert ("", "c", 3) in look.absent and ("", "c", 4) in look.absent
        before = [(found.level, found.pairs) for found in judged(store, *claims, cells=cells(3), looks=[3, 5]).verdicts]
        after = [(found.level, found.pairs) for found in judged(store, *claims, cells=cells(5), looks=[3, 5]).verdicts]
        assert before == after and after[1][1] == 3


class TestWhatIsWaitedFor:
    def test_the_arm_that_sets_the_target_of_a_time(self, store: Store) -> None:
        """Else a claim about c and a is judged, and its times of later seeds join the look when b ends."""
        store.metrics, store.seeds = METRICS, range(6)
        derive = {"derived/t": {"time_to": "val/loss", "value": {"arm": "b"}, "interpolate": True}}
        claim = {"text": "sooner", "lower": {"arm": "c", "than": "a", "metric": "derived/t", "margin": 0}}
        ends = {"b": 2.0, "a": 1.6, "c": 1.5}

        def write(arm: str, seed: int) -> None:
            end = ends[arm] + 0.02 * NOISE[1 + ARMS.index(arm), seed] / 0.05
            curve = [(step, 3 - (3 - end) * step / 2000) for step in range(100, 2100, 100)]
            store.write_trial(arm, seed, {"val/loss": end}, history={"val/loss": curve})

        for seed in range(6):
            write("a", seed), write("c", seed)
        for seed in range(5):
            shutil.rmtree(store.directory("b", seed))
        assert levels(store, claim, derive=derive, arms=("b", "a", "c")) == [(pytest.approx(0.04), 0)]
        assert errors(store) == []
        for seed in range(6):
            write("b", seed)
        assert levels(store, claim, derive=derive, arms=("b", "a", "c")) == [(0.04, 6)]

    def test_the_first_of_the_looks_that_a_study_declares(self, store: Store) -> None:
        """A report in between would take a whole share of the error that its looks have."""
        for count in (2, 3, 5):
            cells = [
                {"arm": arm, "seed": seed, "trial": store.trial(arm, seed)} for arm in ARMS for seed in range(count)
            ]
            judged(store, better("a", 0.0), cells=cells, looks=[3, 5])
            assert errors(store) == {2: [], 3: [[0.02]], 5: [[0.02, 0.02]]}[count]


class TestWhenClaimsWereStated:
    def test_trials_that_were_judged_and_then_deleted_were_seen(self, store: Store) -> None:
        state(store, better("a"))
        note(store, better("a"))
        note(store, better("a"), better("c", 0.4))
        for arm in ("b", "c"):
            for seed in range(5):
                shutil.rmtree(store.directory(arm, seed))
        state(store, better("a"), better("c", 0.3))
        train(store, ["b", "c"], range(5))
        assert AFTERWARDS in note(store, better("a"), better("c", 0.3)).verdicts[1].qualifiers

    def test_a_table_marks_a_claim_whose_arm_trained_something_else_in_between(self, store: Store) -> None:
        for seed in range(5):
            shutil.rmtree(store.directory("d", seed))
        state(store, better("c"), **trained(store, {}))
        state(store, better("c"), **trained(store, {"c": "d"}))
        train(store, ["d"], range(5))
        report = note(store, better("c"), **trained(store, {}))
        assert AFTERWARDS in report.verdicts[0].qualifiers
        again = read_again(store, report.records)
        assert AFTERWARDS in judge_all(claims_of(again.manifest), again)[""][0].qualifiers

    def test_a_claim_that_is_added_to_a_published_table_was_stated_after_its_results(self, store: Store) -> None:
        for path in (store.runs / "trials").iterdir():
            shutil.rmtree(path)
        state(store, better("a"))
        train(store, ARMS, range(5))
        report = note(store, better("a"))
        again = read_again(store, report.records, better("a"), better("c", 0.4))
        first, second = judge_all(claims_of(again.manifest), stated_later(again))[""]
        assert first.qualifiers == () and second.outcome == "supported" and AFTERWARDS in second.qualifiers

    def test_nothing_is_marked_in_a_table_that_tells_of_no_claim(self, store: Store) -> None:
        again = read_again(store, judged(store, better("c")).records, better("c"))
        assert stated_later(again) is again


def test_later_seeds_that_contradict_are_said_where_another_comparison_has_none(store: Store) -> None:
    claim = {"text": "c", "better": {"arm": "c", "than": ["b", "a"], "metric": "val/loss", "margin": 0.2}}
    assert judged(store, claim).verdicts[0].outcome == "supported"
    store.seeds = range(12)
    train(store, ["b", "d"], range(5, 12))
    train(store, ["a"], range(5, 12), status="failed")
    for seed in range(5, 12):
        store.write_trial("c", seed, {"val/loss": 4.0 + NOISE[1, seed]})
    (found,) = judged(store, claim).verdicts
    assert found.outcome == "supported" and any("but all 12 seeds together" in each for each in found.qualifiers)


def test_published_looks_are_adopted_beside_those_that_trials_remember(store: Store) -> None:
    judged(store, better("a"))
    report = judged(store, better("a"), better("c", 0.45))
    read_again(store, report.records)
    for path in (store.runs / "trials").glob(f"*/{JUDGED}"):
        path.unlink()
    shutil.rmtree(store.study)
    judged(replace(store, name="98_other", manifest={}), better("c", 0.45))
    store.claims = [better("a"), better("c", 0.45)]
    store.manifest = {"ledger": Ledger().to_json(), "settings": [{"arm": arm, "id": f"id of {arm}"} for arm in ARMS]}
    store.write_manifest()
    adopt_looks(store.study, store.runs, read_manifest(store.study), store.root / "results.csv")
    assert errors(store) == [[0.04, 0.005]]
    build(store.study, store.runs, draw=False)
    assert errors(store) == [[0.04, 0.005, 0.04]], "the other folder's look at c is counted too"
    adopt_looks(store.study, store.runs, read_manifest(store.study), store.root / "results.csv")
    assert errors(store) == [[0.04, 0.005, 0.04]]


def test_looks_that_trials_remember_are_not_adopted_twice(store: Store) -> None:
    report = judged(store, better("c"))
    read_again(store, report.records)
    shutil.rmtree(store.study)
    store.manifest = {"ledger": Ledger().to_json(), "settings": [{"arm": arm, "id": f"id of {arm}"} for arm in ARMS]}
    store.write_manifest()
    adopt_looks(store.study, store.runs, read_manifest(store.study), store.root / "results.csv")
    build(store.study, store.runs, draw=False)
    assert errors(store) == [[0.04]]


def test_a_claim_is_identified_by_which_arm_trains_what(store: Store) -> None:
    report = judged(store, better("a", than="c"), **trained(store, {}))
    manifest = report.records.manifest
    swapped = {("a", ""): "id of c", ("c", ""): "id of a", ("b", ""): "id of b", ("d", ""): "id of d"}
    (claim,) = claims_of(manifest)
    here, there = (identify(claim, "", each, {}).split(".") for each in (manifest, replace(manifest, settings=swapped)))
    assert here[:4] == there[:4] and here[4] != there[4]


def asked_of(records: Any, *claims: Mapping[str, Any]) -> Any:
    """A manifest that says what is asked of a table, and no more."""
    manifest = records.manifest
    return replace(manifest, cells=(), seeds=(), settings={}, ledger=Ledger(), claims=claims or manifest.claims)


def read_again(store: Store, records: Any, *claims: Mapping[str, Any]) -> Any:
    """The records of a study as its published table holds them."""
    path = look_path(claims_of(records.manifest), records)
    stated = path.published_statements(records.manifest.ledger)
    (store.root / "results.csv").write_text(results_csv(records, ["val/loss"], path.published, stated))
    return read_results(store.root / "results.csv", asked_of(records, *claims))


def test_a_look_without_values_is_read(store: Store) -> None:
    assert Look.from_json(Look(0.04, {0: ("t",)}, claims="a.b").to_json()).claims == "a.b"


class TestWhatIsTheSameClaim:
    """How a claim is written, or where else it is made, takes no error again and brings no mark."""

    def test_the_order_of_the_weights_of_a_contrast(self, store: Store) -> None:
        def claim(weights: dict[str, float]) -> dict[str, Any]:
            return {"text": "t", "contrast": {"weights": weights, "metric": "val/loss", "below": -0.3}}

        assert levels(store, claim({"c": 1, "b": -1})) == [(0.04, 5)]
        assert levels(store, claim({"b": -1, "c": 1})) == [(0.04, 5)]
        assert levels(store, claim({"b": 1, "c": -1})) == [(0.005, 5)], "other weights are another claim"

    def test_but_not_the_order_of_a_trend(self, store: Store) -> None:
        def claim(*arms: str) -> dict[str, Any]:
            return {"text": "t", "trend": {"arms": list(arms), "metric": "val/loss", "below": 0}}

        assert levels(store, claim("b", "a", "c")) == [(0.04, 5)]
        assert levels(store, claim("c", "a", "b"))[0][0] < 0.04

    def test_a_condition_that_is_added_where_the_claim_is_limited_to_some(self, tmp_path: Path) -> None:
        store = Store(tmp_path, {"b": [], "a": []}, "b", ["val/loss"], seeds=range(5))
        claim = {**better("a"), "at": {"size": "nano"}}

        def at(*values: int) -> dict[str, Any]:
            known = {
                f"size={size},lr={lr}": {"size": size, "lr": str(lr)} for size in ("nano", "small") for lr in values
            }
            cells = [
                {"arm": arm, "seed": seed, "condition": name, "trial": store.trial(arm, seed + 10 * number)}
                for number, name in enumerate(sorted(known, key=lambda each: each.rpartition("=")[2]))
                for arm in ("b", "a")
                for seed in range(5)
            ]
            settings = [{"arm": arm, "condition": name, "id": arm + name} for arm in ("b", "a") for name in known]
            return {"conditions": known, "cells": cells, "settings": settings}

        state(store, claim, **at(1, 2))
        for place in range(60):
            for arm in ("b", "a"):
                loss = VALUES[arm] - (arm == "a") + NOISE[ARMS.index(arm), place % 20]
                store.write_trial(arm, place % 10, {"val/loss": loss}, place=place)
        note(store, claim, **at(1, 2))
        report = note(store, claim, **at(1, 2, 3))
        first, second, new = (view.verdicts[0] for view in report.views if "nano" in view.condition)
        assert (first.qualifiers, second.qualifiers, new.qualifiers) == ((), (), (AFTERWARDS,))
        assert max(first.level, second.level) == pytest.approx(0.04) and new.level == pytest.approx(0.005)


class TestWhereATrialRan:
    """The digest holds it, since trials of two environment classes are never compared."""

    def test_trials_with_equal_values_that_ran_elsewhere_are_judged_at_the_next_look(self, store: Store) -> None:
        assert levels(store, better("c")) == [(0.04, 5)]
        for arm in ("b", "c"):
            for seed in range(5):
                value = {"val/loss": VALUES[arm] + noise(arm, seed)}
                store.write_trial(arm, seed, value, environment=ENVIRONMENT | {"threads": 2})
        assert levels(store, better("c")) == [(0.005, 5)]

    def test_one_that_is_cut_off_at_the_value_that_it_had_is_another(self, tmp_path: Path) -> None:
        """A time of 1000 steps that was reached, and one of 1000 at which it was cut off, are the same number."""
        store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", METRICS, seeds=range(5))
        derive = {"derived/t": {"time_to": "val/loss", "value": 1.0}}
        claim = {"text": "t", "reaches": {"arm": "c", "metric": "derived/t", "value": 1000, "share": 0.5}}

        def write(arm: str, last: float) -> None:
            for seed in range(5):
                curve = [(100, 2.0), (900, 1.5), (1000, last)]
                store.write_trial(arm, seed, {"val/loss": last}, history={"val/loss": curve}, steps=1000)

        write("b", 0.9)
        write("c", 0.9)
        assert judged(store, claim, derive=derive).verdicts[0].outcome == "supported"
        write("c", 1.1)
        assert levels(store, claim, derive=derive) == [(0.005, 5)]


class TestExactClaims:
    """Arithmetic decides them, which does not ask how many were tried."""

    claim: Mapping[str, Any] = {
        "text": "t",
        "better": {"arm": "c", "than": "b", "metric": "val/accuracy", "margin": 0},
    }

    def study(self, tmp_path: Path, seeds: int = 2) -> Store:
        store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/accuracy"], seeds=range(seeds))
        for arm in ARMS:
            for seed in range(2):
                store.write_trial(arm, seed, {"val/accuracy": 1.0 if arm == "c" else 0.5})
        return store

    def test_one_that_is_said_to_be_exact_after_its_results_were_seen_says_so(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        assert note(store, self.claim).verdicts[0].outcome == "undecided"
        (found,) = note(store, self.claim, exact=["val/accuracy"]).verdicts
        assert (found.outcome, found.qualifiers) == ("supported", (AFTERWARDS,))

    def test_not_where_it_was_said_before(self, tmp_path: Path) -> None:
        store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/accuracy"], seeds=range(2))
        state(store, self.claim, exact=["val/accuracy"])
        self.study(tmp_path)
        (found,) = note(store, self.claim, exact=["val/accuracy"]).verdicts
        assert (found.outcome, found.qualifiers) == ("supported", ())

    @pytest.mark.parametrize(("here", "there"), [(0.8, 0.7), (0.3, 0.2), (1000000.3, 1000000.2)])
    def test_rounding_leaves_no_doubt_at_an_edge(self, tmp_path: Path, here: float, there: float) -> None:
        """Each difference is .1, and not more, though floats say .1000…1 and .0999…8."""
        store = Store(tmp_path, {"b": [], "a": []}, "b", ["val/loss"], seeds=range(2))
        for seed in range(2):
            store.write_trial("a", seed, {"val/loss": here})
            store.write_trial("b", seed, {"val/loss": there})
        of = {"arm": "a", "than": "b", "metric": "val/loss"}
        weights = {"weights": {"a": 1, "b": -1}, "metric": "val/loss"}
        claims = [{"text": "t", "higher": {**of, "margin": margin}} for margin in (0.1, 0.0999)]
        claims += [
            {"text": "t", "contrast": {**weights, "above": 0.1}},
            {"text": "t", "contrast": {**weights, "below": 0.1}},
        ]
        found = judged(store, *claims, arms=("b", "a"), exact=["val/loss"]).verdicts
        assert [each.outcome for each in found] == ["refuted", "supported", "refuted", "refuted"]


def test_a_share_that_reaches_a_value_beyond_the_horizon_is_not_known(tmp_path: Path) -> None:
    """Another arm's shorter training cuts all times off; that tells nothing of whether this one gets there."""
    store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", METRICS, seeds=range(8))
    derive = {"derived/t": {"time_to": "val/loss", "value": 1.0, "unit": "seconds"}}

    def write(arm: str, seconds: float, step: int) -> None:
        for seed in range(8):
            curve = [(at, 1.0 if at >= step else 2.0) for at in range(100, 2100, 100)]
            store.write_trial(arm, seed, {"val/loss": 1.0}, history={"val/loss": curve}, seconds=seconds)

    def found(value: float, *arms: str, **changes: Any) -> Any:
        body = {"arm": "c", "metric": "derived/t", "value": value, "share": 0.6, **changes}
        return judged(store, {"text": "t", "reaches": body}, arms=arms, derive=derive).verdicts[0]

    write("b", 20.0, 1000)
    write("c", 20.0, 1200)
    assert found(15.0, "b", "c").outcome == "supported"
    write("d", 10.5, 500)
    short = found(15.0, "b", "c", "d")
    assert (
        short.outcome == "undecided"
        and "the shortest training of all arms cuts derived/t off at 10.5" in short.notes[-1]
    )
    assert found(10.5, "b", "c", "d").outcome == "refuted", "it is known not to be there by then"
    own = found(10.5, "b", "c", "d", arm="d")
    assert own.contrasts[0].estimate == ShareEstimate(8, 8), "and of one that is there it is known too"


def test_of_two_looks_each_has_its_own_error_over_items(tmp_path: Path) -> None:
    """Noise of each seed on its items averages out over more seeds, which changes nothing at a look before."""
    store = Store(tmp_path, {"b": [], "a": []}, "b", ["val/loss", "test/loss"], seeds=range(5))
    evaluated = {"val": {"items": 40, "fingerprint": "x"}, "test": {"items": 40, "fingerprint": "y"}}
    claim = {"text": "t", "contrast": {"weights": {"a": {"val/loss": -1, "test/loss": 1}}, "above": 0.05}}
    draw = np.random.default_rng(3)

    def train_on(seeds: range) -> None:
        for seed in seeds:
            for arm in ("b", "a"):
                losses = {"val": 2 + draw.normal(0, 0.002), "test": 2.12 + draw.normal(0, 0.002)}
                metrics = {f"{split}/loss": loss for split, loss in losses.items()}
                folder = store.write_trial(arm, seed, metrics, evaluation=evaluated)
                noisy = {split: loss + 0.5 * draw.normal(0, 1, 40) for split, loss in losses.items()}
                write_items(folder / "items.npz", {split: rows(each) for split, each in noisy.items()})

    train_on(range(5))
    first = judged(store, claim, arms=("b", "a"))
    assert first.verdicts[0].outcome == "undecided"
    store.seeds = range(20)
    train_on(range(5, 20))
    second = judged(store, claim, arms=("b", "a"))
    assert errors(store) == [[0.04, 0.005]] and second.verdicts[0].level == 0.005, "the first look says what it said"

    path = tmp_path / "published"
    build(store.study, store.runs, publish_to=path)
    again = read_results(path / "results.csv", asked_of(second.records))
    assert judge_all(claims_of(again.manifest), again)[""][0].outcome == second.verdicts[0].outcome
    (path / "items.npz").unlink()
    without = read_results(path / "results.csv", asked_of(second.records))
    assert judge_all(claims_of(without.manifest), without)[""][0].outcome == "undecided"


def test_a_derived_number_behind_a_slope_is_part_of_its_claim(tmp_path: Path) -> None:
    """Else it could be derived otherwise once results are known, and nothing would say so."""
    store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss", "derived/gap"], seeds=range(5))
    claim = {"text": "t", "slope": {"over": {"b": 1, "a": 2, "c": 4}, "metric": "derived/gap", "below": 0}}
    one, other = ({"derived/gap": {"ratio": [f"val/loss@{length}", "val/loss"]}} for length in (64, 32))
    state(store, claim, derive=one)
    draw = np.random.default_rng(0)
    for number, arm in enumerate(ARMS):
        for seed in range(5):
            values = {"val/loss": 2 + draw.normal(0, 0.1), "val/loss@64": 2 + draw.normal(0, 0.1)}
            store.write_trial(arm, seed, {**values, "val/loss@32": 4 - number + draw.normal(0, 0.01)})
    assert note(store, claim, derive=one).verdicts[0].outcome == "undecided"
    (found,) = note(store, claim, derive=other).verdicts
    assert (found.outcome, found.qualifiers) == ("supported", (AFTERWARDS,))


def test_a_claim_about_a_table_that_was_published_without_any_says_that_its_results_were_seen(tmp_path: Path) -> None:
    """In a fresh clone, where the same trials come once more."""
    store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
    train(store, ARMS, range(5))
    (tmp_path / "published").mkdir()
    read_again(store, note(store).records)
    shutil.rmtree(store.runs)
    store.manifest = {"ledger": Ledger().to_json(), "settings": [{"arm": arm, "id": f"id of {arm}"} for arm in ARMS]}
    store.claims = [better("c")]
    store.write_manifest()
    adopt_looks(store.study, store.runs, read_manifest(store.study), store.root / "results.csv")
    state(store, better("c"))
    train(store, ARMS, range(5))
    (found,) = note(store, better("c")).verdicts
    assert (found.outcome, found.qualifiers) == ("supported", (AFTERWARDS,))


def test_a_claim_that_is_gone_counts_once_in_a_table_of_a_grid_too(tmp_path: Path) -> None:
    store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
    conditions = {f"size={size}": {"size": size} for size in ("s", "m")}

    def at(version: str) -> dict[str, Any]:
        cells = [
            {"arm": arm, "seed": seed, "condition": name, "trial": store.trial(arm, seed + 10 * number)}
            for number, name in enumerate(conditions)
            for arm in ("b", "a", "c")
            for seed in range(5)
        ]
        settings = [
            {"arm": arm, "condition": name, "id": arm + name + (version if arm == "a" else "")}
            for arm in ("b", "a", "c")
            for name in conditions
        ]
        return {"conditions": conditions, "cells": cells, "settings": settings}

    for place in (*range(5), *range(10, 15)):
        for arm in ("b", "a", "c"):
            store.write_trial(arm, place % 10, {"val/loss": VALUES[arm] + NOISE[ARMS.index(arm), place]}, place=place)
    judged(store, better("a"), better("c"), arms=("b", "a", "c"), **at("1"))
    report = judged(store, better("a"), better("c"), arms=("b", "a", "c"), **at("2"))
    records = read_again(store, report.records)
    again = judge_all(claims_of(records.manifest), records)
    for view in report.views:
        assert again[view.condition][1].level == pytest.approx(view.verdicts[1].level)
