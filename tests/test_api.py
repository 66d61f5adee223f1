"""The Python interface: its guide runs as it stands, and it gives and refuses what the commands do."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import swapformer as sf
from swapformer.errors import UsageError
from swapformer.paths import experiments_dir
from swapformer.study.run_study import StudyFailed, StudyResult

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "python.md"
PUBLIC = ("build", "build_report", "compose", "load_trial", "read_records", "run_study", "show")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    """What the code of the guide prints, run from the first line to the last as a script of a user's."""
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S))
    (folder / "guide.py").write_text(code)
    done = subprocess.run([sys.executable, "guide.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_runs_as_a_script(printed: str, folder: Path) -> None:
    """Without a guard against being imported, as in a notebook."""
    count, verdict, page, *rest = printed.splitlines()
    assert int(count) > 50_000
    assert verdict.startswith("alibi copies better → ")
    assert (folder / page).is_file()
    assert rest[-2:] == ["finished 20", "Decoder Copy"]


def test_records_have_a_row_for_each_trial_and_metric(printed: str, folder: Path) -> None:
    frame = sf.read_records("copying", folder / "runs")
    losses = frame[frame["metric"] == "val/loss"]
    assert sorted(zip(losses["arm"], losses["seed"], strict=True)) == [
        ("alibi", 0), ("alibi", 1), ("none", 0), ("none", 1),
    ]  # fmt: skip
    for trial, value in zip(losses["trial"], losses["value"], strict=True):
        assert sf.load_trial(trial, folder / "runs").record.metrics["val/loss"] == pytest.approx(value)


def test_a_trial_without_a_result_keeps_a_row(printed: str, folder: Path) -> None:
    """An average over the frame would not know of it otherwise."""
    frame = sf.read_records("copying", folder / "runs")
    trial = frame["trial"][0]
    record = folder / "runs" / "trials" / trial / "record.json"
    kept = record.read_text()
    failed = {name: value for name, value in json.loads(kept).items() if name != "check"} | {"status": "failed"}
    record.write_text(json.dumps(failed))
    try:
        rows = sf.read_records("copying", folder / "runs").query("trial == @trial")
    finally:
        record.write_text(kept)
    assert list(rows["status"]) == ["failed"] and math.isnan(rows["value"].iloc[0])


def test_a_published_study_is_read_from_its_folder() -> None:
    frame = sf.read_records(experiments_dir() / "04_head_count" / "width")
    losses = frame[(frame["metric"] == "val/loss") & (frame["arm"] == "h8")]
    assert len(losses) == 10 and losses["value"].between(1.2, 1.35).all()
    assert set(losses["model.num_heads"]) == {"8"}


def test_settings_of_arms_and_conditions_stand_beside_results() -> None:
    frame = sf.read_records(experiments_dir() / "07_position_encodings" / "addition")
    sums = frame[(frame["metric"] == "val/exact_match") & (frame["model/position"] == "alibi")]
    assert set(sums["arm"]) == {"alibi"} and set(sums["task"]) == {"addition", "addition_padded"}
    assert (sums["condition"] == "task=" + sums["task"]).all()


def test_a_report_is_built_again(printed: str, folder: Path) -> None:
    report = sf.build_report("copying", folder / "runs")
    assert (report.directory / "report.html") in report.files and len(report.verdicts) == 1


def test_a_built_model_has_the_weights_that_the_seed_draws() -> None:
    overrides = ["task=copy", "model.d_model=16", "model.num_heads=2"]
    first, again, other = (sf.build([*overrides, f"seed={seed}"])[0].state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_configuration_that_was_changed_by_hand_is_checked_before_it_is_built() -> None:
    for node, key, value, words in (
        ("model", "typo", 1, "typo"), ("optim", "lr", "fast", "`optim.lr` must be"),
        ("model", "d_model", 30, "must divide"),
    ):  # fmt: skip
        config = sf.compose(["task=copy"])
        config[node][key] = value
        with pytest.raises(UsageError, match=words):
            sf.build(config)


def test_a_text_of_overrides_is_composed_as_a_shell_would_read_it() -> None:
    assert sf.compose("task=copy 'task.lengths=[2, 4]'") == sf.compose(["task=copy", "task.lengths=[2, 4]"])


def test_composing_refuses_what_does_not_go_together() -> None:
    with pytest.raises(UsageError, match="mixes all positions"):
        sf.compose(["task=copy", "model/attention=linformer"])
    with pytest.raises(UsageError, match="alibi"):
        sf.compose(["task=copy", "model/position=alibbi"])


def test_parts_are_drawn_and_tasks_told() -> None:
    figure = sf.show("model/activation=gelu")
    assert not isinstance(figure, str) and figure.axes
    text = sf.show("task=copy")
    assert isinstance(text, str) and len(text.splitlines()) > 3
    with pytest.raises(UsageError, match="what can be shown"):
        sf.show("model/block=parallel")


def test_a_study_that_is_not_there_and_a_scale_of_no_folder_are_refused(printed: str, folder: Path) -> None:
    with pytest.raises(UsageError, match="is not in"):
        sf.read_records("copied", folder / "runs")
    with pytest.raises(UsageError, match="is not one"):
        sf.read_records("copying", folder / "runs", scale="gpu")
    with pytest.raises(UsageError, match="remove it"):
        sf.read_records(experiments_dir() / "04_head_count" / "width", folder)
    with pytest.raises(UsageError, match="no store"):
        sf.build_report("copying", folder / "elsewhere")


def test_a_study_with_trials_that_have_no_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one trial that failed and one that diverged, which is a result."""
    report: Any = None
    result = StudyResult(report, {"a1": "failed", "b2": "diverged"}, report)
    monkeypatch.setattr("swapformer.tools.studies.run_locally", lambda *_, **__: result)
    with pytest.raises(StudyFailed, match="1 of 2 trials have no result"):
        sf.run_study({"baseline": "a", "arms": {"a": [], "b": ["model.num_layers=1"]}})


def test_the_interface_is_listed_and_named_apart_from_folders() -> None:
    """A function with a folder's name would hide it from `import swapformer.report`."""
    folders = {path.stem for path in Path(sf.__file__).parent.iterdir()}
    assert set(PUBLIC) <= set(dir(sf)) and not set(PUBLIC) & folders
    for name in PUBLIC:
        assert getattr(sf, name).__doc__
    with pytest.raises(AttributeError, match="its functions are"):
        sf.train_everything  # noqa: B018


@pytest.mark.parametrize("module", ["swapformer, swapformer.api", "swapformer.results"])
def test_importing_brings_no_torch(module: str) -> None:
    code = (
        f"import sys, {module}; swapformer.run_study; "
        "print(sorted({'torch', 'hydra', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "swapformer", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sf.__version__
