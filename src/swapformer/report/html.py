"""`report.html`: one self-contained page, from a template in which everything a user wrote is escaped."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jinja2
import yaml
from markupsafe import Markup, escape

from swapformer.report import formats, wording
from swapformer.report.figures import inlined
from swapformer.report.scene import Drawn, Scene
from swapformer.report.summaries import Comparison, compare
from swapformer.report.tables import RESULT_COLUMNS, arrow
from swapformer.report.verdicts import Contrast, Verdict


@dataclass(frozen=True)
class Line:
    """A contrast on a number line: places and widths in percent of the track."""

    contrast: Contrast
    text: str
    beside: Comparison | None
    region: tuple[float, float]
    bar: tuple[float, float] | None
    point: float | None
    open_left: bool
    open_right: bool


@dataclass(frozen=True)
class Card:
    """A verdict as the page shows it: number lines over one scale, and ticks as (place in percent, label)."""

    verdict: Verdict
    claimed: str
    why: str
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float


def render(scene: Scene, figures: Sequence[Drawn], verdicts: Sequence[Verdict], caveats: Sequence[str]) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("swapformer.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["breakable"] = breakable
    environment.globals.update(f=formats, arrow=arrow, symbols=wording.SYMBOLS, isfinite=math.isfinite)
    pages, colors = inlined(scene, figures)
    manifest = scene.records.manifest
    cells = scene.records.cells
    lost = cells[cells["status"] != "finished"]
    return environment.get_template("report.html.j2").render(
        manifest=manifest,
        scene=scene,
        cards=[card(verdict, scene) for verdict in verdicts],
        counts=_outcomes(verdicts),
        figures=[(figure, Markup(page)) for figure, page in zip(figures, pages, strict=True)],
        colors=colors,
        trials=len(cells),
        finished=int((cells["status"] == "finished").sum()),
        lost=list(lost.itertuples(index=False)),
        environments=cells.loc[cells["environment"] != "", "environment"].value_counts().to_dict(),
        caveats=caveats,
        columns=RESULT_COLUMNS,
        config=yaml.safe_dump(dict(manifest.shared_config), sort_keys=False, allow_unicode=True),
        seconds=float(cells["seconds"].sum()),
    )


def breakable(text: str) -> Markup:
    """The text, escaped, with places where a long name may break."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[_/.,=+-])", text))


def card(verdict: Verdict, scene: Scene) -> Card:
    """A verdict's number lines, all on one scale that holds zero, the edges of the claim and every finite end."""
    contrasts = verdict.contrasts
    finite = [x for c in contrasts for x in (c.estimate.value, c.lower, c.upper, *c.region) if math.isfinite(x)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    pad = 0.08 * ((high - low) or 1.0)
    low, high = low - pad, high + pad

    def place(x: float) -> float:
        return round(min(max(100 * (x - low) / (high - low), 0.0), 100.0), 2)

    edges = dict.fromkeys(edge for c in contrasts for edge in c.region if math.isfinite(edge))
    metric = verdict.claim.metric
    return Card(
        verdict,
        wording.claim_text(verdict.claim),
        wording.verdict_text(verdict),
        tuple(
            Line(
                contrast, wording.difference_text(contrast),
                compare(contrast.arm, contrast.than, metric, scene.evidence) if metric else None,
                _stretch(contrast.region, place) or (0.0, 0.0),
                _stretch((contrast.lower, contrast.upper), place),
                None if math.isnan(contrast.estimate.value) else place(contrast.estimate.value),
                math.isinf(contrast.lower), math.isinf(contrast.upper),
            )
            for contrast in contrasts
        ),
        _ticks(edges, place),
        place(0.0),
    )  # fmt: skip


def _stretch(ends: tuple[float, float], place: Callable[[float], float]) -> tuple[float, float] | None:
    """Both ends on the track; None where neither is known."""
    return (place(ends[0]), place(ends[1])) if any(map(math.isfinite, ends)) else None


def _ticks(edges: Mapping[float, None], place: Callable[[float], float]) -> tuple[tuple[float, str], ...]:
    """Labels for the edges of the claim and for zero, those too close to an earlier one left out."""
    kept: list[tuple[float, str]] = []
    for value in [*edges, 0.0]:
        at = place(value)
        if all(abs(at - other) >= 9 for other, _ in kept):
            kept.append((at, formats.compact(value + 0.0)))  # an edge may be -0.0
    return tuple(kept)


def _outcomes(verdicts: Sequence[Verdict]) -> dict[str, int]:
    return {name: sum(verdict.outcome == name for verdict in verdicts) for name in wording.SYMBOLS}
