"""Two studies side by side, as plain data, on a terminal, and as one page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table
from rich.text import Text

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import Drawn
from swapformer.report.figures.strip_plot import rows
from swapformer.report.figures.style import PAPER, Style, styles
from swapformer.report.figures.tooltips import Hover
from swapformer.report.page import template, wording
from swapformer.report.page.tables import arrow
from swapformer.report.statistics.arm_summary import Summary
from swapformer.report.versus import Pair, Side, Versus

_COLORS = {"supported": "green", "refuted": "red", "undecided": "yellow", "depends": "magenta"}


def plain(found: Versus) -> dict[str, Any]:
    """For `--json`: nan and infinity become None."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    def summary(one: Summary) -> dict[str, Any]:
        return {"mean": number(one.mean), "lower": number(one.lower), "upper": number(one.upper), "n": one.n}

    return {
        "studies": [{"name": one.label, "question": one.manifest.question, "baseline": one.manifest.baseline,
                     "scale": one.manifest.scale} for one in (found.a, found.b)],
        "warnings": list(found.warnings),
        "claims": [{"text": each.text, "a": each.a, "b": each.b, "changed": each.changed, "reworded": each.reworded}
                   for each in found.claims],
        "arms": [
            {"arm": pair.arm, "condition": pair.condition, "alike": pair.alike,
             "otherwise": [asdict(each) for each in pair.otherwise], "metrics": {
                metric: {"a": summary(a), "b": summary(b), "pairs": d.n, "same": d.same, "apart": dict(d.apart),
                         "difference": number(d.value), "lower": number(d.lower), "upper": number(d.upper)}
                for metric, (a, b, d) in pair.metrics.items()
            }} for pair in found.pairs
        ],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "config": {key: list(values) for key, values in found.config.items()},
    }  # fmt: skip


def show(found: Versus, console: Console) -> None:
    """Print it: what keeps them apart first, then verdicts, metrics, settings."""
    for letter, one in zip("AB", (found.a, found.b), strict=True):
        console.print(Text.assemble((f"{letter}  {one.label}", "bold"), f"  {one.manifest.question}"))
    for warning in found.warnings:
        console.print(Text(f"! {warning}", style="yellow"))
    if found.claims:
        table = Table("verdicts", "A", "B", box=None, pad_edge=False, header_style="bold")
        for claim in found.claims:
            table.add_row(Text(claim.text, style="bold" if claim.changed else ""), _outcome(claim.a), _outcome(claim.b))
        console.print("", table)
    for metric in found.metrics:
        direction = found.a.records.directions.get(metric)
        table = Table(
            metric + arrow(direction), "A", "B", "B − A, paired", box=None, pad_edge=False, header_style="bold"
        )
        for pair in found.pairs:
            a, b, difference = pair.metrics[metric]
            table.add_row(Text(_name(pair)), Text(_cell(a)), Text(_cell(b)), Text(difference.text))
        console.print("", table)
    for letter, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            console.print(Text(f"only in {letter}: {', '.join(names)}"))
    if found.config:
        table = Table("the baselines' settings", "A", "B", box=None, pad_edge=False, header_style="bold")
        for key, values in found.config.items():
            table.add_row(Text(key), *(Text(written(value)) for value in values))
        console.print("", table)
    else:
        console.print(Text("\nthe baselines' settings are the same"))


def render(found: Versus) -> str:
    """One page."""
    arms = list(dict.fromkeys(pair.arm for pair in found.pairs))
    looks = styles(arms or [found.a.manifest.baseline], (arms or [found.a.manifest.baseline])[0], ordered=False)
    with svg.settings():
        figures = [_figure(found, metric, looks) for metric in found.metrics if found.pairs]
    values = {
        "v": found,
        "sides": [("A", found.a), ("B", found.b)],
        "name": _name,
        "cell": _cell,
        "written": written,
        "words": template.words(found.a.manifest.arms),
        "delta": _delta,
        "directions": {**found.b.records.directions, **found.a.records.directions},
        "counts": {one.label: _counts(one) for one in (found.a, found.b)},
    }
    return template.render("versus.html.j2", [figures], looks, values)


def written(value: Any) -> str:
    """A setting in words."""
    return value if isinstance(value, str) else json.dumps(value)


def _figure(found: Versus, metric: str, looks: dict[str, Style]) -> Drawn:
    axes, figure = rows([_name(pair) for pair in found.pairs], metric)
    hover = Hover(metric, "point")
    for row, pair in enumerate(found.pairs):
        for letter, summary, shift in zip("AB", pair.metrics[metric][:2], (-0.15, 0.15), strict=True):
            _mark(axes, looks[pair.arm], summary, row + shift, hollow=letter == "A")
            hover.add(axes, f"{pair.arm}, {letter}", looks[pair.arm], [summary.mean], [row + shift], [_cell(summary)])
    svg.label(axes, metric)
    title = f"{metric} in both studies"
    caption = f"Hollow: A, {found.a.label}. Filled: B, {found.b.label}. Means over finished seeds, 95 % t intervals."
    drawing = svg.to_svg(figure, title)
    return Drawn(f"versus_{svg.slug(metric)}", title, caption, drawing, hover.plain())


def _mark(axes: Axes, look: Style, summary: Summary, at: float, hollow: bool) -> None:
    if not summary.n:
        return
    if math.isfinite(summary.lower):
        axes.plot([summary.lower, summary.upper], [at, at], color=look.color, linewidth=1.8, solid_capstyle="butt",
                  zorder=3, gid=look.key)  # fmt: skip
    axes.plot([summary.mean], [at], look.marker, markersize=6.5, markerfacecolor=PAPER if hollow else look.color,
              markeredgecolor=look.color, markeredgewidth=1.4, zorder=4, gid=look.key)  # fmt: skip


def _name(pair: Pair) -> str:
    return number_format.placed(pair.arm, pair.condition)


def _cell(summary: Summary) -> str:
    return f"{summary.text} {summary.interval_text}" if summary.n else number_format.DASH


def _delta(summary: Summary) -> str:
    """The difference to the baseline of its own study."""
    compared = summary.comparison
    return f"Δ {compared.text} {compared.interval_text}" if compared is not None and compared.pairs else ""


def _outcome(outcome: str | None) -> Text:
    if outcome is None:
        return Text("not claimed", style="dim")
    return Text(f"{wording.SYMBOLS[outcome]} {outcome}", style=_COLORS[outcome])


def _counts(one: Side) -> Sequence[tuple[str, int]]:
    return [(str(status), int(n)) for status, n in one.records.cells["status"].value_counts().items()]
