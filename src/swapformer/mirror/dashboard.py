"""A study's dashboard, as a workspace of Weights & Biases (package `wandb-workspaces`), from what its report reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from swapformer.errors import UsageError, quote
from swapformer.mirror.base import filled
from swapformer.report.figures.figure_data import length_families, reported_metrics
from swapformer.report.records import Records
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.results.history import SECONDS, TOKENS, TRAINING_LOSS
from swapformer.results.manifest import Manifest


def require() -> None:
    """Raise UsageError if the packages that build workspaces are not installed."""
    missing = [name for name in ("wandb", "wandb_workspaces") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a dashboard needs {' and '.join(name.replace('_', '-') for name in missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'swapformer[dashboard]'"
        )


def logger_settings(manifest: Manifest) -> Mapping[str, Any]:
    """The settings of W&B that a study was run with; empty where it was not."""
    loggers = manifest.shared_config.get("logger")
    return loggers.get("wandb", loggers) if isinstance(loggers, dict) else {}  # one entry stood there without a name


def workspace(records: Records, project: str, entity: str | None) -> Any:
    """The workspace of a study: its runs grouped by arm, each metric with its mean and standard error.

    Raises UsageError where its runs are in several groups.
    """
    spaces, expressions = import_module("wandb_workspaces.workspaces"), import_module("wandb_workspaces.expr")
    group = filled(logger_settings(records.manifest).get("group") or "{study}", {"study": records.manifest.name})
    if "{" in group:
        raise UsageError(
            f"a dashboard shows the runs of one group, but logger.wandb.group is {quote(group)}, another for each arm "
            "or seed; leave it at {study}"
        )
    panels = _panels(records.manifest, list(dict.fromkeys(records.metrics["metric"])))
    return spaces.Workspace(
        name=records.manifest.name,
        entity=entity or "",
        project=project,
        sections=[spaces.Section(name=name, panels=shown, is_open=True) for name, shown in panels.items() if shown],
        settings=spaces.WorkspaceSettings(max_runs=100),
        runset_settings=spaces.RunsetSettings(
            filters=expressions.And(expressions.Metric("Group") == group),
            groupby=[expressions.Metric("JobType")],
        ),
    )


def to_json(space: Any) -> str:
    """The JSON that is sent when the workspace is saved."""
    spec = space._to_model().spec.model_dump_json(by_alias=True, exclude_none=True)
    return json.dumps(json.loads(spec), indent=1) + "\n"


def logged_in() -> bool:
    """Whether wandb knows a key; never asks for one."""
    return bool(import_module("wandb").login(prompt=False))


def save(space: Any) -> str:
    """Put the workspace into its project; returns its address.

    Raises UsageError where the server refuses it, or cannot be reached.
    """
    try:
        if not space.entity:
            space.entity = import_module("wandb").Api().default_entity
        return str(space.save().url)
    except Exception as error:  # whatever wandb, its transport or the server raise
        raise UsageError(f"the workspace could not be saved to W&B: {' '.join(str(error).split())}") from error


def _panels(manifest: Manifest, recorded: Sequence[str]) -> dict[str, list[Any]]:
    """The panels of each section; `recorded`: metrics of the study's trials."""
    reports = import_module("wandb_workspaces.reports.v2")
    by_arm = {"groupby": "JobType", "groupby_aggfunc": "mean", "groupby_rangefunc": "stderr"}

    def bar(title: str, names: Sequence[str]) -> Any:
        return reports.BarPlot(title=title, metrics=list(names), **by_arm)

    def curve(name: str, over: str = "Step") -> Any:
        title = name if over == "Step" else f"{name} over {over.removeprefix('train/')}"
        return reports.LinePlot(title=title, x=over, y=[name], **by_arm)

    def tables(*names: str) -> list[Any]:
        return [reports.WeavePanelSummaryTable(table_name=name) for name in names]  # of the study's own run

    def against(cost: str) -> Any:
        x, y = reports.SummaryMetric(cost), reports.SummaryMetric(metric)
        return reports.ScatterPlot(title=f"{metric} against {cost.removeprefix('cost/')}", x=x, y=y)

    metric = manifest.metrics[0] if manifest.metrics else "val/loss"
    lines = [f"- **{claim.text}**: {claim.assertion}" for claim in claims_of(manifest)]
    text = "\n".join([f"## {manifest.question or manifest.name}", "", *lines, "", f"`{manifest.command}`"])
    measured = [name for name in reported_metrics(manifest.metrics, recorded) if not name.startswith("probe/")]
    probes = [name for name in dict.fromkeys([*manifest.metrics, *recorded]) if name.startswith("probe/")]
    curves = [name for name in manifest.metrics if "@" not in name and not name.startswith(("probe/", "test/"))]
    maps = [f"probe/{name}" for name in manifest.shared_config.get("probes") or ()] if probes else []
    return {
        "Verdicts": [reports.MarkdownPanel(markdown=text), *tables("verdicts", "arms")],
        "Results": [bar(name, [name]) for name in measured if "@" not in name],
        "Length": [bar(base, [*names.values()]) for base, names in length_families(manifest.metrics, recorded).items()],
        "Training": [
            *(curve(name) for name in (*curves, TRAINING_LOSS, "train/lr", "train/grad_norm")),
            *(curve(name, x) for name in dict.fromkeys((*curves[:1], TRAINING_LOSS)) for x in (TOKENS, SECONDS)),
        ],
        "Probes": [
            *(bar(name, [name]) for name in probes),
            *([reports.MediaBrowser(title="What the probes saw", media_keys=maps)] if maps else []),
        ],
        "Cost": [*tables("cost"), against("cost/parameters_total"), against("cost/seconds")],
        "Report": tables("report"),
    }
