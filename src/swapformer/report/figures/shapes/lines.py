"""Lines of numbers over an axis, by arm and by series: what profiles, curves and histograms are drawn with.

Where a shape has one line for each arm, arms share a panel as in the report's other figures. Where it has several
(moments, series), each arm has a panel and the lines of a panel have styles of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData
from swapformer.report.figures.panels import MAX_TOGETHER, draw_line, line_panels
from swapformer.report.figures.shapes.found import Mean, mean_over_seeds, merged
from swapformer.report.figures.style import Style, series_styles
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import interval_text
from swapformer.report.statistics.estimates import FloatArray

_MAX_MARKERS = 16


@dataclass(frozen=True)
class Line:
    """One line: its arm, its series (empty for the only one), x and values [seeds, points], and names of points."""

    arm: str
    series: str
    x: FloatArray
    values: FloatArray
    points: Sequence[str] = ()

    @property
    def mean(self) -> Mean:
        """The line as it is drawn."""
        return mean_over_seeds(self.values)


@dataclass
class Lines:
    """The lines of a figure and where each is drawn.

    `names`: what the legend or a panel's title says of a line, by (arm, series), where it says more than its name.
    """

    data: FigureData
    lines: Sequence[Line]
    x: str
    y: str
    ordered: bool = False
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    foot: float = 0.0
    others: Mapping[str, Style] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arms = list(dict.fromkeys(line.arm for line in self.lines))
        self.series = merged([line.series for line in self.lines if line.arm == arm] for arm in self.arms)
        self.panels: dict[tuple[str, str], Axes] = {}
        self.styles: dict[tuple[str, str], Style] = {}
        self.figure = self._layout()

    def _layout(self) -> Figure:
        """Panels and styles by (arm, series)."""
        if len(self.series) == 1:
            (only,) = self.series
            styles = {self._name(arm, only): self.data.styles[arm] for arm in self.arms}
            names = {self._name(arm, only): (arm, only) for arm in self.arms}
            together = len(self.arms) <= MAX_TOGETHER
            figure, panels = line_panels(list(styles), styles, self.x, self.y, together, self.foot, self.others)
            self.panels = {names[name]: axes for name, axes in panels.items()}
            self.styles = {names[name]: style for name, style in styles.items()}
            return figure
        inner = series_styles(self.series, self.ordered)
        if len(self.arms) == 1:
            (arm,) = self.arms
            names = {self._name(arm, each) or "all": (arm, each) for each in self.series}
            styles = {name: inner[each] for name, (_, each) in names.items()}
            figure, panels = line_panels(list(styles), styles, self.x, self.y, True, self.foot, self.others)
            self.panels = {names[name]: axes for name, axes in panels.items()}
        else:
            titles = {arm: "\n".join([svg.wrap(arm, 19), *self._said(arm)]) for arm in self.arms}
            shown = {name or "all": style for name, style in inner.items()} | dict(self.others)
            figure, axes_of = line_panels(
                list(titles.values()), {}, self.x, self.y, together=False, foot=self.foot, others=shown
            )
            self.panels = {(arm, each): axes_of[titles[arm]] for arm in self.arms for each in self.series}
        key = {arm: self.data.styles[arm].key for arm in self.arms}
        self.styles = {(arm, each): replace(inner[each], key=key[arm]) for arm in self.arms for each in self.series}
        return figure

    def _name(self, arm: str, series: str) -> str:
        plain = arm if len(self.series) == 1 else series
        return self.names.get((arm, series), plain)

    def _said(self, arm: str) -> Iterator[str]:
        """The part of a panel's title that is about its lines."""
        for series in self.series:
            if (arm, series) in self.names:
                yield self.names[arm, series]

    @property
    def all_axes(self) -> list[Axes]:
        """Every panel once."""
        return list(dict.fromkeys(self.panels.values()))

    def draw(self, tooltips: Tooltips, steps: bool = False, joined: bool = True) -> None:
        """Draw every line with its band; as `steps` between edges, or not `joined`: as separate marks."""
        for line in self.lines:
            axes, style, mean = self.panels[line.arm, line.series], self.styles[line.arm, line.series], line.mean
            x = line.x
            if steps:
                middle = (x[1:] + x[:-1]) / 2
                outline, across = (np.repeat(each, 2) for each in (mean.value, x))
                axes.plot(across[1:-1], outline, color=style.color, linestyle=style.dash, linewidth=1.5, gid=style.key)
                low, high = np.repeat(mean.low, 2), np.repeat(mean.high, 2)
                self._fill(axes, across[1:-1], low, high, style)
                x = middle
            elif joined:
                self._fill(axes, x, mean.low, mean.high, style)
                draw_line(axes, x, mean.value, style, 4.5, 1.6, markevery=max(len(x) // _MAX_MARKERS, 1))
            else:
                beside = [each for each in self.lines if self.panels[each.arm, each.series] is axes]
                x = x + 0.6 * ((beside.index(line) + 0.5) / len(beside) - 0.5)
                axes.vlines(x, mean.low, mean.high, color=style.color, linewidth=1.8, gid=style.key)
                axes.plot(
                    x, mean.value, style.marker, color=style.color, markersize=6, markeredgewidth=0, gid=style.key
                )
            texts = [interval_text(*row) for row in zip(mean.value, mean.low, mean.high, strict=True)]
            of_arm = len(self.series) == 1  # then its style is the arm's
            who = line.arm if of_arm else f"{line.arm}, {line.series or 'all'}"
            tooltips.add(axes, who, style, x, mean.value, texts, line.points, swatch=of_arm)

    @staticmethod
    def _fill(axes: Axes, x: FloatArray, low: FloatArray, high: FloatArray, style: Style) -> None:
        if np.isfinite(low).any():
            axes.fill_between(x, low, high, color=style.color, alpha=0.18, linewidth=0, zorder=2, gid=style.key)

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Arm, series, x or the point's name, mean, both ends and the number of seeds of every point."""
        for line in self.lines:
            mean, at = line.mean, line.points or line.x
            for row in zip(at, mean.value, mean.low, mean.high, mean.seeds, strict=True):
                yield line.arm, line.series, *row
