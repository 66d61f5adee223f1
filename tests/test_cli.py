"""The command line: what it prints, what it refuses, how it ends. Trainings here are real and take two steps."""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

import walks
from benchmarks.__main__ import main as benchmark
from hydra_plugins.swapformer.sweeper import StudySweeper
from swapformer.cli import main
from swapformer.paths import conf_dir

STUDY = """
question: Does a copy need positions?
baseline: rope
arms:
  rope: [model/position=rope]
  none: [model/position=none]
overrides: [task=copy, "task.eval_lengths=[]", budget.steps=2, schedule.warmup_steps=0,
            eval.final_batches=1, model.d_model=16, probes=head_similarity]
seeds: 2
metrics: [val/loss, probe/head_similarity]
claims:
  - {text: "without it is worse", worse: {arm: none, than: rope, metric: val/loss, margin: 0.0}}
"""


@dataclass
class OfAnotherPlugin:
    _target_: str = "hydra_plugins.another.Launcher"


SHARED = ["task=copy", "task.eval_lengths=[]", "budget.steps=2", "eval.final_batches=1", "model.d_model=16"]
SHARED += ["schedule.warmup_steps=0"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a study in it that has been run once."""
    place = tmp_path_factory.mktemp("cli")
    (place / "positions.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("SWAPFORMER_PACKAGES", "failing")  # the server of trials keeps what it was started with
        assert main(["study", "positions.yaml"]) == 0
    return place


@pytest.fixture(autouse=True)
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own copy of it, in which the test is."""
    place = tmp_path / "cli"
    shutil.copytree(prepared, place)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["swapformer"])
    return place


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    """What a command prints with --json."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command refuses."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("swapformer: error: ")
    return captured.err.removeprefix("swapformer: error: ").strip()


def records(place: Path) -> Iterator[Path]:
    return (place / "runs" / "trials").glob("*/record.json")


def test_help_imports_neither_torch_nor_hydra() -> None:
    """What keeps it under a second."""
    code = "import sys; from swapformer.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    heavy = "print(sorted({'torch', 'hydra', 'lightning', 'numpy', 'yaml', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + heavy], capture_output=True, text=True, check=True)
    assert "study" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_sweeper_of_others_is_told_and_tells_what_each_trial_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hydra's own, as Optuna's, prints nothing."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-m", "hydra/sweeper=basic", *SHARED, "seed=7", "optim.lr=1e-3,1e-2,1e9"]) == 0
    first, second, diverged, best = capsys.readouterr().out.splitlines()
    values = [float(line.split("val/loss ")[1].split()[0]) for line in (first, second)]
    assert first.startswith("optim.lr=0.001: val/loss ") and second.startswith("optim.lr=0.01: val/loss ")
    assert diverged.startswith("optim.lr=1000000000.0: val/loss inf (trial ")
    assert best == f"best so far: {(first, second)[values[1] < values[0]]}"


def test_a_study_trains_its_cells_once_and_reports(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "study", "positions.yaml")
    assert found["trials"] == {"finished": 4}
    assert found["verdicts"][0]["text"] == "without it is worse"
    assert found["failed"] == {}
    assert found["scale"] == "" and not any("scale" in caveat for caveat in found["caveats"])
    before = {path: path.stat().st_mtime_ns for path in records(place)}
    again = printed(capsys, "study", "positions.yaml", "seeds=3")
    assert again["trials"] == {"finished": 6}
    after = {path: path.stat().st_mtime_ns for path in records(place)}
    assert before.items() <= after.items() and len(after) == len(before) + 2
    folder = place / "runs" / "studies" / "positions"
    assert (folder / "report" / "report.html").stat().st_size > 1000
    assert json.loads((folder / "manifest.json").read_text())["seeds"] == [0, 1, 2]


def test_a_report_is_rebuilt_from_the_store(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = place / "runs" / "studies" / "positions" / "report" / "report.html"
    page.unlink()
    assert printed(capsys, "report", "pos")["study"] == "positions"
    assert page.exists()
    assert "is not in" in complaint(capsys, "report", "elsewhere")


@pytest.mark.parametrize("store", ["runs", "elsewhere/my runs"])
def test_the_command_that_is_told_to_draw_the_page_again_draws_it(
    store: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if store != "runs":
        shutil.copytree(place / "runs", place / store)
    assert main(["study", "positions.yaml", f"runs_dir={store}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    told = shlex.split(re.search(r"`swapformer (report .*?)` draws it", said)[1])  # type: ignore[index]
    page = place / store / "studies" / "positions" / "report" / "report.html"
    page.unlink()
    assert main(told) == 0 and page.is_file()


def test_a_study_that_asks_something_else_draws_its_page_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is trained, but a page with the old question would contradict what is printed."""
    file, page = place / "positions.yaml", place / "runs" / "studies" / "positions" / "report" / "report.html"
    before = file.read_text()
    try:
        for text, drawn in (
            (before, None),
            (before, False),
            (before.replace("Does a copy need positions?", "Is it another one now?"), True),
        ):
            file.write_text(text)
            stamp = page.stat().st_mtime_ns
            assert main(["study", "positions.yaml"]) == 0
            assert drawn is None or (page.stat().st_mtime_ns != stamp) is drawn
        assert "Is it another one now?" in page.read_text()
    finally:
        file.write_text(before)
        assert main(["study", "positions.yaml"]) == 0
    assert "it another one now?" not in page.read_text()


def test_a_name_that_is_cut_is_told_and_an_option_is_not_taken_for_a_longer_one(
    place: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["report", "pos"]) == 0
    assert "pos is short for positions, the only study here whose name begins with it" in caplog.text
    trial = next((place / "runs" / "trials").iterdir()).name
    with pytest.raises(SystemExit):
        main(["sample", trial, "--prompt", "1", "--length", "5"])
    assert "unrecognized arguments: --length" in capsys.readouterr().err


def test_an_exercise_runs_all_its_parts_which_share_trials(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is trained here: both parts ask for what the study at the top has trained, and so find it."""
    before = {path: path.stat().st_mtime_ns for path in records(place)}
    for part in ("all", "again"):
        (place / "01_positions" / part).mkdir(parents=True)
        (place / "01_positions" / part / "study.yaml").write_text(STUDY)
    found = printed(capsys, "study", "01_positions", "--slots", "1")
    assert [each["study"] for each in found] == ["01_positions/again", "01_positions/all"]
    ids = [
        {
            cell["trial"]
            for cell in json.loads((place / "runs/studies" / each["study"] / "manifest.json").read_text())["cells"]
        }
        for each in found
    ]
    assert ids[0] == ids[1] and len(ids[0]) == 4
    assert {path: path.stat().st_mtime_ns for path in records(place)} == before
    assert (place / "runs/studies/01_positions/all/report/report.html").is_file()
    assert [state["study"] for state in printed(capsys, "status", "01_positions")] == [
        "01_positions/again", "01_positions/all",
    ]  # fmt: skip
    assert printed(capsys, "status", "01_positions/al")["study"] == "01_positions/all"
    assert printed(capsys, "report", "01_positions/all", "positions")["studies"][0]["name"] == "01_positions/all"
    said = complaint(capsys, "study", "01_positions", "seeds=3")
    assert "'seeds=3' was given; name one of 01_positions/again, 01_positions/all" in said


def test_a_part_that_fails_loses_no_other_and_the_worst_status_is_returned(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, text in {"a": STUDY.replace("model.d_model=16", "model.d_modl=16"), "b": STUDY}.items():
        (place / "02_failing" / part).mkdir(parents=True)
        (place / "02_failing" / part / "study.yaml").write_text(text)
    assert [each["study"] for each in printed(capsys, "study", "02_failing", status=2)] == ["02_failing/b"]
    (place / "02_failing/b/study.yaml").write_text(STUDY.replace("baseline: rope", "baseline: rop"))
    assert "the baseline must be one of the arms" in complaint(capsys, "study", "02_failing"), "before anything is run"


def test_a_part_goes_on_with_the_looks_of_the_study_that_its_exercise_was(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was `03_was`, judged at two seeds; with three, as `03_was/all`, the look at two is paid for."""
    (place / "03_was" / "all").mkdir(parents=True)
    (place / "03_was" / "study.yaml").write_text(STUDY)
    assert main(["study", "03_was"]) == 0
    shutil.move(place / "03_was" / "study.yaml", place / "03_was" / "all")
    assert main(["study", "03_was/all", "seeds=3"]) == 0
    series = json.loads((place / "runs/studies/03_was/all/manifest.json").read_text())["ledger"]["series"]
    assert [list(look["trials"]) for look in series[0]["looks"]] == [["0", "1"], ["2"]]
    assert json.loads((place / "runs/studies/03_was/manifest.json").read_text())["seeds"] == [0, 1], "it is kept"


def test_train_reuses_the_trial_that_the_study_has_run(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["train", "model/position=none", *SHARED, "seed=1"]) == 0
    assert "finished (from the store)" in capsys.readouterr().out


def test_what_hydra_tells_of_itself_stands_there_once() -> None:
    asked = [sys.executable, "-m", "swapformer", "train", "--info", "task=copy"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=240, check=True)
    assert (told.stdout + told.stderr).count("Installed Hydra Plugins") == 1


def test_a_plain_sweep_reuses_them_too_and_is_a_study_of_its_own(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(records(place))
    assert main(["train", "-m", "model/position=none,rope", *SHARED, "seed=0,1", "hydra.sweeper.name=plain"]) == 0
    assert set(records(place)) == before
    manifest = json.loads((place / "runs" / "studies" / "plain" / "manifest.json").read_text())
    assert list(manifest["arms"]) == ["none", "rope"] and manifest["seeds"] == [0, 1]
    assert (place / "runs" / "studies" / "plain" / "report" / "table.md").exists()
    assert not (place / "multirun.yaml").exists()


@pytest.mark.parametrize(("size", "handed"), [(None, [["a", "b", "c"]]), (2, [["a", "b"], ["c"]])])
def test_a_sweep_hands_no_more_trials_at_a_time_than_it_is_told(size: int | None, handed: list[list[str]]) -> None:
    """`hydra.sweeper.max_batch_size`, under our launchers and under others."""
    given: list[Any] = []
    ours = SimpleNamespace(make_launcher=lambda *_: given.append)
    others = SimpleNamespace(launch=lambda jobs, initial_job_idx: given.append([one for (one,) in jobs]))
    for launcher in (ours, others):
        sweeper: Any = StudySweeper(max_batch_size=size)
        sweeper.launcher = launcher
        trials: Any = ["a", "b", "c"] if launcher is ours else [SimpleNamespace(overrides=[name]) for name in "abc"]
        sweeper._launch(None, SimpleNamespace(tick=None))(trials)
    assert given == [*handed, *handed]


def test_a_study_under_another_launcher_ends_in_the_same_records(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "positions.yaml", "seeds=3"]) == 0
    before = set(records(place))
    assert main(["study", "positions.yaml", "seeds=3", "hydra/launcher=basic"]) == 0
    assert set(records(place)) == before
    assert "without it is worse" in capsys.readouterr().out


def test_a_plain_sweep_compares_what_is_asked_for(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(records(place))
    sweep = ["train", "-m", "model/position=none,rope", *SHARED, "seed=0,1", "hydra.sweeper.name=asked"]
    assert main([*sweep, "hydra.sweeper.metrics=[val/accuracy,val/loss]"]) == 0
    assert set(records(place)) == before, "the trials are the other sweep's"
    rows = (place / "runs/studies/asked/report/results.csv").read_text().splitlines()
    assert {row.split(",")[3] for row in rows[1:] if ",stated," not in row} == {"val/accuracy", "val/loss"}
    assert main([*sweep, "hydra.sweeper.metrics=[loss]"]) == 2
    assert "must be a list of names such as val/loss" in capsys.readouterr().err


def test_options_of_the_launcher_are_its_settings_and_may_stand_before_overrides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    endless = ["seeds=[0]", "budget.steps=1000000"]
    found = printed(capsys, "study", "positions.yaml", "--time-limit", "0.02", "--slots", "2", *endless, status=1)
    assert set(found["failed"].values()) == {"interrupted"} and len(found["failed"]) == 2
    for record in printed(capsys, "trials", *found["failed"]):
        assert record["reason"] == "it ran into the time limit of 0.02 minutes"
    assert main(["trials", "prune", "--status", "interrupted", "--whole", "--remove", "--yes"]) == 0
    known = printed(capsys, "study", "positions.yaml", "seeds=3")
    again = printed(capsys, "study", "positions.yaml", "hydra.launcher.retries=0", "seeds=3")
    assert {**again, "files": []} == {**known, "files": []}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--slots=0", "launcher.slots` must be a whole number of at least 1"),
        ("--slots-per-gpu=2", "settings of GPUs (slots_per_gpu) need trials"),
        ("--retries=-1", "launcher.retries` must be a whole number of at least 0"),
        ("--time-limit=0", "launcher.time_limit` must be a number above 0"),
        ("hydra.launcher.gpus=[0]", "settings of GPUs (gpus) need trials"),
        ("hydra.launcher.slot=2", "slot"),
    ],
)
def test_a_setting_of_the_launcher_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], option: str, why: str
) -> None:
    assert why in complaint(capsys, "study", "positions.yaml", "seeds=[0,1,2,6]", option, "--json")


@pytest.mark.parametrize(("launcher", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_launcher_whose_package_is_missing_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, launcher: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # what Python takes for a package that is not there
    said = complaint(capsys, "study", "positions.yaml", "seeds=[0,1,2,6]", f"hydra/launcher={launcher}")
    assert f"needs the package {package}, which is not installed; pip install 'swapformer[{launcher}]'" in said


def test_a_plugin_with_a_launcher_of_the_same_name_is_named_as_what_is_in_the_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hydra-ray-launcher does when it is imported; Hydra then takes its settings for the schema of ours."""
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", copy.deepcopy(store.repo))
    store.store("ray", OmegaConf.structured(OfAnotherPlugin), group="hydra/launcher", provider="another")
    with pytest.warns(UserWarning, match="validated against ConfigStore schema"):
        said = complaint(capsys, "study", "positions.yaml", "seeds=[0,1,2,6]", "hydra/launcher=ray")
    assert "uninstall that one (hydra-ray-launcher)" in said


def test_a_probe_that_fails_is_status_one_and_costs_no_training(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "failing.py").write_text(
        "from swapformer.probes.base import Probe\n\n\nclass Failing(Probe):\n"
        "    def measure(self, model, task):\n        raise RuntimeError('it leads nowhere')\n"
    )
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "failing")
    broken = "+probes.broken._target_=failing.Failing"
    found = printed(capsys, "study", "positions.yaml", "seeds=3", broken, status=1)
    assert set(found["failed"].values()) == {"failed"} and len(found["failed"]) == 6
    (record,) = printed(capsys, "trials", next(iter(found["failed"])))
    assert record["status"] == "finished" and "nowhere" in record["notes"][0]


def test_a_probe_that_is_not_there_is_refused_before_anything_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "+probes.broken._target_=swapformer.nowhere.Probe"
    assert main(["study", "positions.yaml", "seeds=[7]", nowhere]) == 2
    assert "swapformer.nowhere.Probe" in capsys.readouterr().err
    assert printed(capsys, "trials", "--config", "seed=7") == []


def test_trials_are_listed_filtered_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "trials")
    assert {record["status"] for record in found} == {"finished"}
    assert printed(capsys, "trials", "--status", "killed") == []
    assert main(["trials", "--status", "killed", "--json"]) == 0
    assert capsys.readouterr() == ("[]\n", "swapformer: no trial matches\n")
    assert printed(capsys, "trials", found[0]["id"][:12])[0] == found[0]
    of_none = printed(capsys, "trials", "--study", "pos", "--arm", "none")
    assert of_none and of_none == printed(capsys, "trials", "--study", "pos", "--config", "position.Position")
    assert [record["seed"] for record in printed(capsys, "trials", "--config", "seed=0", "--arm", "none")] == [0]
    assert main(["trials"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found)
    assert sum("positions/none" in line for line in lines) == len(of_none)


def test_two_trials_are_compared_by_the_leaves_of_their_configs(capsys: pytest.CaptureFixture[str]) -> None:
    pair = [record["id"] for record in printed(capsys, "trials", "--config", "seed=0")]
    found = printed(capsys, "trials", "compare", *pair)
    assert all(name.startswith("model.position") for name in found["config"]), "only this changed"
    assert "swapformer.model.position.Rotary" in found["config"]["model.position._target_"]
    assert set(found["metrics"]) >= {"val/loss"}
    assert main(["trials", "compare", *pair]) == 0
    assert f"{len(found['config'])} leaves of the configs differ" in capsys.readouterr().out


def test_pruning_only_shows_until_it_is_told_to_remove(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = f"runs_dir={shutil.copytree(place / 'runs', tmp_path / 'runs')}"
    shown = printed(capsys, "trials", "prune", copy)
    assert shown["removed"] == [] and all(entry["bytes"] > 1000 for entry in shown["found"])
    assert printed(capsys, "trials", "prune", copy) == shown
    assert "is no terminal; give --yes" in complaint(capsys, "trials", "prune", copy, "--remove")
    gone = printed(capsys, "trials", "prune", copy, "--remove", "--yes")
    assert gone["removed"] == [entry["trial"] for entry in shown["found"]]
    assert printed(capsys, "trials", "prune", copy)["found"] == []
    assert len(printed(capsys, "trials", copy)) == len(shown["found"]), "the numbers stay"
    ours = {record["id"] for record in printed(capsys, "trials", copy, "--study", "p")}
    orphans = {entry["trial"] for entry in printed(capsys, "trials", "prune", copy, "--whole", "--orphans")["found"]}
    assert orphans == {entry["trial"] for entry in shown["found"]} - ours
    assert printed(capsys, "trials", "prune", copy, "--whole", "--arm", "none", "--remove", "--yes")["removed"]
    assert printed(capsys, "status", "pos", copy)["arms"]["none"].keys() == {"missing"}


def test_the_status_of_a_study_says_what_has_ended_and_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "status", "pos")
    assert found["study"] == "positions" and found["running"] == [] and found["left"] is None
    assert found["counts"].keys() == {"finished"}
    assert {arm: sum(counts.values()) for arm, counts in found["arms"].items()} == {
        arm: len(printed(capsys, "trials", "--study", "pos", "--arm", arm)) for arm in ("rope", "none")
    }
    assert main(["status", "pos"]) == 0
    assert "positions:" in capsys.readouterr().out
    assert printed(capsys, "status")[0].keys() == found.keys()


def test_the_catalogue_has_every_option_and_a_line_about_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "list")
    for path in conf_dir().glob("model/*/*.yaml"):
        assert found[f"model/{path.parent.name}"][path.stem], f"{path} has neither a comment nor a docstring"
    assert set(found["task"]) == {path.stem for path in conf_dir().glob("task/*.yaml")}
    assert list(printed(capsys, "list", "model/norm")) == ["model/norm"]


def test_the_help_of_train_lists_groups_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert "alibi" in text and "+preset" in text and "budget:" in text
    assert "  task/tokeniser " in text, "a group that a task's option chooses from"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("train model/position=albi", "unknown option 'albi' for model/position; did you mean 'alibi'?"),
        ("train model/positon=alibi", "unknown group 'model/positon'; did you mean 'model/position'"),
        ("train model.num_head=2", "unknown key 'num_head' in model; did you mean 'num_heads'?"),
        ("train preset=nanogpt_cpu", "preset must be added, since nothing chooses from it by default: write +preset=…"),
        ("train model.position=alibi", "write model/position=alibi"),
        ("train seed", "cannot read the override 'seed'"),
        ("train --jobs", "unknown option --jobs"),
        ("train --info --info", "the option --info was given twice"),
        ("train -m -m task=copy", "the option -m was given twice"),
        ("train -m --cfg hydra task=copy", "--cfg shows one configuration, not a sweep: leave out -m"),
        ("train task=copy hydra.sweeper.name=mine", "hydra.sweeper.name is a setting of a sweep; add -m"),
        ("train --info plugin", "--info has no value 'plugin'; did you mean 'plugins'?"),
        ("train task=copy model.num_heads=7", "7 does not divide 64"),
        ("train task=copy runs_dir=/proc/nowhere", "runs_dir must be a directory that can be written"),
        ("train task=copy task/tokeniser=bpe", "nothing here reads task/tokeniser: another task has been chosen"),
        ("train task/source=files task.source.pth=x", "unknown key 'pth' in task.source; did you mean 'path'?"),
        ("train task/source=files", "task.source.path must be given, since it has no default"),
        ("train task/source=files task.source.path=/nowhere", "there is nothing at '/nowhere'"),
        ("train -m task=copy model/position=rope,albi", "unknown option 'albi'"),
        ("train -m task=copy seed=a,b", "seed must be a whole number"),
        ("study nowhere.yaml", "no study file nowhere.yaml"),
        ("train -m hydra/sweeper=nevergrad task=copy", "pip install hydra-nevergrad-sweeper"),
        ("study no_such_study", "no study 'no_such_study'"),
        ("study positions.yaml scale=gpu", "has no scales"),
        ("study positions.yaml scale=cpu", "has no scales"),
        ("study positions.yaml seeds=none", "`seeds` must be"),
        ("study positions.yaml model.num_head=2", "all arms: unknown key 'num_head'"),
        ("study positions.yaml model/position=alibi", "must not set model/position, which makes arm 'rope'"),
        ("study positions.yaml budget.steps=3 --slots 0", "launcher.slots` must be a whole number of at least 1"),
        ("study positions.yaml runs_dir=/proc/nowhere", "runs_dir must be a directory that can be written"),
        *(
            (f"{verb} runs_dir=positions.yaml", "runs_dir must be a directory that can be written, but")
            for verb in ("train task=copy", "study positions.yaml", "trials", "trials prune", "status", "report pos")
        ),
        ("sample zz --prompt a runs_dir=positions.yaml", "runs_dir must be a directory that can be written, but"),
        ("export zz out --format gpt2 runs_dir=positions.yaml", "runs_dir must be a directory that can be written"),
        *(
            (f"{verb} runs_dir=elsewhere", "there is no store in")
            for verb in ("trials", "trials compare a b", "trials prune", "status", "report pos")
        ),
        ("trials zz", "no trial 'zz'"),
        ("trials task=copy", "only runs_dir=…"),
        ("trials --study nothing", "no study 'nothing'"),
        ("trials --arm alibi", "no arm 'alibi'"),
        ("trials compare zz", "two trials are compared, but 1 was named"),
        ("status nothing", "'nothing' is not in"),
        ("status a b", "one study is shown at a time"),
        ("list model/positions", "did you mean 'model/position'"),
    ],
)
def test_wrong_use_is_one_clear_line(capsys: pytest.CaptureFixture[str], arguments: str, expected: str) -> None:
    assert expected in complaint(capsys, *arguments.split())


def run(arguments: str) -> int:
    """A command of swapformer, or of the benchmarks beside it."""
    words = arguments.split()
    return benchmark(words[1:]) if words[0] == "benchmarks" else main(words)


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            f"benchmarks reliability {option}"
            for option in ("--kills -1", "--kills 0", "--offsets 0", "--listed -5", "--reported 0", "--rounds -1")
        ),
        "benchmarks corpus --megabytes 0",
        "cost task=copy --batch x",
    ],
)
def test_what_is_counted_is_at_least_one(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A measurement of nothing would meet every target."""
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    *_, option, number = arguments.split()
    complaint = f"argument {option}: it must be a whole number of at least 1, but it is '{number}'"
    assert stop.value.code == 2 and complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("trials --status finish", "argument --status: no status 'finish'; did you mean 'finished'?"),
        ("benchmarks reliability kils", "no disturbance 'kils'; did you mean 'kills'?"),
        ("benchmarks parts kernel", "no group 'kernel'; did you mean 'kernels'?"),
    ],
)
def test_a_word_that_is_none_of_those_that_fit_is_refused(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    assert stop.value.code == 2 and complaint in capsys.readouterr().err


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(ValueError, match="no trial 'zz'"):
        main(["trials", "zz", "--debug"])


def test_an_unknown_verb_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["stuby"])
    assert stop.value.code == 2 and "unknown command 'stuby'; did you mean 'study'?" in capsys.readouterr().err


def test_an_experiment_of_ones_own_sets_several_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/guides/hydra.md: its file, and the commands that show what it makes."""
    page = walks.section(Path(__file__).parents[1] / "docs" / "guides" / "hydra.md", "Folders of your own")
    walks.write(tmp_path, walks.files(page))
    monkeypatch.chdir(tmp_path)
    (command, *_) = walks.commands(page)
    assert command == ["swapformer", "train", "--config-dir", "conf", "+experiment=small_copy"]
    assert main([*command[1:], "--cfg", "job"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert (made["model"]["num_layers"], made["budget"]["steps"]) == (1, 60)
    assert made["task"]["_target_"].endswith("Copy") and made["model"]["position"]["_target_"].endswith("ALiBi")


LIGHT = """
import contextlib, io, json, sys
from swapformer.cli import main
names, lines = json.loads(sys.argv[1])
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
    found = [(main(line), [name for name in names if name in sys.modules]) for line in lines]
print(json.dumps(found))
"""


def imported(names: Sequence[str], *lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The exit status of each command in one fresh process, and which of some packages it has imported by then."""
    command = [sys.executable, "-c", LIGHT, json.dumps([names, lines])]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [(status, packages) for status, packages in found]


def test_looking_imports_no_torch_and_composing_no_lightning(tmp_path: Path) -> None:
    """Commands that train nothing answer without waiting for what trains."""
    runs = f"runs_dir={tmp_path}"
    copy_study = ("study", "07_position_encodings/copy", "scale=smoke")
    (typo := tmp_path / "typo.yaml").write_text(
        "baseline: a\narms: {a: [], b: [model/position=alibi]}\noverrides: [task=copy]\nmetrics: [val/los]\n"
    )
    looking = [
        ("trials", runs), ("status", "nothing", runs), (*copy_study[:2], "scale=none", runs),
        (*copy_study, "optim.lrr=1", runs), ("train", "optim.lrr=1", runs),
        (*copy_study, "model/position=ropee", "--dry-run", runs),
    ]  # fmt: skip
    composing = [("study", str(typo), runs), (*copy_study, "model.num_heads=7", "--dry-run", runs)]
    heavy = ("lightning", "torchmetrics", "matplotlib")
    *light, last = imported(("torch", "torch._dynamo", "scipy", *heavy), *looking, *composing)
    assert light == [(2, [])] * 6 + [(2, ["torch"])]
    assert last[0] == 2 and not set(last[1]) & set(heavy)
