"""The page of a study, `report.html`: its verdict cards, its section on the grid, and all else that it shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.condition_view import View
from swapformer.report.figures.figure_data import ReportFigure, shown_as
from swapformer.report.figures.grid_plot import grid_plot
from swapformer.report.figures.ladder_plot import ladder_plot
from swapformer.report.page import template, wording
from swapformer.report.page.caveats import design_sentences
from swapformer.report.page.paper import methods_text
from swapformer.report.records import Records
from swapformer.report.results_csv import result_columns
from swapformer.report.statistics.grid import OUTCOMES, GridEffects, GridVerdict, grid_effects
from swapformer.report.statistics.ladder_summary import ladder_summaries
from swapformer.report.statistics.verdicts import Contrast, Verdict
from swapformer.report.tuning import tried_settings
from swapformer.results.arms import UNITS_IN_FULL
from swapformer.results.config import command_of


@dataclass(frozen=True)
class GridSection:
    """The page's section on the whole grid; empty if missing."""

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
    with svg.settings(), shown_as(manifest.figures):
        drawn = [grid_plot(metric, manifest.conditions, data) for metric in manifest.metrics]
        styles = next(iter(data.values())).styles
        for number, summary in enumerate(ladder_summaries(manifest, evidence)):
            if (figure := ladder_plot(summary, styles)) is not None:
                taken = any(each is not None and each.name == figure.name for each in drawn)
                drawn.insert(number, replace(figure, name=f"{figure.name}_{number}") if taken else figure)
    return GridSection(tuple(filter(None, found)), tuple(filter(None, drawn)))


def render(
    records: Records,
    views: Sequence[View],
    claims: Sequence[GridVerdict],
    grid: GridSection,
    caveats: Sequence[str],
    folders: Callable[[str], str | None] = lambda trial: None,
    errors: Sequence[float] = (),
) -> str:
    """The HTML of the page.

    `folders` gives the folder of a trial as a link from the page, where there is one; `errors` are those of its looks.
    """
    manifest, cells = records.manifest, records.cells
    outcomes = Counter(each.outcome for each in claims)
    trials = arm_trials(records, folders)
    values = {
        "manifest": manifest,
        "records": records,
        "views": views,
        "grid": grid,
        "family": sum(not claim.claim.exact for claim in claims for _ in claim.verdicts),
        "cards": [verdict_card(claim, views) for claim in claims],
        "sure": wording.error_text(errors, [each for view in views for each in view.verdicts]),
        "headline": wording.headline(claims),
        "counts": {outcome: outcomes[outcome] for outcome in OUTCOMES},
        "design": design_sentences(records, views),
        "fairness": [each for each in manifest.fairness if each.arm != manifest.baseline],
        "matches": [each for each in manifest.fairness if each.match is not None],
        "pairs": {(each.arm, each.condition): each.pairs for each in manifest.fairness if each.pairs is not None},
        "flops": {(each.arm, each.condition): each.flops for each in manifest.fairness},
        "units": UNITS_IN_FULL,
        "lost": list(cells[cells["status"] != "finished"].itertuples(index=False)),
        "finished": int((cells["status"] == "finished").sum()),
        "environments": cells.loc[cells["environment"] != "", "environment"].value_counts().to_dict(),
        "caveats": caveats,
        "trials": trials,
        "trial_anchors": {(each.arm, each.condition): f"trials-{n}" for n, each in enumerate(trials)},
        "spent": len(choosing_trials(records)),
        "methods": methods_text(records, views),
        "columns": result_columns(manifest),
        "table_note": wording.table_note([row for view in views for row in view.rows], manifest.baseline),
        "ends": wording.ends_text,
        "tried": tried_settings([tuned for view in views for tuned in view.tuned]),
        "config": yaml.safe_dump(_shown(manifest.shared_config), sort_keys=False, allow_unicode=True),
        "seconds": float(cells["seconds"].sum()),
    }
    sets = [grid.figures, *(view.figures for view in views)]
    return template.render("report.html.j2", sets, views[0].data.styles, manifest.arms, values)


def _shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a trial has; a command has a model and a training of its own."""
    kept = ("seed", "measure", "trainer") if command_of(config) else tuple(config)
    return {key: config[key] for key in kept if key in config}


def choosing_trials(records: Records) -> set[str]:
    """The trials that only chose settings, and are not reported."""
    tuning = records.manifest.tuning
    tried = {trial for each in (tuning.tried if tuning else ()) for trial in each.trials}
    return tried - set(records.cells["trial"])


@dataclass(frozen=True)
class TrialLinks:
    """The trials of an arm in one condition.

    `reported`: (seed, id, status, folder) of each, `choosing`: (setting, [(id, folder)]) of those that chose settings.
    A folder is a link from the page; None where the trial is not in the store.
    """

    arm: str
    condition: str
    reported: tuple[tuple[int, str, str, str | None], ...]
    choosing: tuple[tuple[str, tuple[tuple[str, str | None], ...]], ...]


def arm_trials(records: Records, folders: Callable[[str], str | None]) -> list[TrialLinks]:
    """The trials of every arm, condition by condition."""
    tuning = records.manifest.tuning
    found = []
    for (condition, arm), cells in records.cells.groupby(["condition", "arm"], sort=False):
        reported = [
            (int(seed), str(trial), str(status), folders(str(trial)))
            for seed, trial, status in cells[["seed", "trial", "status"]].to_numpy().tolist()
            if trial
        ]
        choosing = [
            (
                ", ".join(f"{key}={value}" for key, value in each.values.items()),
                [(id, folders(id)) for id in each.trials],
            )
            for each in (tuning.tried if tuning else ())
            if (each.arm, each.condition) == (arm, condition)
        ]
        shown = tuple((setting, tuple(trials)) for setting, trials in choosing)
        found.append(TrialLinks(str(arm), str(condition), tuple(reported), shown))
    return found


@dataclass(frozen=True)
class ContrastLine:
    """A difference on a number line; positions are in percent of the track. `usual`: its 95 % t interval."""

    contrast: Contrast
    text: str
    usual: str
    region: tuple[float, float]
    bar: tuple[float, float] | None
    point: float | None
    open_left: bool
    open_right: bool


@dataclass(frozen=True)
class ConditionGroup:
    """The verdict on a claim in one condition, with its number lines."""

    condition: str
    verdict: Verdict
    why: str
    lines: tuple[ContrastLine, ...]


@dataclass(frozen=True)
class VerdictCard:
    """A claim with its verdicts, and the ticks of their common scale as (position in percent, label)."""

    claim: GridVerdict
    claimed: str
    groups: tuple[ConditionGroup, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float


def verdict_card(claim: GridVerdict, views: Sequence[View]) -> VerdictCard:
    """The card of a claim; its scale holds zero, the edges of the claim and every finite end."""
    contrasts = [contrast for verdict in claim.verdicts.values() for contrast in verdict.contrasts]
    finite = [x for c in contrasts for x in (c.estimate.value, c.lower, c.upper, *c.region) if math.isfinite(x)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    pad = 0.08 * ((high - low) or 1.0)
    low, high = low - pad, high + pad

    def position(x: float) -> float:
        return round(min(max(100 * (x - low) / (high - low), 0.0), 100.0), 2)

    edges = dict.fromkeys(edge for c in contrasts for edge in c.region if math.isfinite(edge))
    groups = []
    for view in views:
        if view.condition not in claim.verdicts:
            continue  # the claim is limited to other conditions
        verdict = claim.verdicts[view.condition]
        lines = tuple(_line(contrast, verdict.claim.of_means, position) for contrast in verdict.contrasts)
        why = wording.found_text(verdict)
        groups.append(ConditionGroup(view.condition, verdict, why, lines))
    return VerdictCard(claim, claim.claim.assertion, tuple(groups), _ticks(edges, position), position(0.0))


def _line(contrast: Contrast, of_means: bool, position: Callable[[float], float]) -> ContrastLine:
    return ContrastLine(
        contrast, wording.difference_text(contrast),
        number_format.limits_text(contrast.estimate.value, *contrast.usual, signed=True) if of_means else "",
        _stretch(contrast.region, position) or (0.0, 0.0),
        _stretch((contrast.lower, contrast.upper), position),
        None if math.isnan(contrast.estimate.value) else position(contrast.estimate.value),
        math.isinf(contrast.lower), math.isinf(contrast.upper),
    )  # fmt: skip


def _stretch(ends: tuple[float, float], position: Callable[[float], float]) -> tuple[float, float] | None:
    """Both ends on the track; None where neither is known."""
    return (position(ends[0]), position(ends[1])) if any(map(math.isfinite, ends)) else None


def _ticks(edges: Mapping[float, None], position: Callable[[float], float]) -> tuple[tuple[float, str], ...]:
    """Labels for the edges of the claim and for zero, those too close to an earlier one left out."""
    kept: list[tuple[float, str]] = []
    for value in [*edges, 0.0]:
        at = position(value)
        if all(abs(at - other) >= 9 for other, _ in kept):
            kept.append((at, number_format.stated(value + 0.0)))  # an edge may be -0.0
    return tuple(kept)
