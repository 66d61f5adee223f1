"""The comparison of two studies as plain data, on a terminal, and as one page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import ReportFigure
from swapformer.report.figures.panels import draw_bar, draw_mark
from swapformer.report.figures.strip_plot import row_panel
from swapformer.report.figures.style import PAPER, Style, arm_styles
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.page import template, wording
from swapformer.report.page.tables import arrow
from swapformer.report.page.to_json import finite
from swapformer.report.statistics.arm_summary import Summary
from swapformer.report.versus import Difference, Versus


def versus_dict(found: Versus) -> dict[str, Any]:
    """The comparison as plain data for `--json`; nan and infinity become None."""

    def summary(one: Summary) -> dict[str, Any]:
        return {"mean": finite(one.mean), "lower": finite(one.lower), "upper": finite(one.upper), "n": one.n}

    def metric(a: Summary, b: Summary, d: Difference) -> dict[str, Any]:
        return {"a": summary(a), "b": summary(b), "pairs": d.n, "same": d.same, "apart": dict(d.apart),
                "difference": finite(d.value), "lower": finite(d.lower), "upper": finite(d.upper)}  # fmt: skip

    return {
        "studies": [{"name": one.label, "question": one.manifest.question, "baseline": one.manifest.baseline,
                     "scale": one.manifest.scale} for one in (found.a, found.b)],
        "warnings": list(found.warnings),
        "claims": [{"text": each.text, "a": each.a, "b": each.b, "changed": each.changed, "reworded": each.reworded}
                   for each in found.claims],
        "arms": [{"arm": pair.arm, "condition": pair.condition, "alike": pair.alike,
                  "otherwise": [asdict(each) for each in pair.differences],
                  "metrics": {name: metric(*values) for name, values in pair.metrics.items()}} for pair in found.pairs],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "config": {key: list(values) for key, values in found.config.items()},
    }  # fmt: skip


def print_versus(found: Versus, console: Console) -> None:
    """Print the comparison: what keeps the studies apart first, then verdicts, metrics, settings."""

    def table(*heads: str) -> Table:
        return Table(*heads, box=None, pad_edge=False, header_style="bold")

    for letter, one in zip("AB", (found.a, found.b), strict=True):
        console.print(Text.assemble((f"{letter}  {one.label}", "bold"), f"  {one.manifest.question}"))
    for warning in found.warnings:
        console.print(Text(f"! {warning}", style="yellow"))
    if found.claims:
        verdicts = table("verdicts", "A", "B")
        for claim in found.claims:
            bold = Text(claim.text, style="bold" if claim.changed else "")
            verdicts.add_row(bold, _outcome(claim.a), _outcome(claim.b))
        console.print("", verdicts)
    for metric in found.metrics:
        values = table(metric + arrow(found.a.records.directions.get(metric)), "A", "B", "B − A, paired")
        for pair in found.pairs:
            a, b, difference = pair.metrics[metric]
            values.add_row(*map(Text, (pair.name, a.full_text, b.full_text, difference.text)))
        console.print("", values)
    for letter, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            console.print(Text(f"only in {letter}: {', '.join(names)}"))
    if found.config:
        settings = table("the baselines' settings", "A", "B")
        for key, pair_of in found.config.items():
            settings.add_row(*map(Text, (key, *map(setting_text, pair_of))))
        console.print("", settings)
    else:
        console.print(Text("\nthe baselines' settings are the same"))


def render(found: Versus) -> str:
    """The HTML of the page."""
    arms = list(dict.fromkeys(pair.arm for pair in found.pairs)) or [found.a.manifest.baseline]
    styles = arm_styles(arms, arms[0], ordered=False)
    with svg.settings():
        figures = [_figure(found, metric, styles) for metric in found.metrics if found.pairs]
    sides = (("A", found.a), ("B", found.b))
    values = {
        "v": found,
        "sides": sides,
        "setting_text": setting_text,
        "directions": {**found.b.records.directions, **found.a.records.directions},
        "counts": {one.label: list(one.records.cells["status"].value_counts().items()) for _, one in sides},
    }
    return template.render("versus.html.j2", [figures], styles, found.a.manifest.arms, values)


def setting_text(value: Any) -> str:
    """The value of a setting as text."""
    return value if isinstance(value, str) else json.dumps(value)


def _figure(found: Versus, metric: str, styles: dict[str, Style]) -> ReportFigure:
    axes, figure = row_panel([pair.name for pair in found.pairs], metric)
    tooltips = Tooltips(metric, "point")
    for row, pair in enumerate(found.pairs):
        style = styles[pair.arm]
        for letter, summary, shift in zip("AB", pair.metrics[metric][:2], (-0.15, 0.15), strict=True):
            at = row + shift
            if summary.n:
                draw_bar(axes, [summary.lower, summary.upper], [at, at], style)
                draw_mark(axes, summary.mean, at, style, 6.5, edge=1.4, face=PAPER if letter == "A" else "")
            tooltips.add(axes, f"{pair.arm}, {letter}", style, [summary.mean], [at], [summary.full_text])
    svg.label(axes, metric)
    caption = f"Hollow: A, {found.a.label}. Filled: B, {found.b.label}. Means over finished seeds, 95 % t intervals."
    return ReportFigure.of(f"versus_{svg.slug(metric)}", f"{metric} in both studies", caption, figure, tooltips)


def _outcome(outcome: str | None) -> Text:
    if outcome is None:
        return Text("not claimed", style="dim")
    return Text(f"{wording.SYMBOLS[outcome]} {outcome}", style=wording.COLORS[outcome])
