"""Figures and summaries of what probes measured beside the study's metrics."""

from __future__ import annotations

from swapformer.report.figures.curves import length_curve
from swapformer.report.figures.figure_data import FigureData, ReportFigure, length_families
from swapformer.report.statistics.arm_summary import Summary, plain_summary
from swapformer.results.moments import BY_LAYER, family_of, split_moment


def probe_plots(data: FigureData) -> list[ReportFigure | None]:
    """A figure for each metric that probes measured at several lengths. Call within `svg.settings`."""
    names = _probe_metrics(data)
    families = length_families(names, names)
    return [length_curve(data, base, lengths) for base, lengths in families.items()]


def probe_summaries(data: FigureData) -> dict[str, dict[str, Summary]]:
    """Means over finished seeds of what probes measured beside the study's metrics: name → arm → summary."""
    return {
        name: {arm: plain_summary(data.evidence, arm, name) for arm in data.evidence.arms}
        for name in _probe_metrics(data)
        if not split_moment(family_of(name)[0])[0].endswith(BY_LAYER)  # a profile shows them
    }


def _probe_metrics(data: FigureData) -> list[str]:
    """The numbers that probes measured beside the study's metrics."""
    names = {str(name) for name in data.records.metrics["metric"] if str(name).startswith("probe/")}
    return sorted(names - set(data.records.manifest.metrics))
