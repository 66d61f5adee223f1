"""What every figure is drawn from, and what a drawn figure is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from swapformer.report.figures.style import Style, styles
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow, Summary
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence


@dataclass(frozen=True)
class Drawn:
    """One figure: the file's name without suffix, a title, how to read it, SVG, and what its marks say in a page."""

    name: str
    title: str
    caption: str
    svg: str
    hover: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Scene:
    """A study, ready to be drawn; `everywhere` are its arms in all conditions of a grid, so that each has one look."""

    records: Records
    evidence: Evidence
    rows: Sequence[ArmRow]
    claims: Sequence[Claim]
    everywhere: tuple[str, ...] = ()

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
    def looks(self) -> dict[str, Style]:
        """How each arm is drawn."""
        arms, axis = self.everywhere or self.evidence.arms, self.records.manifest.axis
        ordered = self.axis is not None and axis is not None and all(arm in axis.values for arm in arms)
        if ordered and axis is not None:
            arms = tuple(sorted(arms, key=axis.values.__getitem__))
        return styles(arms, self.baseline, ordered=ordered and len(arms) > 2)

    def better(self, metric: str) -> str:
        """The metric's name with the direction that is better."""
        direction = self.evidence.directions.get(metric)
        return f"{metric} ({direction} is better)" if direction else metric

    def summaries(self, metric: str) -> dict[str, Summary]:
        """Each arm's summary of a metric."""
        by_arm = {row.arm: row.summaries[metric] for row in self.rows}
        return {arm: by_arm[arm] for arm in self.arms}

    def diverged(self, arm: str) -> int:
        """How many of the arm's trials diverged."""
        return int(self.evidence.diverged[arm].sum())
