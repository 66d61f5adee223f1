"""Builds a dashboard as a workspace of Weights & Biases, with the package `wandb-workspaces`."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from swapformer.errors import UsageError
from swapformer.mirror.dashboard import Dashboard, Panel


def require() -> None:
    """Raise UsageError if the packages that build workspaces are not installed."""
    missing = [name for name in ("wandb", "wandb_workspaces") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a dashboard needs {' and '.join(name.replace('_', '-') for name in missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'swapformer[dashboard]'"
        )


def build(shown: Dashboard, project: str, entity: str | None) -> Any:
    """The workspace: the study's runs, grouped by arm."""
    spaces, expressions = import_module("wandb_workspaces.workspaces"), import_module("wandb_workspaces.expr")
    sections = [
        spaces.Section(name=section.name, panels=[_panel(panel) for panel in section.panels], is_open=True)
        for section in shown.sections
    ]
    return spaces.Workspace(
        name=shown.study,
        entity=entity or "",
        project=project,
        sections=sections,
        settings=spaces.WorkspaceSettings(max_runs=100),
        runset_settings=spaces.RunsetSettings(
            filters=expressions.And(expressions.Metric("Group") == shown.study), groupby=[expressions.Metric("JobType")]
        ),
    )


def to_json(workspace: Any) -> str:
    """The JSON that is sent when the workspace is saved."""
    spec = workspace._to_model().spec.model_dump_json(by_alias=True, exclude_none=True)
    return json.dumps(json.loads(spec), indent=1) + "\n"


def logged_in() -> bool:
    """Whether wandb knows a key; never asks for one."""
    return bool(import_module("wandb").login(prompt=False))


def save(workspace: Any) -> str:
    """Put the workspace into its project; returns its address.

    Raises UsageError where the server refuses it, or cannot be reached.
    """
    try:
        if not workspace.entity:
            workspace.entity = import_module("wandb").Api().default_entity
        return str(workspace.save().url)
    except Exception as error:  # whatever wandb, its transport or the server raise
        raise UsageError(f"the workspace could not be saved to W&B: {' '.join(str(error).split())}") from error


def _panel(panel: Panel) -> Any:
    reports = import_module("wandb_workspaces.reports.v2")
    by_arm = {"groupby": "JobType", "groupby_aggfunc": "mean", "groupby_rangefunc": "stderr"}
    match panel.kind:
        case "text":
            return reports.MarkdownPanel(markdown=panel.shows[0])
        case "table":
            return reports.WeavePanelSummaryTable(table_name=panel.shows[0])
        case "curve":
            return reports.LinePlot(title=panel.title, x=panel.over, y=list(panel.shows), **by_arm)
        case "bar":
            return reports.BarPlot(title=panel.title, metrics=list(panel.shows), **by_arm)
        case "scatter":
            x, y = (reports.SummaryMetric(name) for name in panel.shows)
            return reports.ScatterPlot(title=panel.title, x=x, y=y)
        case "media":
            return reports.MediaBrowser(title=panel.title, media_keys=list(panel.shows))
