"""`report.html`: one self-contained page, from a template in which everything a user wrote is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from swapformer.report.condition_view import View
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import Drawn
from swapformer.report.figures.grid_plot import across
from swapformer.report.page import caveats, template
from swapformer.report.page.tables import result_columns
from swapformer.report.page.verdict_cards import card
from swapformer.report.records import Records
from swapformer.report.statistics.grid_effects import Effects, effects
from swapformer.report.statistics.grid_verdict import OUTCOMES, Everywhere
from swapformer.results.arms import UNITS_IN_FULL
from swapformer.results.costs import Costs


@dataclass(frozen=True)
class Grid:
    """What the page shows of a grid as a whole; empty where there is none."""

    effects: tuple[Effects, ...] = ()
    figures: tuple[Drawn, ...] = ()


def grid(views: Sequence[View]) -> Grid:
    """Main effects, interactions and their figures, of every metric of the study."""
    manifest = views[0].scene.records.manifest
    if len(views) < 2:
        return Grid()
    evidence = {view.condition: view.scene.evidence for view in views}
    scenes = {view.condition: view.scene for view in views}
    found = [effects(metric, manifest.baseline, manifest.conditions, evidence) for metric in manifest.metrics]
    with svg.settings():
        drawn = [across(metric, manifest.conditions, scenes) for metric in manifest.metrics]
    return Grid(tuple(filter(None, found)), tuple(filter(None, drawn)))


def render(
    records: Records,
    views: Sequence[View],
    claims: Sequence[Everywhere],
    whole: Grid,
    warnings: Sequence[str],
    costs: Costs,
) -> str:
    """The page."""
    manifest, cells = records.manifest, records.cells
    outcomes = Counter(each.outcome for each in claims)
    values = {
        "manifest": manifest,
        "records": records,
        "views": views,
        "grid": whole,
        "costs": costs,
        "cards": [card(claim, views) for claim in claims],
        "counts": {outcome: outcomes[outcome] for outcome in OUTCOMES},
        "design": caveats.design(records, views),
        "fairness": [each for each in manifest.fairness if each.arm != manifest.baseline],
        "matches": [each for each in manifest.fairness if each.match is not None],
        "flops": {(each.arm, each.condition): each.flops for each in manifest.fairness},
        "units": UNITS_IN_FULL,
        "lost": list(cells[cells["status"] != "finished"].itertuples(index=False)),
        "finished": int((cells["status"] == "finished").sum()),
        "environments": cells.loc[cells["environment"] != "", "environment"].value_counts().to_dict(),
        "caveats": warnings,
        "columns": result_columns(manifest),
        "config": yaml.safe_dump(dict(manifest.shared_config), sort_keys=False, allow_unicode=True),
        "seconds": float(cells["seconds"].sum()),
        "words": template.words(manifest.arms),
    }
    sets = [whole.figures, *(view.figures for view in views)]
    return template.render("report.html.j2", sets, views[0].scene.looks, values)
