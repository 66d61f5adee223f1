"""The cost pass on real, tiny trials: what it measures, keeps, reuses, refuses, and what the report shows of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from swapformer.cli import main
from swapformer.results.costs import Measured, read_costs
from swapformer.results.manifest import read_manifest
from swapformer.study.config.compose import compose
from swapformer.study.launch import machine
from swapformer.study.launch.machine import alone
from swapformer.tools.cost import cost_pass
from swapformer.tools.cost.cost_pass import CostPass, cost_key
from swapformer.tools.cost.step_timer import measure

TINY = [
    "task=copy", "model.num_layers=1", "model.d_model=16", "model.num_heads=2", "task.batch_size=2", "budget.steps=2",
    "schedule.warmup_steps=0", "eval.every=2", "eval.batches=1", "eval.final_batches=1",
]  # fmt: skip
STUDY = """
question: What does a bias cost?
baseline: with
arms: {{with: [model.bias=true], without: [model.bias=false]}}
overrides: [{overrides}]
seeds: 1
metrics: [val/loss]
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a study that was run."""
    root = tmp_path_factory.mktemp("trained")
    file = root / "bias.yaml"
    file.write_text(STUDY.format(overrides=", ".join(f'"{each}"' for each in TINY)))
    assert main(["study", str(file), f"runs_dir={root / 'runs'}"]) == 0
    return root / "runs"


@pytest.fixture
def study(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The study's folder in a store of this test; the machine is called quiet, and its lock is this test's too."""
    monkeypatch.setenv(machine.VARIABLE, str(tmp_path))
    monkeypatch.setattr(cost_pass.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs" / "studies" / "bias"


def cost(study: Path, *options: str) -> int:
    return main(["cost", "bias", f"runs_dir={study.parents[1]}", *options])


def pretend(self: CostPass, key: str) -> None:
    """A round that takes no time."""
    said = {"step_seconds": 0.5, "peak_bytes": 9, "start_bytes": 4, "device_bytes": None, "tokens_per_step": 10}
    self.found.setdefault(key, []).append(said)


def test_costs_do_not_depend_on_what_no_step_pays_for() -> None:
    base = cost_key(compose(TINY))
    assert base == cost_key(compose([*TINY, "seed=3", "budget.steps=9", "schedule=constant", "eval.batches=2"]))
    changes = (["model.bias=false"], ["task.batch_size=3"], ["optim=sgd"], ["trainer.threads=2"], ["callbacks=ema"])
    assert len({base, *(cost_key(compose([*TINY, *change])) for change in changes)}) == 6


def test_a_round_times_whole_steps_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    config = compose(TINY)
    found = measure(config, warm_up=2, steps=3)
    task_tokens = 2 * config["model"]["max_len"]
    assert 0 < found["step_seconds"] < 5 and found["device_bytes"] is None
    assert found["peak_bytes"] >= found["start_bytes"] > 10_000_000
    assert 0 < found["tokens_per_step"] <= task_tokens


def test_arms_are_measured_in_turn_and_each_round_begins_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(CostPass, "_measure", lambda self, key: order.append(key))
    CostPass({"a": {}, "b": {}, "c": {}}, 2, 1, 1, False, lambda line: None).run()
    assert order == ["a", "b", "c", "b", "c", "a"]


@pytest.mark.parametrize("pretended", [True, pytest.param(False, marks=pytest.mark.evidence)])
def test_what_a_study_costs_is_counted_measured_kept_reused_and_shown(
    pretended: bool, study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if pretended:
        monkeypatch.setattr(CostPass, "_measure", pretend)
    capsys.readouterr()
    assert cost(study, "--json") == 0  # counted alone
    counted = json.loads(capsys.readouterr().out)["arms"]
    assert [each["measured"] for each in counted] == [{}, {}] and counted[0]["counted"]["flops"] > 0
    assert "--measure</code> measures it" in (study / "report" / "report.html").read_text()

    assert cost(study, "--measure", "--rounds", "1", "--warm-up", "1", "--steps", "2", "--json") == 0
    out = json.loads(capsys.readouterr().out)["arms"]
    (one,) = out[0]["measured"].values()
    assert len(one["seconds"]) == 1 and one["speed"] == pytest.approx(one["tokens"] / one["step"])
    files = sorted((study.parents[1] / "costs").glob("*/*.json"))
    kept = [json.loads(path.read_text()) for path in files]
    assert len(files) == 2 and {each["pass"] for each in kept} == {kept[0]["pass"]}
    assert all(each["forced"] is False and each["steps"] == 2 for each in kept)
    page = (study / "report" / "report.html").read_text()
    assert "tokens a second" in page and f"Measured on {kept[0]['hardware']['name']}" in page

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("what was measured is not measured again")

    monkeypatch.setattr(CostPass, "_measure", never)
    assert cost(study, "--measure") == 0


def test_on_a_loaded_machine_only_force_measures_and_it_is_recorded(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_pass.os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    assert cost(study, "--measure") == 2 and "needs a quiet machine" in capsys.readouterr().err
    monkeypatch.setattr(CostPass, "_measure", pretend)
    assert cost(study, "--measure", "--force") == 0
    costs = read_costs(read_manifest(study), study, study.parents[1], [])
    (hardware,) = costs.measured
    assert costs.forced(hardware) and costs.passes(hardware) == 1
    assert costs.timed("")["with"].speed == 20 and "beside other work" in (study / "report" / "report.html").read_text()


def test_while_trials_run_nothing_is_measured(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with alone():  # for the lock it is the same who has it
        assert cost(study, "--measure", "--force") == 2
    assert "trials run on it now" in capsys.readouterr().err
    assert not (study.parents[1] / "costs").exists()


def test_a_process_that_fails_says_why_and_is_not_begun_again() -> None:
    measuring = CostPass({"a": {}}, 2, 1, 1, False, lambda line: None)
    measuring.run()
    assert measuring.found == {} and measuring.wrong == {"a": "KeyError: 'trainer'"}


def test_an_arm_that_cannot_be_measured_is_named_and_the_others_are_kept(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CostPass, "_measure", pretend)
    manifest = json.loads((study / "manifest.json").read_text())
    trial = next(cell["trial"] for cell in manifest["cells"] if cell["arm"] == "without")
    path = study.parents[1] / "trials" / trial / "config.yaml"
    path.write_text(path.read_text().replace("devices: 1", "devices: 2"))
    assert cost(study, "--measure") == 1
    assert "without was not costed: it trains on 2 devices" in capsys.readouterr().err
    assert len(list((study.parents[1] / "costs").glob("*/*.json"))) == 1


def test_costs_of_settings_that_an_arm_no_longer_has_are_not_shown(study: Path) -> None:
    assert cost(study) == 0
    index = json.loads((study / "costs.json").read_text())
    index["arms"][0]["trial"] = "0" * 16
    (study / "costs.json").write_text(json.dumps(index))
    problems: list[str] = []
    costs = read_costs(read_manifest(study), study, study.parents[1], problems)
    assert list(costs.counted) == [("without", "")] and problems == []
    (study / "costs.json").write_text("{")
    assert read_costs(read_manifest(study), study, study.parents[1], problems).counted == {}
    assert len(problems) == 1 and "cannot be read" in problems[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["bias", "--rounds", "2"], "--rounds does nothing here"),
        (["bias", "--measure", "--batch", "2"], "--batch does nothing here"),
        (["task=copy", "--measure"], "--measure is for the arms of a study"),
    ],
    ids=["not-measured", "of-a-configuration", "of-a-study"],
)
def test_options_that_would_do_nothing_are_refused(
    study: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [f"runs_dir={study.parents[1]}"] if options[0] == "bias" else []
    assert main(["cost", *options, *runs]) == 2
    assert message in capsys.readouterr().err


def test_a_median_over_rounds_is_the_step() -> None:
    assert Measured((3.0, 1.0, 2.0), 8, 5, 4, None, 1, "", False).speed == 4.0
