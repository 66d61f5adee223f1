"""Tuning: chosen on seeds that are not reported, from the store, with trials that take milliseconds."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.arms import ArmCondition, ArmDifference
from swapformer.results.manifest import manifest_path, page_path, read_manifest
from swapformer.results.store import Store
from swapformer.results.tuning import Choice
from swapformer.study import tune
from swapformer.study.arm_differences import find_differences
from swapformer.study.expand import expand
from swapformer.study.launch.launcher import Launch
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.messages import tuning_lines
from swapformer.study.plan import Plan, Template
from swapformer.study.preview import preview
from swapformer.study.run_study import StudyResult, run_study
from swapformer.study.spec import parse
from swapformer.study.tune import SettingResult, choose

ARMS = {"base": ["best=1e-2"], "other": ["best=1e-3"], "wild": ["best=1e-1"]}
LR = ["1e-4", "1e-3", "1e-2", "1e-1"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def plan(tmp_path: Path, extra: Sequence[str] = (), **changes: Any) -> Plan:
    raw = {"baseline": "base", "arms": ARMS, "seeds": 3, "tune": {"lr": LR, "seeds": 2}, **changes}
    return expand(parse(raw, "tuned"), extra, fakes.Composer(tmp_path / "journal", tmp_path / "runs"))


def launch(store: Store) -> Launch:
    def start(trials: Sequence[Trial]) -> None:
        for trial in trials:
            execute(trial, store, fakes.PROVENANCE, fakes.WORK)

    return start


def tuned(planned: Plan, store: Store) -> Mapping[ArmCondition, Choice]:
    """What is chosen after the tuning trials alone."""
    launch_missing(planned.tuning_trials, store, launch(store))
    return choose(planned, store)


def answered(planned: Plan, store: Store) -> StudyResult:
    return run_study(planned, store, fakes.PROVENANCE, lambda progress: launch(store), quiet=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture(scope="module")
def whole(place: Path) -> StudyResult:
    """Five arms from question to answer; of the last two, every tuning trial fails, and every trial diverges."""
    arms = {**ARMS, "broken": ["best=1e-3", "behaviour=fail"], "lost": ["best=1e-3", "stable=1e-9"]}
    return answered(plan(place, arms=arms), Store(place / "runs"))


class TestAWholeStudy:
    def test_reports_each_arm_with_the_setting_that_is_best_for_it(self, whole: StudyResult) -> None:
        """The fake training's loss is the distance to each arm's best rate, in decades."""
        chosen = {arm: choice.values["lr"] for (arm, _), choice in whole.plan.chosen.items()}
        assert chosen == {"base": "1e-2", "other": "1e-3", "wild": "1e-1", "lost": "1e-4"}
        assert {cell.trial.config["lr"] for cell in whole.plan.cells if cell.arm == "other"} == {1e-3}
        means = {row.arm: row.summaries["val/loss"].mean for row in whole.report.rows if row.arm in ARMS}
        assert means == dict.fromkeys(ARMS, 2.0), "1 + the mean of the seeds 0, 1, 2"

    def test_never_reports_tuning_seeds(self, whole: StudyResult, place: Path) -> None:
        store = Store(place / "runs")
        manifest = json.loads((store.studies / "tuned" / "manifest.json").read_text())
        tried = {trial for tried in manifest["tuning"]["tried"] for trial in tried["trials"]}
        reported = {cell["trial"] for cell in manifest["cells"]}
        assert len(tried) == 40 and len(reported) == 12 and not tried & reported
        assert set(whole.report.records.cells["seed"]) == {0, 1, 2}
        assert {store.find(trial).seed for trial in tried} == {1_000_000, 1_000_001}

    def test_flags_an_optimum_at_the_edge_of_the_grid(self, whole: StudyResult) -> None:
        edges = {arm: choice.edges for (arm, _), choice in whole.plan.chosen.items()}
        assert edges == {"base": (), "other": (), "wild": ("lr",), "lost": ()}
        assert any("better ones may lie beyond: lr=1e-1 of wild" in caveat for caveat in whole.report.caveats)

    def test_says_where_every_setting_diverged_and_gives_no_advice_about_edges(self, whole: StudyResult) -> None:
        assert {arm for (arm, _), choice in whole.plan.chosen.items() if choice.diverged} == {"lost"}
        told = "Every setting that was tried diverged, so the first was taken: lost (lr=1e-4); put others into `tune`."
        assert told in whole.report.caveats
        line = "lost: every setting that was tried diverged; lr=1e-4 is only the first; put other values into `tune`"
        assert list(tuning_lines(whole.plan))[2:] == ["wild: lr=1e-1 (at the edge of what was tried)",
                                                 "broken: not tuned, trials are missing", line]  # fmt: skip
        page = (whole.report.directory / "report.html").read_text()
        assert page.count("every setting diverged") == page.count("at the edge</span>") == 1
        tuning = {each["arm"]: each for each in whole.report.as_dict()["tuning"]}
        assert tuning["lost"]["diverged"] is True and tuning["wild"]["diverged"] is False

    def test_draws_the_sensitivity_of_every_arm(self, whole: StudyResult) -> None:
        svg = (whole.report.directory / "tuning_lr.svg").read_text()
        text = "".join(ET.fromstring(svg[svg.index("<svg") :]).itertext())
        assert all(name in text for name in (*ARMS, "1e-4", "1e-1"))

    def test_fails_and_leaves_an_arm_out_whose_tuning_has_no_results(self, whole: StudyResult) -> None:
        assert len(whole.failed) == 8 and set(whole.failed.values()) == {records.FAILED}
        assert whole.report.records.count("missing", "broken") == 3

    def test_a_dry_run_of_it_counts_the_trials_with_the_settings_that_were_chosen(
        self, whole: StudyResult, place: Path
    ) -> None:
        planned, store = plan(place, arms={**ARMS, "broken": ["best=1e-3", "behaviour=fail"]}), Store(place / "runs")
        asked = preview(planned, store, find_differences(planned), 1).asked
        assert {each.arm: (each.setting, len(each.done)) for each in asked if each.what == "reported"} == {
            "base": (("lr=1e-2",), 3), "other": (("lr=1e-3",), 3), "wild": (("lr=1e-1",), 3), "broken": ((), 0),
        }  # fmt: skip

    def test_trains_nothing_when_it_is_run_again_but_what_failed(self, whole: StudyResult, place: Path) -> None:
        trained = fakes.runs(place / "journal")
        planned = plan(place)
        assert tuned(planned, Store(place / "runs")) == {
            place: choice for place, choice in whole.plan.chosen.items() if place[0] in ARMS
        }
        assert fakes.runs(place / "journal") == trained


def test_a_setting_that_diverges_is_chosen_only_where_all_do(tmp_path: Path, store: Store) -> None:
    """`stable` is the largest rate that an arm survives."""
    arms = {"base": ["best=1e-2"], "frail": ["best=1e-1", "stable=5e-3"], "lost": ["best=1e-2", "stable=1e-9"]}
    planned = plan(tmp_path, arms=arms)
    chosen = tuned(planned, store)
    assert chosen["frail", ""] == Choice("frail", "", {"lr": "1e-3"})
    assert chosen["lost", ""] == Choice("lost", "", {"lr": "1e-4"}, diverged=True), "all alike: the first of the file"
    assert [cell.seed for cell in replace(planned, chosen=chosen).cells if cell.arm == "lost"] == [0, 1, 2], (
        "still reported"
    )


def result(setting: str, values: tuple[float, ...], lost: int, missing: int) -> SettingResult:
    return SettingResult(Template("a", "", (setting,), (), {}), values, lost, missing)


@pytest.mark.parametrize(("direction", "better", "worse"), [("lower", 1.0, 2.0), ("higher", 2.0, 1.0)])
def test_a_setting_that_lost_a_seed_is_worse_than_any_that_lost_none(
    direction: str, better: float, worse: float
) -> None:
    """The mean over the survivors would flatter it."""
    whole, poor = (result("lr=1", (value, value), 0, 0) for value in (better, worse))
    lossy = result("lr=2", (better,), 1, 0)
    gone = result("lr=3", (), 2, 0)
    ranked = sorted([gone, lossy, poor, whole], key=lambda each: each.rank(direction))
    assert ranked == [whole, poor, lossy, gone]


def test_settings_are_ranked_by_the_mean_of_their_values() -> None:
    """A mean of 4 against one of 3, though most of the first one's values are better."""
    uneven = result("lr=1", (1.0, 1.0, 10.0), 0, 0)
    even = result("lr=2", (3.0, 3.0, 3.0), 0, 0)
    assert min([uneven, even], key=lambda each: each.rank("lower")) is even
    assert min([uneven, even], key=lambda each: each.rank("higher")) is uneven


def test_of_equal_settings_the_first_of_the_file_is_taken(tmp_path: Path, store: Store) -> None:
    """1e-3 and 1e-1 are both a decade off."""
    tied = {"base": ["best=1e-2"], "other": ["best=1e-3"]}
    for values, expected in ((["1e-1", "1e-3"], "1e-1"), (["1e-3", "1e-1"], "1e-3")):
        chosen = tuned(plan(tmp_path, arms=tied, tune={"lr": values, "seeds": 2}), store)
        assert chosen["base", ""].values == {"lr": expected}


def test_all_combinations_of_several_keys_are_tried(tmp_path: Path, store: Store) -> None:
    planned = plan(tmp_path, tune={"lr": LR[:2], "kind": ["a", "b"], "seeds": 1})
    assert len(planned.tuning_trials) == 3 * 4
    choice = Choice("base", "", {"lr": "1e-3", "kind": "a"}, ("lr",))
    assert tuned(planned, store)["base", ""] == choice, "words have no edge"


def test_an_interrupted_tuning_goes_on_where_it_stopped(tmp_path: Path, store: Store) -> None:
    planned = plan(tmp_path)

    def stops(trials: Sequence[Trial]) -> None:
        launch(store)(trials[:5])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(planned, store, fakes.PROVENANCE, lambda progress: stops, quiet=True)
    assert choose(planned, store) == {}, "no arm has all its results yet"
    assert len(tuned(planned, store)) == 3
    done = fakes.runs(tmp_path / "journal")
    assert len(done) == len(set(done)) == 24


def test_a_study_that_is_stopped_as_it_starts_again_keeps_the_trials_of_its_report(
    tmp_path: Path, store: Store
) -> None:
    """The settings are chosen before a manifest without reported trials could replace the one that has them."""
    answered(plan(tmp_path), store)
    before = read_manifest(store.studies / "tuned").cells
    assert len(before) == 9

    begun = []

    def stops(progress: object) -> Launch:
        begun.append(progress)
        if len(begun) > 1:  # the first is only asked for its settings
            raise KeyboardInterrupt
        return launch(store)

    with pytest.raises(KeyboardInterrupt):
        run_study(plan(tmp_path, seeds=4), store, fakes.PROVENANCE, stops, quiet=True)
    assert set(before) <= set(read_manifest(store.studies / "tuned").cells)


def test_a_model_is_counted_once_though_the_settings_of_its_arms_are_chosen_later(tmp_path: Path, store: Store) -> None:
    composer = fakes.Composer(tmp_path / "journal", tmp_path / "runs")
    planned = replace(plan(tmp_path), composer=composer)
    assert len(answered(planned, store).plan.chosen) == 3
    assert composer.counted == 2, "its operations and its pairs, which all arms share"


def test_what_a_report_that_stays_counted_is_not_counted_again(tmp_path: Path, store: Store) -> None:
    def again(report: bool | None = None) -> tuple[int, list[ArmDifference]]:
        composer = fakes.Composer(tmp_path / "journal", tmp_path / "runs")
        planned = replace(plan(tmp_path), composer=composer)
        run_study(planned, store, fakes.PROVENANCE, lambda progress: launch(store), quiet=True, report=report)
        return composer.counted, list(read_manifest(folder).fairness)

    folder = store.studies / "tuned"
    _, first = again()
    assert all(math.isfinite(each.flops) and each.pairs for each in first)
    assert again() == (0, first)
    assert again(report=True) == (2, first), "a page that is drawn again counts again"

    def forge(**fields: object) -> None:
        raw = json.loads(manifest_path(folder).read_text())
        for each in raw["fairness"]:
            each["flops"] = 1
        for each in raw["settings"]:
            each.update(fields)
        manifest_path(folder).write_text(json.dumps(raw))

    forge()
    assert [each.flops for each in again()[1]] == [1, 1, 1]
    forge(id="0123456789abcdef")
    assert again() == (2, first), "what was counted of other trials says nothing of these"
    page_path(folder).unlink()
    assert again() == (2, first)
    os.utime(page_path(folder), (1e9, 1e9))  # a run that was killed before it drew what it had trained
    assert again() == (2, first) and page_path(folder).stat().st_mtime > 1e9
    assert again() == (0, first)


def test_an_optimiser_that_has_trained_is_not_asked_again(tmp_path: Path, store: Store) -> None:
    asked = list[tuple[float, object, object]]()

    class Listening(fakes.Composer):
        def check(self, resolved: dict[str, Any], *given: Any) -> None:
            like, trained = given
            asked.append((resolved["lr"], like and like["lr"], trained))

    def expanded() -> Plan:
        asked.clear()
        raw = {"baseline": "base", "arms": ARMS, "seeds": 2, "tune": {"lr": ["1e-3", "1e-2"], "seeds": 1}}
        return expand(parse(raw, "tuned"), composer=Listening(tmp_path / "journal", tmp_path / "runs"))

    planned = expanded()
    assert asked == [(1e-3, None, False), (1e-2, 1e-3, False)] * 3
    launch_missing(planned.tuning_trials[:1], store, launch(store))
    expanded()
    assert asked == [(1e-3, None, True), *[(1e-2, 1e-3, False), (1e-3, None, False)] * 2, (1e-2, 1e-3, False)]


class Picky(fakes.Composer):
    """An arm whose best rate is 1e-3 cannot have another."""

    def check(self, resolved: dict[str, Any], *_: Any) -> None:
        super().check(resolved)
        if resolved["best"] == 1e-3 != resolved["lr"]:
            raise UsageError("1e-3 is all it can have")


def test_settings_that_an_arm_cannot_have_are_left_out_with_the_reason(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    raw = {"baseline": "base", "arms": ARMS, "seeds": 2, "tune": {"lr": ["1e-3", "1e-2"], "seeds": 1}}
    planned = expand(parse(raw, "tuned"), (), Picky(tmp_path / "journal", tmp_path / "runs"))
    assert planned.refused == {(("other", ""), ("lr=1e-2",)): "1e-3 is all it can have"}
    found = answered(planned, store)
    assert found.plan.chosen["other", ""] == Choice("other", "", {"lr": "1e-3"})
    assert "arm other cannot have lr=1e-2, which is not tried: 1e-3 is all it can have" in caplog.messages
    assert "arm other is left with one setting, so nothing is tuned" in caplog.messages
    (caveat,) = [caveat for caveat in found.report.caveats if "nothing was chosen" in caveat]
    assert caveat.startswith("other could have one setting")


def test_a_value_that_no_arm_can_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no arm can take heads=7, which `tune` lists: heads must divide the width"):
        plan(tmp_path, tune={"heads": [1, 7], "seeds": 1})


def test_values_that_are_the_same_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"base with lr=1e-3 and base with lr=0.001 must differ"):
        plan(tmp_path, tune={"lr": ["1e-3", "0.001"]})
    with pytest.raises(UsageError, match="the command line must not set lr, which `tune` sets"):
        plan(tmp_path, extra=["lr=1e-3"])


class TestTwoStages:
    """All settings with one seed at a share of the steps, then the best and its neighbours at all of them."""

    RATES = ("1e-4", "2e-4", "4e-4", "8e-4", "1.6e-3", "3.2e-3")

    def plan(
        self, tmp_path: Path, best: str = "4.2e-4", short: str = "", rates: Sequence[str] = RATES, **tune: Any
    ) -> Plan:
        arms = {"base": [f"best={best}", f"best_short={short or best}"], "other": [f"best={best}", "heads=2"]}
        asked = {"lr": list(rates), "seeds": 2, "first_stage": 0.2, **tune}
        return plan(tmp_path, arms=arms, tune=asked)

    @staticmethod
    def tried(found: Plan, arm: str = "base") -> tuple[list[str], list[str]]:
        """The rates of an arm that were tried in the first stage, and those at all steps."""
        own = [each for each in found.tuning if each.template.arm == arm]
        return tuple(
            [each.template.values["lr"] for each in own if (each.share < 1) == first] for first in (True, False)
        )  # type: ignore[return-value]

    def test_the_best_of_a_short_training_and_its_neighbours_train_to_the_end(
        self, tmp_path: Path, store: Store
    ) -> None:
        result = answered(self.plan(tmp_path), store)
        assert self.tried(result.plan) == (list(self.RATES), ["4e-4", "2e-4", "8e-4"])
        assert result.plan.chosen["base", ""] == Choice("base", "", {"lr": "4e-4"})
        assert not result.failed and result.report.records.count("finished", "base") == 3

    def test_a_short_training_has_one_seed_a_share_of_the_steps_and_a_warm_up_of_its_own(
        self, tmp_path: Path, store: Store
    ) -> None:
        first = [each for each in answered(self.plan(tmp_path), store).plan.tuning if each.share < 1]
        assert {len(each.trials) for each in first} == {1} and {each.trials[0].config["seed"] for each in first} == {
            1_000_000
        }
        config = first[0].trials[0].config
        assert (config["budget"]["steps"], config["schedule"]["warmup_steps"], config["eval"]["every"]) == (2, 1, 1)
        assert {"budget.steps=2", "schedule.warmup_steps=1"} <= set(first[0].trials[0].overrides)

    def test_where_the_best_at_all_steps_is_a_neighbour_its_own_neighbours_are_tried_too(
        self, tmp_path: Path, store: Store
    ) -> None:
        found = answered(self.plan(tmp_path, best="1.7e-3", short="4e-4"), store).plan
        assert self.tried(found)[1] == ["4e-4", "2e-4", "8e-4", "1.6e-3", "3.2e-3"]
        assert found.chosen["base", ""].values == {"lr": "1.6e-3"} and found.chosen["base", ""].edges == ()

    def test_the_grid_grows_where_the_best_lies_at_its_end(self, tmp_path: Path, store: Store) -> None:
        found = answered(self.plan(tmp_path, best="6.5e-3"), store).plan
        assert self.tried(found)[0] == [*self.RATES, "0.0064", "0.0128"]
        assert found.chosen["base", ""] == Choice("base", "", {"lr": "0.0064"}, (), False, grown=2)
        assert self.tried(found)[1] == ["0.0064", "3.2e-3", "0.0128"]

    def test_negative_values_grow_outwards_too(self, tmp_path: Path, store: Store) -> None:
        found = answered(self.plan(tmp_path, best="-6.5", rates=["-3", "-1"]), store).plan
        assert self.tried(found)[0] == ["-3", "-1", "-6", "-12"] and found.chosen["base", ""].values == {"lr": "-6"}

    def test_it_grows_three_times_at_most_and_says_where_that_was_not_enough(
        self, tmp_path: Path, store: Store
    ) -> None:
        result = answered(self.plan(tmp_path, best="1e-6"), store)
        assert self.tried(result.plan)[0] == [*self.RATES, "5e-05", "2.5e-05", "1.25e-05"]
        choice = result.plan.chosen["base", ""]
        assert (choice.values["lr"], choice.edges, choice.grown) == ("1.25e-05", ("lr",), 3)

    def test_it_grows_by_what_is_seen_at_all_steps_too(self, tmp_path: Path, store: Store) -> None:
        found = answered(self.plan(tmp_path, best="6.5e-3", short="1.6e-3"), store).plan
        assert self.tried(found)[1] == ["1.6e-3", "8e-4", "3.2e-3", "0.0064", "0.0128"]
        assert found.chosen["base", ""].edges == () and found.chosen["base", ""].grown == 2

    def test_an_interrupted_search_goes_on_where_it_stopped(self, tmp_path: Path, store: Store) -> None:
        planned = self.plan(tmp_path)
        launch_missing(planned.tuning_trials[:3], store, launch(store))
        assert tune.tuned(planned, store).chosen == {}
        answered(planned, store)
        trained = fakes.runs(tmp_path / "journal")
        assert len(trained) == len(set(trained))
        answered(self.plan(tmp_path), store)
        assert fakes.runs(tmp_path / "journal") == trained, "all is in the store"

    def test_a_dry_run_counts_both_stages(self, tmp_path: Path, store: Store) -> None:
        planned = self.plan(tmp_path)
        found = preview(planned, store, find_differences(planned), 1)
        assert (found.count("first stage"), found.count("tuning"), found.count("reported")) == (12, 12, 6)
        assert "12 of a first stage and 12 at all steps more to choose settings by" in found.summary
        answered(planned, store)
        after = preview(self.plan(tmp_path), store, find_differences(planned), 1)
        assert after.count("tuning") == 12 and not any(each.left for each in after.asked)

    def test_what_was_tried_is_in_the_table_the_page_and_the_json(self, tmp_path: Path, store: Store) -> None:
        report = answered(self.plan(tmp_path, best="1e-6"), store).report
        tuning = {each["arm"]: each for each in report.as_dict()["tuning"]}
        assert tuning["base"]["inside"] is False and tuning["base"]["grown"] == 3
        shares = [each["share"] for each in tuning["base"]["tried"]]
        assert shares.count(0.2) == 9 and all(each["results"] for each in tuning["base"]["tried"])
        table = (report.directory / "table.md").read_text()
        assert "| base | lr=1.25e-05 |" in table and "chosen, at the end of what was tried" in table
        page = (report.directory / "report.html").read_text()
        assert (
            "Settings that were tried" in page
            and "A first stage tried all settings with one seed at 20 % of the steps" in page
        )
        assert '""lr"": ""5e-05""' in (report.directory / "results.csv").read_text()

    def test_the_line_of_a_verdict_says_where_an_arm_chose_an_end(self, tmp_path: Path, store: Store) -> None:
        arms = {"base": ["best=4e-4"], "other": ["best=1e-6"]}
        claim = {"text": "t", "better": {"arm": "other", "than": "base", "metric": "val/loss", "margin": 0}}
        asked = {"lr": list(self.RATES), "seeds": 1, "first_stage": 0.2}
        (verdict,) = answered(plan(tmp_path, arms=arms, tune=asked, claims=[claim]), store).report.verdicts
        assert "with lr of other at the end of what was tried" in verdict.qualifiers

    def test_the_published_results_know_what_was_tried(self, tmp_path: Path, store: Store) -> None:
        from swapformer.report.results_csv import read_results, results_csv
        from swapformer.report.tuning import read_tuning
        from swapformer.results.ledger import Ledger

        report = answered(self.plan(tmp_path), store).report
        path = tmp_path / "results.csv"
        path.write_text(results_csv(report.records, ["val/loss"], ()))
        asked = replace(report.records.manifest, cells=(), seeds=(), settings={}, tuning=None, ledger=Ledger())
        again = read_tuning(read_results(path, asked).manifest)
        assert again == read_tuning(report.records.manifest) and again[0].outcomes[0].values

    def test_a_metric_that_is_equal_after_the_first_stage_is_refused_with_one_that_would_do(
        self, tmp_path: Path, store: Store
    ) -> None:
        with pytest.raises(UsageError) as refused:
            answered(self.plan(tmp_path, metric="val/solved"), store)
        assert "after the first stage val/solved is 0" in str(refused.value)
        assert "put `metric: val/loss` into it, which tells them apart" in str(refused.value)
        assert "\n" not in str(refused.value)
        answered(self.plan(tmp_path, metric="val/loss"), store)  # its trials were kept

    def test_it_is_chosen_by_what_claims_judge(self, tmp_path: Path) -> None:
        claim = {"text": "t", "better": {"arm": "other", "than": "base", "metric": "val/loss@90", "margin": 0}}
        arms = {"base": ["best=4e-4"], "other": ["best=1e-6"]}
        more: dict[str, Any] = {"metrics": ["val/loss", "val/loss@90"], "claims": [claim], "arms": arms}
        raw = {"baseline": "base", "seeds": 3, **more}
        tried = {"lr": list(self.RATES), "seeds": 1}
        assert parse({**raw, "tune": tried}, "s").tuned_by == "val/loss", "as ever, the first"
        assert parse({**raw, "tune": {**tried, "first_stage": 0.5}}, "s").tuned_by == "val/loss@90"
        assert parse({**raw, "tune": {**tried, "first_stage": 0.5, "metric": "val/loss"}}, "s").tuned_by == "val/loss"

    def test_a_setting_that_an_arm_cannot_have_ends_its_grid(self, tmp_path: Path, store: Store) -> None:
        asked = {"heads": [14, 28], "seeds": 1, "first_stage": 0.2}
        arms = {"base": ["spread=1", "best=1"], "other": ["spread=1", "best=2"]}
        found = answered(plan(tmp_path, arms=arms, tune=asked), store).plan
        refused = [setting for (_, setting), reason in found.refused.items() if "divide the width" in reason]
        assert ("heads=7",) in refused and found.chosen["base", ""].values == {"heads": "14"}
        assert found.chosen["base", ""].edges == ("heads",)

    def test_where_all_diverge_the_first_is_taken_and_nothing_grows(self, tmp_path: Path, store: Store) -> None:
        arms = {"base": ["best=4e-4", "stable=1e-9"], "other": ["best=4e-4"]}
        asked = {"lr": list(self.RATES), "seeds": 1, "first_stage": 0.2}
        found = answered(plan(tmp_path, arms=arms, tune=asked), store).plan
        assert found.chosen["base", ""] == Choice("base", "", {"lr": "1e-4"}, (), True)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"first_stage": 0}, "must be a share of the steps above 0 and below 1, such as 0.25, not 0"),
            ({"first_stage": 1.5}, "must be a share of the steps above 0 and below 1, such as 0.25, not 1.5"),
            ({"first_stage": True}, "must be a share of the steps"),
            ({"first_stage": "half"}, "must be a share of the steps"),
            ({"rates": ["1e-3"]}, "needs a list of at least two values for lr"),
            ({"rates": ["fast", "slow"]}, "so lr must have numbers, not fast, slow"),
            ({"metric": "probe/x"}, "`metric` of `tune` must be one of validation, such as val/loss, not 'probe/x'"),
            ({"metric": 3}, "`metric` of `tune` must be one of validation"),
            ({"metric": "val/lost"}, "val/lost"),
        ],
    )
    def test_what_cannot_be_meant_is_one_line(
        self, changes: dict[str, Any], message: str, tmp_path: Path, store: Store
    ) -> None:
        with pytest.raises(UsageError, match=re.escape(message)) as refused:
            answered(self.plan(tmp_path, **changes), store)
        assert "\n" not in str(refused.value)


def test_a_plan_of_a_study_loads_no_torch() -> None:
    """What only reads studies, such as `swapformer status`, must answer at once."""
    code = "import sys, swapformer.study.plan, swapformer.study.tune; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
