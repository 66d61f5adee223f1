"""A study's dashboard is made from what its report is made from, and becomes a W&B workspace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from report.store import Store
from swapformer.errors import UsageError
from swapformer.mirror import dashboard
from swapformer.mirror.study_results import study_results
from swapformer.report.build import build
from swapformer.report.records import read


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


def test_what_a_study_came_to_is_what_its_report_says(store: Store) -> None:
    report = build(store.study, store.runs).as_dict()
    found = study_results(store.study, store.runs)
    assert (
        [row["verdict"] for row in found.tables["verdicts"]]
        == [v["outcome"] for v in report["verdicts"]]
        == ["supported"]
    )
    assert [row["val/loss"] for row in found.tables["arms"]] == [
        arm["metrics"]["val/loss"]["mean"] for arm in report["arms"]
    ]
    assert found.counts == report["trials"] and found.report == store.study / "report" / "report.html"
    assert [row["parameters"] for row in found.tables["cost"]] == [804096.0, 804096.0]
    assert [row["tokens"] for row in found.tables["cost"]] == [1536000.0, 1536000.0]


@pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # of wandb-workspaces itself, when it is imported
def test_the_workspace_shows_every_metric_each_claim_and_what_it_cost(store: Store) -> None:
    assert dashboard.logger_settings(read(store.study, store.runs).manifest) == {"project": "mine"}
    space = dashboard.workspace(read(store.study, store.runs), "mine", None)
    panels = {section.name: section.panels for section in space.sections}
    assert list(panels) == ["Verdicts", "Results", "Length", "Training", "Probes", "Cost", "Report"]
    assert "**b is worse**" in panels["Verdicts"][0].markdown
    assert [panel.title for panel in panels["Results"]] == ["val/loss"]
    assert [len(panel.metrics) for panel in panels["Length"]] == [2]
    assert [panel.title for panel in panels["Training"]] == [
        *("val/loss", "train/loss", "train/lr", "train/grad_norm"),
        *(f"{name} over {axis}" for name in ("val/loss", "train/loss") for axis in ("tokens", "seconds")),
    ]
    assert [panel.title for panel in panels["Probes"]] == ["probe/x", "What the probes saw"]
    assert panels["Cost"][-1].title == "val/loss against seconds"
    spec = json.loads(dashboard.to_json(space))["section"]
    made = spec["panelBankConfig"]["sections"]
    assert [len(section["panels"]) for section in made] == [len(shown) for shown in panels.values()]
    training = made[3]["panels"]
    assert [panel["config"].get("xAxis") for panel in training] == ["_step"] * 4 + ["train/tokens", "train/seconds"] * 2
    (runs,) = spec["runSets"]
    assert runs["filters"]["filters"][0]["key"] == {"section": "run", "name": "group"}
    assert "99_fake" in json.dumps(runs["filters"])
    assert runs["grouping"] == [{"section": "run", "name": "jobType"}]


@pytest.mark.filterwarnings("ignore:Pydantic V1 style")
def test_runs_in_a_group_of_the_users_own_are_shown_and_several_groups_are_refused(store: Store) -> None:
    def with_group(group: str) -> None:
        store.manifest = {"shared_config": {"logger": {"wandb": {"group": group}}}}
        store.write_manifest()

    with_group("of {study}")
    (runs,) = json.loads(dashboard.to_json(dashboard.workspace(read(store.study, store.runs), "mine", None)))[
        "section"
    ]["runSets"]
    assert "of 99_fake" in json.dumps(runs["filters"])
    with_group("{arm}")
    with pytest.raises(UsageError, match=r"one group, but logger.wandb.group is '\{arm\}'"):
        dashboard.workspace(read(store.study, store.runs), "mine", None)
    with_group("{study}")


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "wandb_workspaces" else object())
    with pytest.raises(UsageError, match=r"needs wandb-workspaces, which is not installed: pip install"):
        dashboard.require()
