"""The error is spent once on every path that people take: claims, arms, conditions and trials that come and go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import swapformer as sf
from report.store import Store
from swapformer.report.build import Report, build
from swapformer.report.statistics import sequential, statements
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.judged_values import JudgedValues
from swapformer.report.statistics.look_path import LookPath, look_path
from swapformer.report.statistics.remembered_looks import JUDGED
from swapformer.report.statistics.statements import AFTERWARDS, note_claims, note_seen
from swapformer.results.ledger import Ledger, Look, Series, look_rows, looks_in_rows
from swapformer.results.manifest import read_manifest
from swapformer.results.store import Store as TrialStore

NOISE = np.random.default_rng(11).normal(0, 0.05, (5, 20))
ARMS = ("b", "a", "c", "d")
VALUES = {"b": 2.0, "a": 1.99, "c": 1.5, "d": 1.98}
"""Arm c is clearly better than b; a and d are not."""


def better(arm: str, margin: float = 0.01, than: str = "b") -> dict[str, Any]:
    return {"text": f"{arm} is better", "better": {"arm": arm, "than": than, "metric": "val/loss", "margin": margin}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
    train(made, ARMS, range(5))
    return made


def noise(arm: str, seed: int) -> float:
    """What all arms share with a seed, and what is an arm's own."""
    return float(NOISE[4, seed] + NOISE[ARMS.index(arm), seed])


def train(store: Store, arms: Sequence[str], seeds: Sequence[int], status: str = "finished") -> None:
    for arm in arms:
        for seed in seeds:
            value = VALUES[arm] + noise(arm, seed)
            metrics = {"val/loss": value} if status == "finished" else {}
            store.write_trial(arm, seed, metrics, status=status)


def judged(store: Store, *claims: Mapping[str, Any], arms: Sequence[str] = ARMS, **manifest: Any) -> Report:
    """The report of a study with these claims and arms; its ledger is kept."""
    path = store.study / "manifest.json"
    ledger = {"ledger": json.loads(path.read_text())["ledger"]} if path.is_file() else {"ledger": Ledger().to_json()}
    store.claims, every = list(claims), store.arms
    cells = [{"arm": arm, "seed": seed, "trial": store.trial(arm, seed)} for arm in arms for seed in store.seeds]
    settings = [{"arm": arm, "id": f"id of {arm}"} for arm in arms]
    store.arms = {arm: every[arm] for arm in arms}
    store.manifest = ledger | {"cells": cells, "settings": settings} | manifest
    store.write_manifest()
    store.arms = every
    return build(store.study, store.runs, draw=False)


def errors(store: Store) -> list[list[float]]:
    return [[look.error for look in series.looks] for series in read_manifest(store.study).ledger.series]


def levels(report: Report) -> list[float]:
    return [verdict.level for verdict in report.verdicts]


class TestOneArmAtATime:
    def test_claims_on_one_arm_after_another_are_looks_of_one_series(self, store: Store) -> None:
        found = [judged(store, better(arm)).verdicts[0].level for arm in ("a", "c", "d")]
        assert found == pytest.approx([0.04, 0.005, 0.0025])
        assert errors(store) == [[0.04, 0.005, 0.0025]]

    def test_so_are_arms_that_come_and_go(self, store: Store) -> None:
        for arm in ("a", "c", "d"):
            judged(store, better(arm), arms=("b", arm))
        assert errors(store) == [[0.04, 0.005, 0.0025]]

    def test_so_are_claims_that_share_no_arm(self, store: Store) -> None:
        judged(store, better("a"))
        judged(store, better("d", than="c"))
        assert errors(store) == [[0.04, 0.005]]

    def test_the_planted_fault_gives_each_arm_the_first_error(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def contains(series: Series, trials: object, settings: frozenset[str]) -> bool:
            return series.settings <= settings or settings <= series.settings

        monkeypatch.setattr(Series, "is_about", contains)
        for arm in ("a", "c", "d"):
            judged(store, better(arm), arms=("b", arm))
        assert errors(store) == [[0.04], [0.04], [0.04]]

    def test_series_that_an_older_version_kept_apart_are_one(self, store: Store) -> None:
        judged(store, better("a"))
        path = store.study / "manifest.json"
        raw = json.loads(path.read_text())
        first = read_manifest(store.study).ledger.series[0]
        raw["ledger"] = Ledger((first, replace(first, looks=(replace(first.looks[0], id="other"),)))).to_json()
        path.write_text(json.dumps(raw))
        report = judged(store, better("a"), better("c"))
        assert errors(store) == [[0.04, 0.04, 0.005]] and report.verdicts[1].level == pytest.approx(0.005)

    def test_a_table_counts_them_too(self, tmp_path: Path) -> None:
        rows = [{"arm": arm, "seed": s, "loss": VALUES[arm] + noise(arm, s)} for arm in ARMS for s in range(5)]
        kept, found = tmp_path / "kept.json", []
        for arm in ("a", "c", "d"):
            claim = {**better(arm), "better": {**better(arm)["better"], "metric": "loss"}}
            report = sf.judge(pd.DataFrame(rows), "b", kept, metrics={"loss": ""}, paired=True, claims=[claim])
            found.append(report.verdicts[0].level)
        assert found == pytest.approx([0.04, 0.005, 0.0025])


class TestDeletedClaims:
    def test_taking_out_a_claim_makes_no_other_one_come_true(self, store: Store) -> None:
        judged(store, better("a"))
        both = judged(store, better("a"), better("c", 0.45)).verdicts[1]
        alone = judged(store, better("c", 0.45)).verdicts[0]
        assert (both.outcome, both.level) == (alone.outcome, alone.level) and alone.level == pytest.approx(0.005)
        assert errors(store) == [[0.04, 0.005]]

    def test_the_planted_fault_judges_a_claim_at_looks_before_it_was_stated(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        judged(store, better("a"))
        monkeypatch.setattr(LookPath, "judged", property(lambda path: (frozenset(path.units),) * len(path.looks)))
        (found,) = judged(store, better("c")).verdicts
        assert found.level == pytest.approx(0.04 / 2), "the first look's error, shared with the claim that is gone"


class TestClaimsThatAreLeftAlone:
    """The best of many claims is no better for having been left alone, whenever the others were taken out."""

    def study(self, tmp_path: Path) -> Store:
        return Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))

    def ask(self, store: Store, *claims: Mapping[str, Any], run: Sequence[int] = (), **manifest: Any) -> None:
        """As `swapformer study` does, which is stopped when trials of these seeds have ended."""
        note_seen(store.study, TrialStore(store.runs))
        TestClaimsThatAreStatedLater().state(store, *claims, **manifest)
        train(store, ARMS, run)

    every = (better("a"), better("c"), better("d"))

    def test_after_a_look_at_fewer_seeds(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=range(3))
        build(store.study, store.runs, draw=False)
        self.ask(store, better("c"), run=range(3, 5))
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert errors(store) == [[0.02, 0.02]]
        assert (found.level, found.look) in ((0.02 / 3, 3), (0.02 / 3, 5))

    def test_after_a_report_of_one_seed(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=[0])
        build(store.study, store.runs, draw=False)
        assert errors(store) == []
        self.ask(store, better("c"), run=range(1, 5))
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert errors(store) == [[0.04]] and found.level == pytest.approx(0.04 / 3)

    def test_before_any_report_once_trials_have_ended(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=range(4))
        self.ask(store, better("c"), run=[4])
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert found.level == pytest.approx(0.04 / 3)

    def test_below_the_first_look_that_is_declared(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=range(4), looks=[5])
        build(store.study, store.runs, draw=False)
        self.ask(store, better("c"), run=[4], looks=[5])
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert errors(store) == [[0.04]] and found.level == pytest.approx(0.04 / 3)

    def test_not_before_any_trial_has_ended(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        self.ask(store, *self.every)
        self.ask(store, better("c"), run=range(5))
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert found.level == pytest.approx(0.04)

    def test_nor_where_everything_trains_otherwise_now(self, tmp_path: Path) -> None:
        """A study that was tried with a few steps first has no data in common with the one that is run then."""
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=[0], settings=[{"arm": arm, "id": f"short {arm}"} for arm in ARMS])
        build(store.study, store.runs, draw=False)
        self.ask(store, better("c"), run=range(5))
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert found.level == pytest.approx(0.04)

    def test_one_that_is_made_again_is_judged_at_the_next_look(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=[0])
        build(store.study, store.runs, draw=False)
        self.ask(store, better("c"), run=range(1, 5))
        build(store.study, store.runs, draw=False)
        self.ask(store, *self.every)
        found = build(store.study, store.runs, draw=False).verdicts
        assert [each.level for each in found] == pytest.approx([0.005 / 2, 0.04 / 3, 0.005 / 2])

    def test_in_a_table_too(self, tmp_path: Path) -> None:
        rows = [{"arm": arm, "seed": s, "loss": VALUES[arm] + noise(arm, s)} for arm in ARMS for s in range(5)]
        claims = [{**each, "better": {**each["better"], "metric": "loss"}} for each in self.every]

        kept = tmp_path / "kept.json"
        for seeds, asked in ((3, claims), (5, claims[1:2])):
            table = pd.DataFrame([row for row in rows if int(str(row["seed"])) < seeds])
            sf.judge(table, "b", kept, metrics={"loss": ""}, paired=True, claims=asked)
        (series,) = json.loads(kept.read_text())["ledger"]["series"]
        assert [len(look["claims"].split()) for look in series["looks"]] == [3, 3]

    def test_at_a_look_behind_one_that_was_about_another_claim(self, tmp_path: Path) -> None:
        store = self.study(tmp_path)
        every = better("a"), better("c", 0.6), better("d")
        self.ask(store, *every, run=range(5))
        build(store.study, store.runs, draw=False)
        self.ask(store, *every, better("a", 0.2))
        build(store.study, store.runs, draw=False)
        store.seeds = range(8)
        self.ask(store, better("c", 0.6), run=range(5, 8))
        build(store.study, store.runs, draw=False)
        (series,) = read_manifest(store.study).ledger.series
        assert [len(look.claims.split()) for look in series.looks] == [3, 1, 3]

    def test_the_planted_fault_forgets_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LookPath, "taken_out", lambda *of: [])
        store = self.study(tmp_path)
        self.ask(store, *self.every, run=range(4))
        self.ask(store, better("c"), run=[4])
        (found,) = build(store.study, store.runs, draw=False).verdicts
        assert found.level == pytest.approx(0.04)


def test_a_second_set_of_claims_about_unpaired_runs_has_all_of_its_data(tmp_path: Path) -> None:
    """Runs of other labels are other seeds, so that the first look has none of the second arm's."""
    rows = [
        {"arm": arm, "seed": f"{arm}{s}", "loss": value + s / 100}
        for arm, value in (("b", 5.0), ("a", 5.0), ("c", 1.0))
        for s in range(5)
    ]
    kept, found = tmp_path / "kept.json", []
    for arm in ("a", "c"):
        claim = {"text": arm, "better": {"arm": arm, "than": "b", "metric": "loss", "margin": 0.1}}
        report = sf.judge(pd.DataFrame(rows), "b", kept, metrics={"loss": ""}, claims=[claim])
        found.append((report.verdicts[0].outcome, report.verdicts[0].level, report.verdicts[0].pairs))
    assert found[1] == ("supported", pytest.approx(0.005), 5)


class TestDefinitions:
    def test_a_number_that_is_derived_otherwise_is_another_claim(self, store: Store) -> None:
        claim = {"text": "t", "higher": {"arm": "a", "than": "b", "metric": "gap", "margin": 0.0}}
        store.metrics = ["val/loss", "gap"]
        for other in ("a", "b", "a"):
            derive = {"gap": {"difference": ["val/loss", "val/loss"], "note": other}}
            derive = {"gap": {"log": "val/loss"}} if other == "b" else {"gap": {"ratio": ["val/loss", "val/loss"]}}
            judged(store, claim, derive=derive)
        assert errors(store) == [[0.04, 0.005]], "and the first definition was judged before"

    def test_a_direction_that_is_turned_is_another_claim(self, tmp_path: Path) -> None:
        rows = [{"arm": arm, "seed": s, "gap": VALUES[arm] + noise(arm, s)} for arm in ("b", "c") for s in range(5)]
        kept = tmp_path / "kept.json"
        found = [
            sf.judge(pd.DataFrame(rows), "b", kept, metrics={"gap": way}, paired=True).verdicts[0].level
            for way in ("higher", "lower")
        ]
        assert found == pytest.approx([0.04, 0.005])

    def test_arms_that_train_otherwise_are_judged_anew(self, store: Store) -> None:
        """Else one would try settings under the same name, each at the first error."""
        judged(store, better("a"))
        settings = [{"arm": arm, "id": f"id of {arm}" if arm != "a" else "another"} for arm in ARMS]
        (found,) = judged(store, better("a"), settings=settings).verdicts
        assert errors(store) == [[0.04, 0.005]] and found.level == pytest.approx(0.005)


def test_claims_of_a_condition_that_is_added_are_the_next_look(store: Store) -> None:
    def cells(*conditions: str) -> dict[str, Any]:
        at = [(condition, f"size={condition}") for condition in conditions]
        return {
            "conditions": {name: {"size": size} for size, name in at},
            "cells": [
                {"arm": arm, "seed": seed, "condition": name, "trial": store.trial(of, seed)}
                for number, (_, name) in enumerate(at)
                for arm, of in (("b", "b"), ("a", ARMS[1 + number]))
                for seed in store.seeds
            ],
            "settings": [{"arm": arm, "condition": name, "id": f"{arm} {name}"} for _, name in at for arm in ARMS],
        }  # fmt: skip

    claim = better("a")
    judged(store, claim, **cells("s"))
    judged(store, claim, **cells("s", "m"))
    assert errors(store) == [[0.04, 0.005]]
    judged(store, claim, **cells("s", "m", "l"))
    assert errors(store) == [[0.04, 0.005, 0.0025]]


class TestArmsThatStillTrain:
    def late(self, store: Store, *seeds: int) -> Report:
        """A claim on c is added, of which only some trials have ended."""
        for seed in range(5):
            shutil.rmtree(store.directory("c", seed), ignore_errors=True)
        train(store, ["c"], seeds)
        return judged(store, better("a"), better("c"))

    def test_a_claim_is_judged_at_the_seeds_with_which_its_arms_have_ended(self, store: Store) -> None:
        judged(store, better("a"))
        waits = self.late(store, 0).verdicts[1]
        assert errors(store) == [[0.04]] and waits.outcome == "undecided", "one seed is no look"
        some = self.late(store, 0, 1, 2).verdicts[1]
        assert (some.level, some.pairs, some.look) == (pytest.approx(0.005), 3, 3)
        again = self.late(store, 0, 1, 2).verdicts[1]
        assert again.level == some.level and errors(store) == [[0.04, 0.005]], "the same seeds are no look"
        assert self.late(store, 0, 1, 2, 3, 4).verdicts[1].pairs in (3, 5)
        assert errors(store) == [[0.04, 0.005, 0.0025]]

    def test_the_planted_fault_judges_it_again_with_every_seed_that_ends(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All seeds of the study are taken for the claim's, whether its trials have ended or not."""
        monkeypatch.setattr("swapformer.report.statistics.look_path.OPEN", ())
        monkeypatch.setattr(
            "swapformer.report.statistics.look_path.Look", lambda *of, **more: Look(*of[:5], **more)
        )  # nothing was absent
        monkeypatch.setattr(JudgedValues, "of", lambda *of: "")
        judged(store, better("a"))
        pairs = [self.late(store, *range(count)).verdicts[1].pairs for count in (2, 3, 4)]
        assert pairs == [2, 3, 4] and errors(store) == [[0.04, 0.005]]

    def test_a_study_of_which_one_arm_waits_keeps_error_for_it(self, store: Store) -> None:
        self.late(store, 0)
        assert errors(store) == [[0.02]]
        assert self.late(store, 0, 1, 2, 3, 4).verdicts[1].level == pytest.approx(0.02)

    def test_arms_that_end_one_after_another_are_no_two_looks(self, store: Store) -> None:
        judged(store, better("a"))
        for arm, left in (("c", 2), ("d", 4)):
            for seed in range(left, 5):
                shutil.rmtree(store.directory(arm, seed))
        judged(store, better("a"), better("c"), better("d"))
        second = read_manifest(store.study).ledger.series[0].looks[1]
        assert len(second.claims.split()) == 2, "both are judged at the seeds that they share"
        judged(store, better("a"), better("c"), better("d"))
        assert errors(store) == [[0.04, 0.005]], "d has two seeds more, and waits for c"
        train(store, ["c"], range(2, 4))
        judged(store, better("a"), better("c"), better("d"))
        assert errors(store) == [[0.04, 0.005, 0.0025]]

    def test_a_trial_that_failed_has_ended(self, store: Store) -> None:
        train(store, ["a"], [4], status="failed")
        assert judged(store, better("a")).verdicts[0].pairs == 4 and errors(store) == [[0.04]]


def test_a_failed_trial_that_is_run_again_counts_from_the_next_look_on(store: Store) -> None:
    """A look keeps its data; judged again at the same look, they would err in 7.4 % of studies."""
    claim = better("a", 0.2)
    train(store, ["a"], [3, 4], status="failed")
    assert judged(store, claim).verdicts[0].pairs == 3
    train(store, ["a"], [3, 4])
    found = judged(store, claim).verdicts[0]
    assert errors(store) == [[0.04, 0.005]] and (found.pairs, found.level) in ((3, 0.04), (5, 0.005))
    first = read_manifest(store.study).ledger.series[0].looks[0]
    assert first.absent == (("", "a", 3), ("", "a", 4))


class TestOtherFolders:
    def other(self, store: Store) -> Store:
        return replace(store, name="98_other", manifest={})

    def test_trials_that_are_compared_again_are_the_next_look(self, store: Store) -> None:
        judged(store, better("a"))
        other = self.other(store)
        again, new = judged(other, better("a"), better("c")).verdicts
        assert errors(other) == [[0.04, 0.005]]
        assert (again.level, new.level) == (pytest.approx(0.04), pytest.approx(0.005))

    def test_a_shared_baseline_may_be_used_by_another_question(self, store: Store) -> None:
        judged(store, better("a"))
        other = self.other(store)
        judged(other, better("c"), arms=("b", "c"))
        assert errors(other) == [[0.04]]

    def test_a_deleted_folder_is_remembered_with_an_arm_more(self, store: Store) -> None:
        judged(store, better("a"), arms=("b", "a"))
        shutil.rmtree(store.study)
        judged(store, better("a"), better("c"))
        assert errors(store) == [[0.04, 0.005]]

    def test_trials_that_were_judged_twice_remember_both_looks(self, store: Store) -> None:
        judged(store, better("c"))
        judged(store, better("c"), better("c", 0.45))
        assert errors(store) == [[0.04, 0.005]]
        shutil.rmtree(store.study)
        store.manifest = {}
        judged(store, better("c", 0.3))
        assert errors(store) == [[0.04, 0.005, 0.0025]]

    def test_new_seeds_are_new_data(self, store: Store) -> None:
        judged(store, better("a"))
        other = replace(self.other(store), seeds=range(5, 10))
        train(other, ARMS, range(5, 10))
        judged(other, better("a"))
        assert errors(other) == [[0.04]]

    def test_the_same_name_of_an_arm_is_not_the_same_claim(self, store: Store) -> None:
        """Looks of other folders name arms, and another folder may call another arm so."""
        judged(store, better("c"))
        other = self.other(store)
        cells = [
            {"arm": arm, "seed": s, "trial": store.trial({"c": "a", "d": "c"}.get(arm, arm), s)}
            for arm in ("b", "c", "d")
            for s in range(5)
        ]
        settings = [
            {"arm": "b", "id": "id of b"}, {"arm": "c", "id": "id of a"}, {"arm": "d", "id": "id of c"},
        ]  # fmt: skip
        found = judged(other, better("c"), better("d"), arms=("b", "c", "d"), cells=cells, settings=settings).verdicts
        assert levels_of(found) == pytest.approx([0.0025, 0.005]) or max(levels_of(found)) <= 0.005

    def test_marks_that_are_damaged_are_left_out(self, store: Store) -> None:
        judged(store, better("a"))
        for path in (store.runs / "trials").glob(f"*/{JUDGED}"):
            path.write_text('[3, {"error": "x"}, {"id": "a"}]')
        other = self.other(store)
        judged(other, better("a"))
        assert errors(other) == [[0.04]]


def levels_of(verdicts: Sequence[Any]) -> list[float]:
    return [verdict.level for verdict in verdicts]


class TestClaimsThatAreStatedLater:
    def state(self, store: Store, *claims: Mapping[str, Any], **manifest: Any) -> None:
        """As `swapformer study` does: the manifest is written, and what is new in it is noted."""
        judged_before = store.study / "manifest.json"
        ledger = json.loads(judged_before.read_text())["ledger"] if judged_before.is_file() else Ledger().to_json()
        store.claims = list(claims)
        settings = [{"arm": arm, "id": f"id of {arm}"} for arm in ARMS]
        store.manifest = {"ledger": ledger, "settings": settings} | manifest
        store.write_manifest()
        note_claims(store.study, TrialStore(store.runs), read_manifest(store.study))

    def note(self, store: Store, *claims: Mapping[str, Any], **manifest: Any) -> Report:
        """The same, and then it is judged."""
        self.state(store, *claims, **manifest)
        return build(store.study, store.runs, draw=False)

    def test_a_claim_that_is_stated_first_is_not_marked(self, tmp_path: Path) -> None:
        store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
        train(store, ["b"], range(5))  # another study's
        self.note(store, better("c"))
        train(store, ARMS, range(5))
        report = self.note(store, better("c"))
        assert report.verdicts[0].outcome == "supported" and report.verdicts[0].qualifiers == ()
        assert not [each for each in report.caveats if "not recorded" in each]

    def test_one_that_is_stated_after_its_trials_ended_says_so(self, store: Store) -> None:
        report = self.note(store, better("c"))
        (verdict,) = report.verdicts
        assert verdict.outcome == "supported" and verdict.qualifiers == (AFTERWARDS,)
        (plain,) = report.as_dict()["verdicts"]
        assert plain["qualifiers"] == [AFTERWARDS]

    def test_later_seeds_that_decide_alike_by_themselves_take_the_mark_away(self, store: Store) -> None:
        self.note(store, better("c"))
        store.seeds = range(12)
        train(store, ARMS, range(5, 12))
        report = self.note(store, better("c"))
        late = [verdict.qualifiers for verdict in report.verdicts]
        assert AFTERWARDS in late[0], "its verdict is of the first look, at seeds that had been seen"
        fresh = replace(store, name="97_fresh", manifest={})
        for path in (store.runs / "trials").glob(f"*/{JUDGED}"):
            path.unlink()
        for arm in ARMS:
            for seed in range(5, 12):
                shutil.rmtree(fresh.directory(arm, seed))
        self.state(replace(fresh, seeds=range(12)), better("c"))
        train(fresh, ARMS, range(5, 12))
        (verdict,) = self.note(replace(fresh, seeds=range(12)), better("c")).verdicts
        assert (verdict.outcome, verdict.look) == ("supported", None) and verdict.qualifiers == ()

    @pytest.mark.parametrize(("spread", "marked"), [(0.222, True), (0.15, False)])
    def test_later_seeds_must_decide_at_the_level_that_claims_share(
        self, tmp_path: Path, spread: float, marked: bool
    ) -> None:
        """Two claims have .02 each; three later seeds with p = .030 would decide one that had the look to itself."""
        store = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(8))
        apart = [1.0, 1.001, 0.999, 1.002, 0.998, 1 - spread, 1.0, 1 + spread]

        def run(seeds: Sequence[int]) -> None:
            for seed in seeds:
                for arm, value in (("b", 3.0), ("c", 3.0 - apart[seed]), ("a", 3.0 + noise("a", seed))):
                    store.write_trial(arm, seed, {"val/loss": value})

        run(range(5))
        claims = better("c", 0.5), better("a", 0.02)
        self.state(store, *claims)
        run(range(5, 8))
        found = self.note(store, *claims).verdicts[0]
        assert (found.outcome, found.level) == ("supported", 0.02)
        assert found.qualifiers == ((AFTERWARDS,) if marked else ())

    def test_a_claim_of_an_older_version_is_not_marked_and_the_page_says_once_that_it_is_not_known(
        self, store: Store
    ) -> None:
        judged(store, better("c"))
        report = self.note(store, better("c"))
        assert report.verdicts[0].qualifiers == ()
        assert sum("Date of statement not recorded" in each for each in report.caveats) == 1

    def test_the_note_is_published_with_the_results(self, store: Store) -> None:
        from swapformer.report.results_csv import read_results, results_csv

        report = self.note(store, better("c"))
        path = store.root / "results.csv"
        looks = look_path(claims_of(report.records.manifest), report.records)
        stated = looks.published_statements(report.records.manifest.ledger)
        path.write_text(results_csv(report.records, ["val/loss"], looks.published, stated))
        asked = replace(report.records.manifest, cells=(), seeds=(), settings={}, ledger=Ledger())
        again = read_results(path, asked)
        claims = claims_of(again.manifest)
        (verdict,) = sequential.judge_all(claims, again)[""]
        assert verdict.outcome == "supported" and verdict.qualifiers == (AFTERWARDS,)

    def test_a_table_says_once_that_its_results_were_at_hand(self) -> None:
        rows = [{"arm": arm, "seed": s, "loss": VALUES[arm] + noise(arm, s)} for arm in ARMS for s in range(5)]
        report = sf.judge(pd.DataFrame(rows), "b", metrics={"loss": ""}, paired=True)
        assert sum("stated with the results at hand" in each for each in report.caveats) == 1
        assert not any(verdict.qualifiers for verdict in report.verdicts)

    def test_the_planted_fault_marks_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(statements, "_ended", lambda manifest, store, ledger: set())
        assert self.note(store, better("c")).verdicts[0].qualifiers == ()


class TestReservedError:
    def test_half_of_it_waits_for_later_claims(self, store: Store) -> None:
        for claims in ([better("a")], [better("a"), better("c")], [better("a"), better("c"), better("d")]):
            judged(store, *claims, later_claims=True)
        assert errors(store) == [[0.02, 0.015, 0.0075]]

    def test_asking_for_it_later_gives_nothing_back(self, store: Store) -> None:
        judged(store, better("a"))
        judged(store, better("a"), better("c"), later_claims=True)
        assert errors(store) == [[0.04, 0.005]]


def test_a_verdict_of_fewer_seeds_says_whether_all_of_them_support_it(store: Store) -> None:
    judged(store, better("c", 0.3))
    store.seeds = range(8)
    train(store, ARMS, range(5, 8))
    assert judged(store, better("c", 0.3)).verdicts[0].qualifiers == ("and all 8 seeds agree",)
    for seed in range(5, 8):
        store.write_trial("c", seed, {"val/loss": 4.0})
    (said,) = judged(store, better("c", 0.3)).verdicts[0].qualifiers
    assert said.startswith("but all 8 seeds together no longer decide it (")


@pytest.mark.parametrize("error", [0.0, -1.0, 7, "x"])
def test_a_look_without_a_possible_error_is_noticed_and_stops_nothing(store: Store, error: object) -> None:
    judged(store, better("a"))
    path = store.study / "manifest.json"
    raw = json.loads(path.read_text())
    raw["ledger"]["series"][0]["looks"][0]["error"] = error
    path.write_text(json.dumps(raw))
    report = build(store.study, store.runs, draw=False)
    assert any("cut or edited" in each for each in report.caveats)
    assert report.verdicts[0].level <= 0.04


def test_looks_are_the_same_in_a_table_and_back() -> None:
    looks = (
        Look(0.04, {0: (), 1: (), 2: ()}, ("cpu",), "x.y z"),
        Look(0.005, {3: ()}, ("cpu",), "v", (0, 3), (("size=s", "a", 3),)),
        Look(0.0025, {}, ("cpu",), "w", None, ()),
    )
    rows = look_rows(looks, "")
    assert looks_in_rows(rows) == (looks, "")
    assert Ledger.from_json(Ledger((Series(looks),), "", {"x": (1,), "y": None}).to_json()) == Ledger(
        (Series(looks),), "", {"x": (1,), "y": None}
    )


class TestWhatHuntersFound:
    """Paths on which a look was lost, taken twice or given the wrong seeds."""

    def test_looks_at_trials_that_are_run_again_are_read_back_from_a_table(self, store: Store) -> None:
        """Several looks then have the same number of seeds and the same claims."""
        from swapformer.report.results_csv import read_results, results_csv

        store.seeds = range(6)
        train(store, ARMS, [5])
        claim = better("c", 0.48)
        train(store, ["c"], [2, 3, 4, 5], status="failed")
        judged(store, claim)
        train(store, ["c"], [2, 3, 4])
        judged(store, claim)
        train(store, ["c"], [5])
        report = judged(store, claim)
        assert errors(store) == [[0.04, 0.005, 0.0025]]
        path = store.root / "results.csv"
        looks = look_path(claims_of(report.records.manifest), report.records).published
        path.write_text(results_csv(report.records, ["val/loss"], looks))
        asked = replace(report.records.manifest, cells=(), seeds=(), settings={}, ledger=Ledger())
        again = read_results(path, asked)
        assert [look.error for look in again.manifest.ledger.series[0].looks] == [0.04, 0.005, 0.0025]
        (verdict,) = sequential.judge_all(claims_of(again.manifest), again)[""]
        (first,) = report.verdicts
        assert (verdict.outcome, verdict.level, verdict.pairs) == (first.outcome, first.level, first.pairs)
        assert not look_path(claims_of(again.manifest), again).added, "reading is no look"

    def test_arms_that_train_otherwise_are_no_older_claims_in_a_table_either(self, store: Store) -> None:
        judged(store, better("a"))
        settings = [{"arm": arm, "id": f"id of {arm}" if arm != "a" else "another"} for arm in ARMS]
        report = judged(store, better("a"), settings=settings)
        first, second = look_path(claims_of(report.records.manifest), report.records).published
        assert first.claims.startswith("gone") and not second.claims.startswith("gone")

    def test_a_look_of_another_folder_has_the_seeds_that_it_had_there(self, store: Store) -> None:
        store.seeds = range(8)
        train(store, ARMS, range(5, 8))
        five, other = replace(store, name="A", seeds=range(5)), replace(store, name="B", manifest={})
        judged(five, better("a", 0.0))
        judged(other, better("c"))
        (found,) = judged(other, better("a", 0.0)).verdicts
        assert sum(map(sum, errors(other))) <= 0.0501 or len(errors(other)[0]) == 3
        assert (found.pairs, found.look) == (5, 5) or found.level <= 0.005

    def test_a_look_that_adds_seeds_is_remembered_by_all_of_its_trials(self, store: Store) -> None:
        judged(store, better("a"))
        store.seeds = range(8)
        train(store, ARMS, range(5, 8))
        judged(store, better("a"), better("c"))
        shutil.rmtree(store.study)
        store.manifest, store.seeds = {}, range(5)
        (found,) = judged(store, better("c")).verdicts
        assert errors(store) == [[0.005, 0.035]] and found.level == 0.035 / 2, "the claim on a was beside it"

    def test_some_forty_looks_end_in_no_error_and_give_nothing_back(self, store: Store) -> None:
        for number in range(42):
            report = judged(store, better("a", 0.001 * number))
        spent = errors(store)[0]
        assert len(spent) == 42 and sum(spent) <= 0.05 + 1e-6 and min(spent) > 0
        assert report.verdicts[0].level < 1e-6

    def test_a_verdict_says_whether_trials_that_were_run_again_agree(self, store: Store) -> None:
        train(store, ["c"], [3, 4], status="failed")
        assert judged(store, better("c", 0.2)).verdicts[0].outcome == "supported"
        for seed in (3, 4):
            store.write_trial("c", seed, {"val/loss": 4.0 + seed})
        (said,) = judged(store, better("c", 0.2)).verdicts[0].qualifiers
        assert said.startswith("but all 5 seeds together no longer decide it (")

    def test_a_verdict_that_all_seeds_contradict_says_so(self, store: Store) -> None:
        judged(store, better("c", 0.3))
        store.seeds = range(12)
        train(store, ["b"], range(5, 12))
        for seed in range(5, 12):
            store.write_trial("c", seed, {"val/loss": 30.0 + noise("c", seed)})
        (said,) = judged(store, better("c", 0.3)).verdicts[0].qualifiers
        assert said == "but all 12 seeds together say the opposite" or said.startswith("but all 12 seeds together no")

    def test_a_table_that_gets_a_condition_keeps_its_looks(self, tmp_path: Path) -> None:
        rows = [
            {"arm": arm, "seed": s, "size": size, "metric": "loss", "value": VALUES[arm] + noise(arm, s) + more}
            for size, more in (("s", 0), ("m", 1)) for arm in ("b", "c") for s in range(5)
        ]  # fmt: skip
        table, kept = pd.DataFrame(rows), tmp_path / "kept.json"
        for part in (table[table["size"] == "s"], table):
            report = sf.judge(part, "b", kept, metrics={"loss": ""}, paired=True)
        found = json.loads(kept.read_text())["ledger"]["series"]
        assert [[look["error"] for look in series["looks"]] for series in found] == [[0.04, 0.005]]
        assert max(verdict.level for verdict in report.verdicts) <= 0.005

    def test_an_exact_claim_takes_no_error(self, store: Store) -> None:
        exact = {"text": "e", "lower": {"arm": "c", "than": "b", "metric": "bytes", "margin": 0}}
        store.metrics = ["val/loss", "bytes"]
        for arm in ARMS:
            for seed in range(5):
                metrics = {"val/loss": VALUES[arm] + noise(arm, seed), "bytes": 10.0 - (arm == "c")}
                store.write_trial(arm, seed, metrics)
        assert judged(store, exact, exact=["bytes"]).verdicts[0].outcome == "supported" and errors(store) == []
        both = judged(store, exact, better("c"), exact=["bytes"]).verdicts
        assert errors(store) == [[0.04]] and both[1].level == pytest.approx(0.04)
