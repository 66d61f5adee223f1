"""CONTRIBUTING's walk, done as it says: its files are written, its commands run, what it promises is checked."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import walks
from configs import small
from swapformer.cli import main
from swapformer.conformance import LAWS, BrokenLaw, examine
from swapformer.conformance.subject import Subject
from swapformer.report.records import read
from swapformer.results.shapes import Profile
from walks import write

GUIDE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
PART = "my_parts/clipped.py"


def walk(what: str = "part") -> str:
    """The section that a user follows who adds a part or a probe."""
    return walks.section(GUIDE, f"Add a {what} in five minutes")


def files(what: str = "part") -> dict[str, str]:
    """Name → content of the walk's files."""
    return walks.files(walk(what))


def commands(what: str = "part") -> list[list[str]]:
    """The words of the walk's commands."""
    return walks.commands(walk(what))


def exported(what: str = "part") -> dict[str, str]:
    """The environment that the walk's first command makes."""
    (_, setting) = commands(what)[0]
    name, _, value = setting.partition("=")
    return {name: value}


def test_the_set_up_names_the_target_that_installs_what_the_page_runs() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    project = tomllib.loads((GUIDE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = " ".join([*project["dependencies"], project["name"]])
    tools = {name for pair in re.findall(r"python -m ([\w-]+)|`\.venv/bin/([\w-]+)", guide) for name in pair if name}
    extra = {name for name in tools if name not in installed}
    developing = {re.split(r"[^\w-]", each)[0] for each in project["optional-dependencies"]["dev"]}
    assert {"pytest", "pre-commit"} <= extra - {"benchmarks", "docs"} <= developing  # folders of this repository
    assert "make install-dev" in guide.split("## Set-up")[1].split("\n## ")[0] and "`make install-dev`" in walk()
    assert "\ninstall-dev:" in (GUIDE.parent / "Makefile").read_text(encoding="utf-8")


IN_TURN = """
import json, shutil, sys
from swapformer.cli import main
for number, words in enumerate(json.loads(sys.argv.pop())):
    sys.argv = ["swapformer", *words]
    assert main(words) == 0
    shutil.copytree("runs", f"after_{number}")
"""


def run(typed: list[list[str]], place: Path) -> str:
    """What `swapformer …` commands of the walk print when a user types them in `place`; the store after each is kept.

    In one process, since to start one takes longer than to do what it is asked.
    """
    assert all(words[0] == "swapformer" for words in typed), typed
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps([words[1:] for words in typed])],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, **exported()},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder with the walk's files in it."""
    place = tmp_path_factory.mktemp("walk")
    write(place, files())
    return place


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in exported().items():
        monkeypatch.setenv(name, value)


def records(runs: Path) -> dict[str, dict[str, Any]]:
    """A store's records, by id."""
    return {path.parent.name: json.loads(path.read_text()) for path in runs.glob("trials/*/record.json")}


def targets(runs: Path) -> list[str]:
    """The position encoding of every trial in a store."""
    configs = [yaml.safe_load(path.read_text()) for path in runs.glob("trials/*/config.yaml")]
    return sorted(config["model"]["position"]["_target_"].rpartition(".")[2] for config in configs)


def test_the_walk_has_the_files_and_commands_that_are_checked_here() -> None:
    assert list(files()) == [PART, "conf/model/position/clipped.yaml", "test_clipped.py", "my_study.yaml"]
    assert [words[:3] for words in commands()] == [
        ["export", "SWAPFORMER_PACKAGES=my_parts"],
        ["python", "-m", "pytest"],
        ["swapformer", "train", "-m"],
        ["swapformer", "study", "my_study.yaml"],
    ]


@pytest.mark.evidence
def test_a_part_of_the_users_own_is_swept_and_stands_in_the_report(place: Path) -> None:
    """The sweep and then the study, which shares the sweep's trials: both are one story, told once."""
    printed = run(commands()[-2:], place)
    assert "rope" in printed and "clipped" in printed
    runs = place / "after_0"
    assert (runs / "studies/first_look/report/report.html").is_file()
    swept = records(runs)
    assert [record["status"] for record in swept.values()] == ["finished"] * 4
    assert targets(runs) == ["Clipped", "Clipped", "Rotary", "Rotary"]

    assert records(place / "after_1") == swept, "the study trains nothing: its trials are the sweep's"
    folder = place / "runs/studies/my_study"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest["arms"]) == ["rope", "clipped"] and manifest["impossible"] == []
    assert {cell["trial"] for cell in manifest["cells"]} == set(swept)
    page = (folder / "report/report.html").read_text()
    assert "it is as good at trained lengths" in page and "clipped" in page
    assert "clipped" in (folder / "report/results.csv").read_text()


def small_with(module: str) -> dict[str, Any]:
    """The small model of the laws' tests with the class `Clipped` of a module in it, set by the walk's YAML."""
    config = small()
    node = yaml.safe_load(files()["conf/model/position/clipped.yaml"])
    config["model"]["position"] = {**node, "_target_": f"{module}.Clipped"}
    return config


def test_the_part_obeys_every_law(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(place)
    verdicts = examine(small_with("my_parts.clipped"), "position")
    assert {verdict.law: verdict.message for verdict in verdicts if verdict.holds is False} == {}
    assert [verdict.law for verdict in verdicts] == list(LAWS), "each law was asked"


def test_the_walks_own_test_passes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `python -m pytest test_clipped.py` runs, without the seconds of another process."""
    monkeypatch.syspath_prepend(place)
    monkeypatch.chdir(place)
    importlib.import_module("test_clipped").test_clipped_obeys_every_law()


@pytest.mark.parametrize(
    ("right", "spoiled", "law", "message"),
    [
        ("self.reach = reach", "self.reach = 8", "no_dead_knob", "`reach` must change something"),
        ("has_bias = True", "has_bias = False", "facts_hold", "has_bias, has_scores are stated as (False, False)"),
    ],
    ids=["ignores-its-setting", "hides-its-bias"],
)
def test_a_spoiled_edit_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, spoiled: str, law: str, message: str
) -> None:
    """The two edits that the walk proposes, and the laws that it says will notice them."""
    assert f"`{spoiled}`" in walk() and f"`{law}`" in walk() and files()[PART].count(right) == 1
    module = f"spoiled_{law}"
    write(tmp_path, {f"{module}.py": files()[PART].replace(right, spoiled)})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SWAPFORMER_PACKAGES", module)
    with pytest.raises(BrokenLaw, match=re.escape(message)):
        LAWS[law](Subject(small_with(module), "position"))


@pytest.mark.evidence
def test_a_probe_of_the_users_own_looks_at_its_moments_and_is_claimed_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk of a probe: its files, its command (in this process), and what is stored and said of its moments."""
    assert list(files("probe")) == [
        *("my_probes/attention_share.py", "conf/probes/attention_share.yaml", "my_probe_study.yaml")
    ]
    export, study = commands("probe")
    assert export == ["export", "SWAPFORMER_PACKAGES=my_probes"]
    assert study == ["swapformer", "study", "my_probe_study.yaml"]
    write(tmp_path, files("probe"))
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "my_probes")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*study[1:], "hydra/launcher=basic"]) == 0
    found = records(tmp_path / "runs")
    assert [record["status"] for record in found.values()] == ["finished"] * 4
    for trial in found:
        stored = {path.name.split(".")[0] for path in (tmp_path / "runs/trials" / trial / "artifacts").iterdir()}
        moments = {"attention_share@init", "attention_share@5", "attention_share@10", "attention_share"}
        assert stored == {*moments, "activation_moments@init"}
        history = (tmp_path / "runs/trials" / trial / "metrics.csv").read_text()
        assert re.findall(r"^(\d+),probe/attention_share,0\.", history, re.M) == ["5", "10"]
    report = tmp_path / "runs/studies/my_probe_study/report"
    results = (report / "results.csv").read_text()
    for metric in ("probe/attention_share", "probe/attention_share:init", "probe/stream_rms_last:init"):
        assert len(re.findall(rf",{re.escape(metric)},\d", results)) == 4
    page = (report / "report.html").read_text()
    assert "probe/attention_share during training" in page and "the stream of post starts larger" in page
    (profile,) = {
        (shape.moments, shape.layers)
        for shapes in read(report.parent, tmp_path / "runs").probes.values()
        for shape in [shapes["attention_share"]["share"]]
        if isinstance(shape, Profile)
    }
    assert profile[0] == ("init", "5", "10", "end")
