"""A study's dashboard is made from what its report is made from, and becomes a W&B workspace."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from report.store import Store
from swapformer.errors import UsageError
from swapformer.mirror import dashboard, workspace
from swapformer.mirror.study_results import study_results
from swapformer.report.build import build


@pytest.fixture
def store(tmp_path: Path) -> Store:
    claim = {"text": "b is worse", "worse": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0.01}}
    made = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "val/accuracy@64", "probe/x"], claims=[claim])
    made.manifest = {"shared_config": {"probes": {"x": {}}, "logger": {"wandb": {"project": "mine"}}}}
    for arm, mean in (("a", 1.0), ("b", 2.0)):
        for seed in made.seeds:
            metrics = {"val/loss": mean + seed * mean / 100, "val/accuracy@64": 0.5, "val/accuracy@128": 0.25}
            made.write_trial(arm, seed, metrics, probes={"probe/x": 0.5})
    made.write_manifest()
    return made


def test_it_shows_every_metric_of_the_study_each_claim_and_what_it_cost(store: Store) -> None:
    shown = dashboard.dashboard(store.study, store.runs)
    sections = {section.name: section.panels for section in shown.sections}
    assert [panel.shows for panel in sections["Results"]] == [("val/loss",)]
    assert [panel.shows for panel in sections["Length"]] == [("val/accuracy@64", "val/accuracy@128")]
    by_step = [panel.shows[0] for panel in sections["Training"] if panel.over == "Step"]
    assert by_step == ["val/loss", "train/loss", "train/lr", "train/grad_norm"]
    elsewhere = [(panel.shows[0], panel.over) for panel in sections["Training"] if panel.over != "Step"]
    assert elsewhere == list(product(("val/loss", "train/loss"), ("train/tokens", "train/seconds")))
    assert [panel.shows for panel in sections["Probes"]] == [("probe/x",), ("probe/x",)]
    assert "**b is worse**" in sections["Verdicts"][0].shows[0]
    assert ("cost/seconds", "val/loss") in [panel.shows for panel in sections["Cost"]]
    assert shown.logger == {"project": "mine"}


def test_what_a_study_came_to_is_what_its_report_says(store: Store) -> None:
    report = build(store.study, store.runs).as_dict()
    found = study_results(store.study, store.runs)
    assert [row["verdict"] for row in found.verdicts] == [v["outcome"] for v in report["verdicts"]] == ["supported"]
    assert [row["val/loss"] for row in found.arms] == [arm["metrics"]["val/loss"]["mean"] for arm in report["arms"]]
    assert found.counts == report["trials"] and found.report == store.study / "report" / "report.html"
    assert [row["parameters"] for row in found.costs] == [804096.0, 804096.0]
    assert [row["tokens"] for row in found.costs] == [1536000.0, 1536000.0]


@pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # of wandb-workspaces itself, when it is imported
def test_the_workspace_holds_every_panel_of_the_studys_runs_by_arm(store: Store) -> None:
    shown = dashboard.dashboard(store.study, store.runs)
    spec = json.loads(workspace.to_json(workspace.build(shown, "mine", None)))["section"]
    made = spec["panelBankConfig"]["sections"]
    assert [section["name"] for section in made] == [section.name for section in shown.sections]
    assert [len(section["panels"]) for section in made] == [len(section.panels) for section in shown.sections]
    (training,) = (section["panels"] for section in made if section["name"] == "Training")
    assert [panel["config"].get("xAxis") for panel in training] == ["_step"] * 4 + ["train/tokens", "train/seconds"] * 2
    (runs,) = spec["runSets"]
    assert runs["filters"]["filters"][0]["key"] == {"section": "run", "name": "group"}
    assert "99_fake" in json.dumps(runs["filters"])
    assert runs["grouping"] == [{"section": "run", "name": "jobType"}]


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "find_spec", lambda name: None if name == "wandb_workspaces" else object())
    with pytest.raises(UsageError, match=r"needs wandb-workspaces, which is not installed: pip install"):
        workspace.require()
