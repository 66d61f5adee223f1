"""The page of a study, `report.html`: the values that its template shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from swapformer.report.figures import svg
from swapformer.report.figures.condition_view import View
from swapformer.report.figures.figure_data import ReportFigure
from swapformer.report.figures.grid_plot import grid_plot
from swapformer.report.page import template
from swapformer.report.page.caveats import design_sentences
from swapformer.report.page.tables import result_columns
from swapformer.report.page.verdict_cards import verdict_card
from swapformer.report.records import Records
from swapformer.report.statistics.grid import OUTCOMES, GridEffects, GridVerdict, grid_effects
from swapformer.results.arms import UNITS_IN_FULL
from swapformer.results.costs import Costs


@dataclass(frozen=True)
class GridSection:
    """The page's section on the whole grid; empty where there is none."""

    effects: tuple[GridEffects, ...] = ()
    figures: tuple[ReportFigure, ...] = ()


def grid_section(views: Sequence[View]) -> GridSection:
    """Main effects, interactions and their figures, of every metric of the study."""
    if len(views) < 2:
        return GridSection()
    data = {view.condition: view.data for view in views}
    manifest = views[0].data.records.manifest
    evidence = {condition: each.evidence for condition, each in data.items()}
    found = [grid_effects(metric, manifest.baseline, manifest.conditions, evidence) for metric in manifest.metrics]
    with svg.settings():
        drawn = [grid_plot(metric, manifest.conditions, data) for metric in manifest.metrics]
    return GridSection(tuple(filter(None, found)), tuple(filter(None, drawn)))


def render(
    records: Records,
    views: Sequence[View],
    claims: Sequence[GridVerdict],
    grid: GridSection,
    caveats: Sequence[str],
    costs: Costs,
) -> str:
    """The HTML of the page."""
    manifest, cells = records.manifest, records.cells
    outcomes = Counter(each.outcome for each in claims)
    values = {
        "manifest": manifest,
        "records": records,
        "views": views,
        "grid": grid,
        "costs": costs,
        "cards": [verdict_card(claim, views) for claim in claims],
        "counts": {outcome: outcomes[outcome] for outcome in OUTCOMES},
        "design": design_sentences(records, views),
        "fairness": [each for each in manifest.fairness if each.arm != manifest.baseline],
        "matches": [each for each in manifest.fairness if each.match is not None],
        "flops": {(each.arm, each.condition): each.flops for each in manifest.fairness},
        "units": UNITS_IN_FULL,
        "lost": list(cells[cells["status"] != "finished"].itertuples(index=False)),
        "finished": int((cells["status"] == "finished").sum()),
        "environments": cells.loc[cells["environment"] != "", "environment"].value_counts().to_dict(),
        "caveats": caveats,
        "columns": result_columns(manifest),
        "config": yaml.safe_dump(dict(manifest.shared_config), sort_keys=False, allow_unicode=True),
        "seconds": float(cells["seconds"].sum()),
    }
    sets = [grid.figures, *(view.figures for view in views)]
    return template.render("report.html.j2", sets, views[0].data.styles, manifest.arms, values)
