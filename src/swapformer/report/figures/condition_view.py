"""Views of a study: the tables, verdicts and figures of each condition of its grid.

A study without a grid has one view, whose condition has no name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from swapformer.report.figures import svg
from swapformer.report.figures.curves import gap_curve, learning_curve, length_curve
from swapformer.report.figures.figure_data import FigureData, ReportFigure, figure_data, length_families, shown_as
from swapformer.report.figures.forest import forest_plot
from swapformer.report.figures.pareto import pareto_plots
from swapformer.report.figures.shapes import draw_shapes
from swapformer.report.figures.strip_plot import arm_plot, axis_plot
from swapformer.report.figures.tuning_curve import tuning_curves
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow, Summary, plain_summary
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.verdicts import Verdict
from swapformer.report.tuning import Tuned
from swapformer.results.moments import BY_LAYER, family_of, split_moment


@dataclass(frozen=True)
class View:
    """One condition of a study as the report shows it; `probed`: what probes measured beside the study's metrics."""

    condition: str
    data: FigureData
    verdicts: tuple[Verdict, ...]
    figures: tuple[ReportFigure, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    probed: Mapping[str, Mapping[str, Summary]] = field(default_factory=dict)

    @property
    def rows(self) -> Sequence[ArmRow]:
        """The rows of its table."""
        return self.data.rows


def condition_views(
    records: Records,
    claims: Sequence[Claim],
    verdicts: Mapping[str, Sequence[Verdict]],
    tuned: Sequence[Tuned],
    draw: bool = True,
) -> list[View]:
    """One view for each condition, with figures if asked; an arm is drawn in the same style in all of them."""
    found = []
    for condition, data in figure_data(records, claims).items():
        prefix = f"{svg.slug(condition)}_" if condition else ""
        here = tuple(each for each in tuned if each.condition == condition)
        with svg.settings(), shown_as(records.manifest.figures, prefix):
            drawn = _figures(condition, data, here) if draw else ()
            figures = _unique([figure for figure in drawn if figure is not None])
        named = tuple(replace(figure, name=prefix + figure.name) for figure in figures)
        judged = tuple(verdicts[condition])
        found.append(View(condition, data, judged, named, here, _summaries(data)))
    return found


def _figures(condition: str, data: FigureData, tuned: Sequence[Tuned]) -> Iterator[ReportFigure | None]:
    """Every figure that a condition may get, in the order of the report; None where there is no data for one."""
    manifest = data.records.manifest
    flops = {each.arm: each.flops for each in manifest.fairness if each.condition == condition}
    pairs = {
        each.arm: float(each.pairs)
        for each in manifest.fairness
        if each.condition == condition and each.pairs is not None
    }
    yield from pareto_plots(data, flops, pairs)
    families = length_families(manifest.metrics, list(dict.fromkeys(data.records.metrics["metric"])))
    yield from (length_curve(data, base, lengths) for base, lengths in families.items())
    single = [metric for metric in manifest.metrics if not family_of(metric)[1]]
    for metric in single:
        yield arm_plot(data, metric) if data.axis is None else axis_plot(data, metric, data.axis)
    yield from (forest_plot(data, metric) for metric in manifest.metrics)
    for metric in dict.fromkeys(split_moment(metric)[0] for metric in single):
        yield learning_curve(data, metric)
        yield gap_curve(data, metric)
    probed = _probe_metrics(data)
    yield from draw_shapes(data)
    yield from (length_curve(data, base, lengths) for base, lengths in length_families(probed, probed).items())
    yield from tuning_curves(data, tuned)


def _probe_metrics(data: FigureData) -> list[str]:
    """The numbers that probes measured in addition to the study's metrics."""
    names = {str(name) for name in data.records.metrics["metric"] if str(name).startswith("probe/")}
    return sorted(names - set(data.records.manifest.metrics))


def _summaries(data: FigureData) -> dict[str, dict[str, Summary]]:
    """Means over finished seeds of what probes measured in addition to the study's metrics: name → arm → summary."""
    return {
        name: {arm: plain_summary(data.evidence, arm, name) for arm in data.evidence.arms}
        for name in _probe_metrics(data)
        if not split_moment(family_of(name)[0])[0].endswith(BY_LAYER)  # a profile shows them
    }


def _unique(figures: Sequence[ReportFigure]) -> list[ReportFigure]:
    """Metrics whose names differ only in signs would share a file name; the later ones get a number."""
    taken: dict[str, int] = {}
    unique = []
    for figure in figures:
        taken[figure.name] = taken.get(figure.name, 0) + 1
        name = figure.name if taken[figure.name] == 1 else f"{figure.name}_{taken[figure.name]}"
        unique.append(replace(figure, name=name))
    return unique
