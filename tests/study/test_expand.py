"""Arms × seeds → trials, with a composer that counts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.results.manifest import write_manifest
from swapformer.results.store import Store
from swapformer.study.expand import expand
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.progress import StudyProgress
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.manifest import make_manifest
from swapformer.study.plan import Plan
from swapformer.study.run_study import plain_sweep
from swapformer.study.spec import parse


@pytest.fixture
def composer(tmp_path: Path) -> fakes.Composer:
    return fakes.Composer(tmp_path / "journal", tmp_path / "runs")


def plan(composer: fakes.Composer, extra: Sequence[str] = (), **changes: Any) -> Plan:
    arms = {f"h{heads}": [f"heads={heads}"] for heads in (1, 2, 4)}
    return expand(parse({"arms": arms, "baseline": "h2", "seeds": 3, **changes}, "heads"), extra, composer)


def test_each_arm_is_composed_once_and_the_seed_goes_wherever_it_belongs(composer: fakes.Composer) -> None:
    found = plan(composer, seeds=[3, 5])
    assert composer.composed == 3
    cell = found.cells[1]
    assert (cell.arm, cell.seed) == ("h1", 5)
    assert cell.trial.config == composer.compose(["heads=1", "seed=5"])
    assert cell.trial.config["label"] == "run 5" and cell.trial.config["data_seed"] == 5
    assert cell.trial.id == fakes.trial_id(cell.trial.config)


def test_trials_come_seed_by_seed(composer: fakes.Composer) -> None:
    assert [trial.config["seed"] for trial in plan(composer).trials] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_an_impossible_arm_is_dropped_and_listed_with_the_reason(composer: fakes.Composer) -> None:
    found = plan(composer, arms={"h1": ["heads=1"], "h2": ["heads=2"], "h7": ["heads=7"]})
    assert found.impossible == {("h7", ""): "heads must divide the width"}
    assert {cell.arm for cell in found.cells} == {"h1", "h2"}
    with pytest.raises(UsageError, match="the baseline 'h2' cannot be built: heads must divide"):
        plan(composer, arms={"h2": ["heads=7"], "h1": ["heads=1"]})


def test_a_study_of_which_the_baseline_alone_is_possible_is_refused_with_the_reasons(
    composer: fakes.Composer,
) -> None:
    """Its trials would be compared with nothing."""
    arms = {"h2": ["heads=2"], "h7": ["heads=7"], "wide": ["heads=7", "width=5"]}
    with pytest.raises(UsageError, match="but none is possible: h7, wide: heads must divide the width"):
        plan(composer, arms=arms)
    assert plan(composer, arms={"h2": ["heads=2"]}).cells, "of one arm nothing was to be compared"


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("widht", "adjusts widht, which this arm does not have; did you mean 'width'?"),
        ("trainer", "adjusts a number, but trainer is a group of accelerator, threads"),
        ("behaviour", "adjusts a number, but behaviour is 'finish'"),
    ],
)
def test_a_size_to_match_that_no_arm_has_is_refused(composer: fakes.Composer, key: str, complaint: str) -> None:
    arms = {"a": ["heads=1", "width=4"], "b": ["heads=2", "width=4"]}
    with pytest.raises(UsageError, match=re.escape(complaint)):
        plan(composer, arms=arms, baseline="a", match={"params": key})


def test_an_arm_alone_without_the_size_to_match_is_impossible(composer: fakes.Composer) -> None:
    size = 'size={"width": 4}'
    arms = {"a": [size], "b": [size, "kind=b"], "c": ["kind=c"]}
    found = plan(composer, arms=arms, baseline="a", match={"params": "size.width"})
    assert list(found.impossible) == [("c", "")] and list(found.matched) == [("b", "")]


def test_arms_that_are_the_same_trial_are_refused(composer: fakes.Composer) -> None:
    with pytest.raises(UsageError, match="'h1' and 'h2' are the same trial"):
        plan(composer, arms={"h1": ["heads=4"], "h2": ["heads=4"], "h4": ["heads=2"]}, baseline="h4")


def test_the_command_line_may_not_set_what_an_arm_sets(composer: fakes.Composer) -> None:
    """Arms that differ in something else too would train one model under two names."""
    arms = {"h1": ["heads=1"], "h2": ["heads=2", "kind=b"]}
    with pytest.raises(UsageError, match="must not set heads, which makes arm 'h1' what it is"):
        plan(composer, arms=arms, baseline="h1", extra=["heads=4"])


def test_a_metric_that_no_trial_could_have_is_refused(composer: fakes.Composer) -> None:
    for metric, complaint in [
        ("val/los", "no metric 'val/los' in this task; did you mean 'val/loss'"),
        ("val/loss@99", "no metric 'val/loss@99'"),
        ("val/longest_90@64", "no metric 'val/longest_90@64'"),
        ("probe/similarity", "needs a probe"),
        ("valid/loss", "begins with val/, test/ or probe/"),
    ]:
        with pytest.raises(UsageError) as error:
            plan(composer, metrics=[metric])
        assert complaint in str(error.value)


def test_a_metrics_typo_is_told_before_anything_is_built(
    composer: fakes.Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a metric of the baseline's task, so that the baseline stands first here."""
    checked: list[str] = []
    monkeypatch.setattr(composer, "check", lambda config: checked.append("built"))
    with pytest.raises(UsageError, match="no metric 'val/los'"):
        plan(composer, metrics=["val/los"], baseline="h1")
    assert checked == []


def test_what_follows_from_all_lengths_is_a_metric_like_others(composer: fakes.Composer) -> None:
    assert plan(composer, metrics=["val/loss", "val/longest_90"]).spec.metrics[1] == "val/longest_90"


def test_the_seed_cannot_be_overridden_for_all_arms(composer: fakes.Composer) -> None:
    with pytest.raises(UsageError, match="give seeds="):
        plan(composer, extra=["seed=3"])


def test_the_manifest_holds_what_the_report_needs(composer: fakes.Composer, tmp_path: Path) -> None:
    found, store = plan(composer), Store(tmp_path / "runs")
    write_manifest(store.studies / "heads", make_manifest(found, fakes.PROVENANCE))
    manifest = json.loads((store.studies / "heads" / "manifest.json").read_text())
    assert manifest["axis"] == {"key": "heads", "values": {"h1": 1, "h2": 2, "h4": 4}}
    assert manifest["cells"][4] == {"arm": "h2", "seed": 1, "trial": found.cells[4].trial.id, "probes": {}}
    assert manifest["shared_config"]["heads"] == 2
    assert (manifest["schema_version"], manifest["command"], manifest["longest_trained"]) == (1, "swapformer test", 64)


def test_arms_of_several_keys_or_of_parts_have_no_axis_unless_one_is_named(composer: fakes.Composer) -> None:
    two = {"h2": ["heads=2", "width=16"], "h4": ["heads=4", "width=32"]}
    for arms, axis, expected in [
        (two, {}, None),
        (two, {"axis": "width"}, {"key": "width", "values": {"h2": 16, "h4": 32}}),
        (two, {"axis": ["width"]}, {"key": "width", "values": {"h2": 16, "h4": 32}}),
        (two, {"axis": ["heads", "width"]}, None),
        ({"h2": ["position=rope"], "h4": ["position=alibi"]}, {}, None),
    ]:
        found = plan(composer, arms=arms, **axis)
        store = Store(composer.runs_dir)
        write_manifest(store.studies / "heads", make_manifest(found, fakes.PROVENANCE))
        assert json.loads((store.studies / "heads" / "manifest.json").read_text())["axis"] == expected


def test_new_arms_and_seeds_train_only_what_is_new(composer: fakes.Composer, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")

    def launch(trials: Sequence[Trial]) -> None:
        for trial in trials:
            execute(trial, store, fakes.PROVENANCE, fakes.WORK)

    arms = {f"h{heads}": [f"heads={heads}"] for heads in (1, 2, 4, 8)}
    launch_missing(plan(composer).trials, store, launch)
    assert len(fakes.runs(composer.journal)) == 9
    launch_missing(plan(composer, seeds=4).trials, store, launch)
    assert len(fakes.runs(composer.journal)) == 12
    launch_missing(plan(composer, seeds=4, arms=arms).trials, store, launch)
    assert len(fakes.runs(composer.journal)) == 16
    launch_missing(plan(composer, seeds=[0, 3], arms=arms).trials, store, launch)
    assert len(fakes.runs(composer.journal)) == 16


def test_a_plain_sweep_is_a_study_of_the_overrides_that_differ() -> None:
    jobs = [
        [f"model/position={position}", "budget.steps=5", f"seed={seed}"]
        for position in ("rope", "alibi")
        for seed in (0, 2)
    ]
    found = plain_sweep(jobs)
    assert found.arms == {"rope": ("model/position=rope",), "alibi": ("model/position=alibi",)}
    assert (found.baseline, found.seeds, found.overrides) == ("rope", (0, 2), ("budget.steps=5",))
    assert plain_sweep(jobs).name == found.name != plain_sweep(jobs[:2]).name
    assert plain_sweep(jobs, "mine").name == "mine"


def test_arms_of_a_plain_sweep_never_share_a_name() -> None:
    assert list(plain_sweep([["a.x=1", "b.x=2"], ["a.x=2", "b.x=2"]]).arms) == ["1", "2"]
    assert list(plain_sweep([["a.x=1", "b.x=2"], ["a.x=2", "b.x=1"]]).arms) == ["x=1 x=2", "x=2 x=1"]
    assert list(plain_sweep([["a=1"], ["b=1"]]).arms) == ["a=1", "b=1"]
    assert list(plain_sweep([["task.path=a/b"], ["task.path=c"]]).arms) == ["a.b", "c"]
    assert list(plain_sweep([["seed=1"], ["seed=2"]]).arms) == ["default"]


def test_the_time_left_is_the_mean_of_what_ended_times_what_is_missing(tmp_path: Path) -> None:
    store, journal = Store(tmp_path / "runs"), tmp_path / "journal"
    trials = [fakes.trial(journal, seed=seed) for seed in range(4)]
    assert StudyProgress(trials, store, quiet=True).time_left(2) is None
    for trial in trials[:2]:
        record = execute(trial, store, fakes.PROVENANCE, fakes.WORK)
        assert record is not None
        store.write(record.but(seconds=30.0))
    progress = StudyProgress(trials, store, quiet=True)
    assert progress.done == 2
    assert progress.time_left(2) == 30.0
    assert progress.time_left(1) == 60.0


SMALL_BPE = ["task.tokeniser.vocab_size=270"]


class TestTokensThatAreNotTheSame:
    def plan(self, folder: Path, metric: str, names: Sequence[str], **more: Any) -> Plan:
        """Arms that write one text in other tokens, and a claim on them."""
        path = folder / "text.txt"
        path.write_text("".join(f"{number} is a number, as {number + 1} is\n" for number in range(400)))
        raw = {
            "overrides": ["task/source=files", f"task.source.path={path}", "model.num_layers=1", "model.d_model=16"],
            "arms": {arm: [f"task/tokeniser={arm}", *SMALL_BPE[arm != "bpe" :]] for arm in names},
            "baseline": names[0], "metrics": ["val/loss", metric], "seeds": 2,
            "claims": [{"text": "x", "lower": {"arm": names[1], "than": names[0], "metric": metric, "margin": 0}}],
            **more,
        }  # fmt: skip
        return expand(parse(raw, "units"))

    @pytest.mark.parametrize("metric", ["val/perplexity", "test/accuracy"])
    def test_have_no_claim_on_what_is_counted_per_token(self, metric: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as error:
            self.plan(tmp_path, metric, ("characters", "bpe"))
        assert str(error.value) == (
            f"a claim must compare like with like, but {metric} is counted per token, and the tokens of bpe and "
            f"characters are not the same; compare {metric.partition('/')[0]}/bits_per_byte, which counts bytes of text"
        )

    @pytest.mark.parametrize("way", [{"log": "val/loss"}, {"time_to": "val/loss", "value": 1.0}])
    def test_nor_on_what_is_derived_from_it_in_the_same_unit(self, way: dict[str, Any], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"val/loss is counted per token, and the tokens of bpe and characters"):
            self.plan(tmp_path, "derived/x", ("characters", "bpe"), derive={"derived/x": way}, metrics=["val/loss"])

    def test_nor_between_conditions(self, tmp_path: Path) -> None:
        weights = {f"a with task/tokeniser={each}": weight for each, weight in (("characters", 1), ("bytes", -1))}
        claim = {"text": "x", "contrast": {"weights": weights, "metric": "val/loss", "above": 0}}
        grid = {"task/tokeniser": ["characters", "bytes"]}
        with pytest.raises(UsageError, match=r"tokens of a with task/tokeniser=bytes and a with task/tokeniser=char"):
            own = {"a": [], "b": ["optim.lr=2e-3"]}
            self.plan(tmp_path, "val/loss", ("a", "b"), grid=grid, claims=[claim], arms=own, metrics=["val/loss"])

    def test_may_be_compared_by_the_byte(self, tmp_path: Path) -> None:
        assert len(self.plan(tmp_path, "val/bits_per_byte", ("characters", "bytes")).cells) == 4

    def test_but_not_where_a_tokeniser_leaves_characters_out(self, tmp_path: Path) -> None:
        words = r"val/bits_per_byte counts each <unk> as one byte.* as that of characters does; set task.tokeniser.min"
        few = ["task.tokeniser.min_count=400"]  # digits are fewer
        arms = {"bytes": ["task/tokeniser=bytes"], "characters": ["task/tokeniser=characters", *few]}
        with pytest.raises(UsageError, match=words):
            self.plan(tmp_path, "val/bits_per_byte", ("bytes", "characters"), arms=arms)
        with pytest.raises(UsageError, match=r"val/accuracy is counted per token.* use one tokeniser in both$"):
            self.plan(tmp_path, "val/accuracy", ("bytes", "characters"), arms=arms)

    def test_but_not_where_the_first_token_of_each_document_is_left_out(self, tmp_path: Path) -> None:
        """A longer token leaves out more of the text, and the hardest part of it."""
        with pytest.raises(
            UsageError, match=r"compare val/bits_per_byte, .* with task\.packing=blocks: the first tokens"
        ):
            arms = {each: [f"task/tokeniser={each}", "task.packing=documents"] for each in ("characters", "bytes")}
            self.plan(tmp_path, "val/bits_per_byte", ("characters", "bytes"), arms=arms)


def test_the_longest_length_of_training_is_that_of_all_arms_or_of_none(composer: fakes.Composer) -> None:
    """A figure by length would put what one arm has at its own length to that of another."""
    assert plan(composer).longest_trained == 64
    assert plan(composer, arms={"h1": [], "long": ["longest=128"]}, baseline="h1").longest_trained is None
