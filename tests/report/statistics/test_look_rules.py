"""Rules of looks one at a time: each is held where leaving it out would change an error or a verdict without a word."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import swapformer as sf
from report.statistics import test_paths as paths
from report.statistics.test_paths import ARMS, better, errors, judged, noise, store, train
from report.store import Store
from swapformer.report.build import build
from swapformer.report.results_csv import results_csv
from swapformer.report.statistics import holm, remembered_looks, statements
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claim_identity import identify
from swapformer.report.statistics.evidence import gather
from swapformer.report.statistics.kept_looks import adopt_looks
from swapformer.report.statistics.look_path import LookPath, look_path
from swapformer.report.statistics.remembered_looks import JUDGED
from swapformer.report.statistics.statements import AFTERWARDS, note_claims
from swapformer.results.ledger import Ledger, Look
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.store import Store as TrialStore

__all__ = ["store"]  # a fixture


def manifest(**changes: Any) -> Manifest:
    """A study of two arms with one claim."""
    of = {
        "name": "s", "scale": "", "question": "", "baseline": "b", "metrics": ("val/loss",),
        "arms": {"b": (), "a": ()}, "seeds": (0, 1), "claims": (better("a"),), "cells": (),
    }  # fmt: skip
    return Manifest(**{**of, **changes})


def identity(**changes: Any) -> str:
    made = manifest(**changes)
    return identify(claims_of(made)[0], "", made, {"val/loss": "lower"})


class TestIdentity:
    def test_a_range_is_part_of_a_claim(self) -> None:
        assert identity(ranges={"val/loss": (0.0, 9.0)}) != identity()
        assert identity(ranges={"other": (0.0, 9.0)}) == identity(), "of a metric that is not in it, it is none"

    def test_what_a_derived_number_is_derived_of_is_part_of_a_claim(self) -> None:
        def derived(inner: str) -> str:
            claim = {"text": "t", "better": {"arm": "a", "than": "b", "metric": "val/outer", "margin": 0}}
            derive = {"val/outer": {"log": "val/inner"}, "val/inner": {"log": inner}}
            made = manifest(claims=(claim,), derive=derive, metrics=("val/loss", "val/outer"))
            return identify(claims_of(made)[0], "", made, {})

        assert derived("val/loss") != derived("val/accuracy")


class TestErrors:
    def test_a_p_value_that_equals_its_limit_but_for_rounding_decides(self) -> None:
        p = 0.2**3
        assert p > 0.04 / 5, "or this would be no test"
        assert holm.holm_levels([p, 0.009, 0.5, 0.6, 0.7], 0.04)[1] == pytest.approx(0.01), "the next has its turn"

    def test_an_adjusted_p_value_compares_with_five_percent_at_every_look(self, store: Store) -> None:
        judged(store, better("a"))
        second = judged(store, better("a"), better("c", 0.45)).verdicts[1]
        assert second.level == pytest.approx(0.005)
        assert second.p_adjusted == pytest.approx(min(1.0, second.p * 0.05 / 0.005))

    def test_a_claim_of_an_older_version_that_is_gone_counts_in_each_condition(self) -> None:
        units = {("s", 0): "x.1", ("m", 0): "x.2"}
        look = Look(0.04, {0: (), 1: ()}, (), "x.1 old")
        path = LookPath((look,), 1, None, units, {}, {}, lambda unit, seeds, absent: "")
        assert path.gone == (2,), "one digest stood for a claim in all conditions"
        assert replace(path, looks=(replace(look, claims="x.1 other.3"),)).gone == (1,)

    def test_looks_of_other_folders_come_in_the_order_of_what_they_took(self) -> None:
        looks = [Look(error, {seed: ("t",)}, (), "c", id=str(error)) for error, seed in ((0.005, 2), (0.04, 1))]
        assert [look.error for look in remembered_looks._in_order(looks)] == [0.04, 0.005]

    def test_seeds_that_a_later_look_shares_are_added_by_the_first(self) -> None:
        looks = [Look(0.005, {1: ("t",), 2: ("t",)}, (), "c"), Look(0.04, {1: ("t",)}, (), "c")]
        assert [sorted(look.trials) for look in remembered_looks._in_order(looks)] == [[1], [2]]

    def test_a_claim_that_is_withdrawn_asks_for_no_seeds(self, store: Store) -> None:
        (undecided,) = judged(store, better("a", 0.06)).verdicts
        assert undecided.outcome == "undecided" and undecided.needed is not None
        (withdrawn,) = judged(store, {**better("a", 0.06), "withdrawn": "its metric saturates"}).verdicts
        assert withdrawn.outcome == "undecided" and withdrawn.needed is None


class TestWhatIsKeptOfALook:
    def test_a_rerun_that_diverges_is_a_result_too(self, store: Store) -> None:
        """A trial that failed and then diverged has come to an end: its claim is judged again, at the next look."""
        train(store, ["a"], [4], status="failed")
        judged(store, better("a"))
        train(store, ["a"], [4], status="diverged")
        judged(store, better("a"))
        assert errors(store) == [[0.04, 0.005]]

    def test_an_absent_cell_is_left_out_of_a_claim_that_spans_conditions(self, tmp_path: Path) -> None:
        """A run that is added later to one condition changes nothing at the look before."""
        rows = [
            {
                "arm": arm, "seed": s, "size": size, "metric": "loss",
                "value": 2.0 + noise(arm, s - 6 * more) + more * (arm == "c"),
            }
            for size, more in (("s", 0), ("m", -1)) for arm in ("b", "c") for s in range(6)
        ]  # fmt: skip
        claim = {
            "text": "c gains more in m than in s",
            "contrast": {
                "weights": {
                    "c with size=m": 1, "c with size=s": -1, "b with size=m": -1, "b with size=s": 1,
                },
                "metric": "loss", "below": -0.5,
            },
        }  # fmt: skip
        asked: dict[str, Any] = {"metrics": {"loss": ""}, "paired": True, "claims": [claim]}
        table, kept = pd.DataFrame(rows), tmp_path / "kept.json"
        late = (table["size"] == "m") & (table["arm"] == "c") & (table["seed"] == 5)
        first = sf.judge(table[~late], "b", kept, **asked).verdicts[0]
        again = sf.judge(table, "b", kept, **asked).verdicts[0]
        assert (first.outcome, first.pairs) == ("supported", 5)
        assert (again.outcome, again.pairs, again.level) == (first.outcome, 5, first.level)

    def test_both_arms_of_a_claim_are_looked_up_for_what_they_remember(self, store: Store) -> None:
        judged(store, better("c"))
        for seed in range(5):  # the first arm's trials forget
            (store.directory("b", seed) / JUDGED).unlink()
        other = replace(store, name="98_other", manifest={})
        judged(other, better("c"))
        assert errors(other) == [[0.04]], "one arm of two does not remember a comparison"
        (found,) = remembered_looks.remembered(
            TrialStore(store.runs), [[{seed: store.trial("c", seed) for seed in range(5)}]], []
        )
        assert sorted(found.trials) == [0, 1, 2, 3, 4] and found.trials[0] == (store.trial("c", 0),)

    def test_a_remembered_look_knows_the_trials_of_all_arms(self, store: Store) -> None:
        judged(store, better("c"))
        arms = [{seed: store.trial(arm, seed) for seed in range(5)} for arm in ("b", "c")]
        (found,) = remembered_looks.remembered(TrialStore(store.runs), [arms], [])
        assert set(found.trials[2]) == {store.trial("b", 2), store.trial("c", 2)}

    def test_looks_that_a_study_adopts_keep_when_its_claims_were_stated(self, store: Store) -> None:
        report = paths.TestClaimsThatAreStatedLater().note(store, better("c"))
        published = store.root / "results.csv"
        looks = look_path(claims_of(report.records.manifest), report.records)
        stated = looks.published_statements(report.records.manifest.ledger)
        published.write_text(results_csv(report.records, ["val/loss"], looks.published, stated))
        for path in (store.runs / "trials").glob(f"*/{JUDGED}"):
            path.unlink()
        plain = read_manifest(store.study)
        raw = json.loads((store.study / "manifest.json").read_text())
        (store.study / "manifest.json").write_text(json.dumps(raw | {"ledger": Ledger().to_json()}))
        adopt_looks(store.study, store.runs, plain, published)
        ledger = read_manifest(store.study).ledger
        assert [look.error for each in ledger.series for look in each.looks] == [0.04]
        assert list(ledger.stated.values()) == [(0, 1, 2, 3, 4)]


class TestArmsThatStillTrain:
    def test_they_hold_back_those_that_ended_with_more_seeds(self, store: Store) -> None:
        """Or each report in between would be a look at what has ended."""
        for seed in (3, 4):
            shutil.rmtree(store.directory("c", seed))
        both = judged(store, better("a"), better("c")).verdicts
        assert [verdict.pairs for verdict in both] == [3, 3] and errors(store) == [[0.02]]

    def test_so_does_an_arm_without_news(self, store: Store) -> None:
        """The next seeds of one arm wait for the other, which was judged at the same seeds."""
        for seed in (3, 4):
            shutil.rmtree(store.directory("a", seed))
            shutil.rmtree(store.directory("c", seed))
        judged(store, better("a"), better("c"))
        train(store, ["a"], [3, 4])
        judged(store, better("a"), better("c"))
        assert errors(store) == [[0.02]], "the seeds of a are looked at together with those of c"
        train(store, ["c"], [3, 4])
        judged(store, better("a"), better("c"))
        assert errors(store) == [[0.02, 0.02]]


class TestStatements:
    def test_what_one_of_two_arms_did_before_tells_nothing(self, tmp_path: Path) -> None:
        made = Store(tmp_path, {arm: [] for arm in ARMS}, "b", ["val/loss"], seeds=range(5))
        train(made, ["b", "a"], range(5))
        paths.TestClaimsThatAreStatedLater().state(made, better("c"), better("a"))
        ledger = read_manifest(made.study).ledger
        assert sorted(map(str, ledger.stated.values())) == ["()", "(0, 1, 2, 3, 4)"]

    def test_later_seeds_must_decide_at_the_error_of_their_look(self, store: Store) -> None:
        """A verdict at a level of 4 % is not confirmed by later seeds at 4 %, where its look took less."""
        report = paths.TestClaimsThatAreStatedLater().note(store, better("c", 0.4))
        (verdict,) = report.verdicts
        assert verdict.outcome == "supported"
        store.seeds = range(9)
        train(store, ARMS, range(5, 9))
        evidence = gather(build_of(store).records)
        claim_id = next(iter(report.records.manifest.ledger.stated))
        ledger = report.records.manifest.ledger
        assert statements.qualifiers(verdict, evidence, ledger, claim_id, 0.04) == ()
        assert statements.qualifiers(verdict, evidence, ledger, claim_id, 1e-6) == (AFTERWARDS,)

    def test_seeds_that_were_seen_and_are_not_in_the_verdict_do_not_mark_it(self, store: Store) -> None:
        report = paths.TestClaimsThatAreStatedLater().note(store, better("c"))
        ledger = report.records.manifest.ledger
        (claim_id, _), *_ = ledger.stated.items()
        evidence = gather(report.records)
        elsewhere = replace(ledger, stated={claim_id: (77, 78)})
        assert statements.qualifiers(report.verdicts[0], evidence.restrict([0]), elsewhere, claim_id, 0.04) == ()

    def test_a_note_is_made_once(self, store: Store) -> None:
        states = paths.TestClaimsThatAreStatedLater()
        states.state(store, better("c"))
        first = read_manifest(store.study).ledger.stated
        train(store, ARMS, [7])
        note_claims(store.study, TrialStore(store.runs), read_manifest(store.study))
        assert read_manifest(store.study).ledger.stated == first


def build_of(store: Store) -> Any:
    store.write_manifest()
    return build(store.study, store.runs, draw=False)
