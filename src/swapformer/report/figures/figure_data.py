"""Data of a report's figures: what they are drawn from, what a finished figure holds, which metrics they show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.style import Style, arm_styles
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow, Summary, summarise
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence, gather
from swapformer.results.arms import ShownFigure
from swapformer.results.moments import BY_LAYER, PRUNING, REPLAY, family_of, split_moment

_SHOWN: ContextVar[Mapping[str, ShownFigure] | None] = ContextVar("shown", default=None)


@contextmanager
def shown_as(figures: Sequence[ShownFigure], prefix: str = "") -> Iterator[None]:
    """Within it, figures whose names begin with `prefix` are made with the words that the study file gives them."""
    token = _SHOWN.set({each.name.removeprefix(prefix): each for each in figures if each.name.startswith(prefix)})
    try:
        yield
    finally:
        _SHOWN.reset(token)


def _shown(name: str) -> ShownFigure | None:
    """The words that the study file has for the figure of a name."""
    return (_SHOWN.get() or {}).get(name)


@dataclass(frozen=True)
class ReportFigure:
    """One figure of a report: file name without suffix, title, caption, SVG, the page's tooltips, its data as CSV.

    `table`: head and rows of a figure that a page shows as a table.
    """

    name: str
    title: str
    caption: str
    svg: str
    tooltips: Mapping[str, Any] | None = None
    csv: str = ""
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None

    def __post_init__(self) -> None:
        if (shown := _shown(self.name)) is not None and shown.caption:
            object.__setattr__(self, "caption", shown.caption)

    @property
    def wide(self) -> bool:
        """Whether it takes the whole width of a page."""
        found = re.search(r'<svg [^>]*?\bwidth="([\d.]+)pt"', self.svg)
        return found is not None and float(found[1]) > 1.1 * 72 * svg.WIDTH

    @classmethod
    def of(
        cls, name: str, title: str, caption: str, figure: Figure, tooltips: Tooltips | None = None, described: str = "",
        csv: str = "",
    ) -> ReportFigure:  # fmt: skip
        """The figure as drawn; `described` stands in the SVG instead of the title, `csv` instead of what is told."""
        if (shown := _shown(name)) is not None:
            svg.relabel(figure, shown.x, shown.y, shown.lines)
        text = svg.to_svg(figure, described or title)
        if tooltips is None:
            return cls(name, title, caption, text, csv=csv)
        return cls(name, title, caption, text, tooltips.to_json(), csv or tooltips.to_csv())


@dataclass(frozen=True)
class FigureData:
    """All data of one condition of a study; `all_arms` are those of every condition, so that each has one style."""

    records: Records
    evidence: Evidence
    rows: Sequence[ArmRow]
    claims: Sequence[Claim]
    all_arms: tuple[str, ...] = ()

    @property
    def baseline(self) -> str:
        """The arm that others are compared with."""
        return self.records.manifest.baseline

    @cached_property
    def axis(self) -> dict[str, float] | None:
        """Each arm's number on the swept axis, where every arm has a number and no two the same."""
        axis = self.records.manifest.axis
        if axis is None:
            return None
        values = {arm: axis.values.get(arm) for arm in self.evidence.arms}
        numbers = {a: float(v) for a, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        return numbers if len(numbers) == len(values) == len(set(numbers.values())) > 1 else None

    @cached_property
    def arms(self) -> list[str]:
        """The arms in the order of the axis, or else of the study."""
        axis = self.axis
        return list(self.evidence.arms) if axis is None else sorted(self.evidence.arms, key=axis.__getitem__)

    @cached_property
    def styles(self) -> dict[str, Style]:
        """The style of each arm."""
        arms, axis = self.all_arms or self.evidence.arms, self.records.manifest.axis
        ordered = self.axis is not None and axis is not None and all(arm in axis.values for arm in arms)
        if ordered and axis is not None:
            arms = tuple(sorted(arms, key=axis.values.__getitem__))
        palette = self.records.manifest.palette
        return arm_styles(arms, self.baseline, ordered=ordered and len(arms) > 2, palette=palette)

    def label(self, metric: str) -> str:
        """The metric's name with the direction that is better."""
        direction = self.evidence.directions.get(metric)
        return f"{metric} ({direction} is better)" if direction else metric

    def summaries(self, metric: str) -> dict[str, Summary]:
        """Each arm's summary of a metric."""
        by_arm = {row.arm: row.summaries[metric] for row in self.rows}
        return {arm: by_arm[arm] for arm in self.arms}

    def published(self, metric: str, places: Mapping[str, float]) -> list[tuple[str, float, float]]:
        """Source, place and value of the published numbers of a metric; those of arms stand at the arms' `places`."""
        found = []
        for each in self.records.manifest.published:
            at = each.x if each.arm is None else places.get(each.arm)
            if each.metric == metric and at is not None:
                found.append((each.source, at, each.value))
        return found

    def diverged(self, arm: str) -> int:
        """The number of the arm's trials that diverged."""
        return int(self.evidence.diverged[arm].sum())


def figure_data(records: Records, claims: Sequence[Claim]) -> dict[str, FigureData]:
    """The data of each condition of a study, by the condition's name."""
    manifest = records.manifest
    all_arms = [arm for arm in manifest.arms if any(arm in manifest.at(c).possible for c in manifest.conditions)]
    found = {}
    for condition in manifest.conditions:
        there = records.at(condition)
        evidence = gather(there)
        rows = summarise(there, evidence, manifest.metrics)
        here = [claim for claim in claims if claim.at is None or condition in claim.at]
        found[condition] = FigureData(there, evidence, rows, here, tuple(all_arms))
    return found


def length_families(metrics: Sequence[str], recorded: Sequence[str]) -> dict[str, dict[int, str]]:
    """`{"val/accuracy": {64: "val/accuracy@64", …}}` for every family `name@length` that the study's metrics touch.

    A family over layers, over a number that a replay changes or over heads left out is none over lengths.
    """
    touched = {family_of(metric)[0] for metric in metrics}
    found: dict[str, dict[int, str]] = {}
    for metric in dict.fromkeys([*metrics, *recorded]):
        base, length = family_of(metric)
        other = split_moment(base)[0].endswith(BY_LAYER) or base.startswith(PRUNING)
        other = other or (base.startswith(REPLAY) and base not in recorded)
        if length.isdigit() and base in touched and not other:
            found.setdefault(base, {})[int(length)] = metric
    return {base: dict(sorted(lengths.items())) for base, lengths in found.items()}


def reported_metrics(metrics: Sequence[str], recorded: Sequence[str]) -> list[str]:
    """The study's metrics, then what else their families by length hold: everything that figures show."""
    groups = length_families(metrics, recorded)
    bases = [base for base in groups if base in recorded]
    return list(dict.fromkeys([*metrics, *bases, *(name for group in groups.values() for name in group.values())]))
