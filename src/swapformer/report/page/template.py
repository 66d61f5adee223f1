"""One self-contained page from a template: its own style and script, nothing from anywhere else, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import Drawn
from swapformer.report.figures.legend import swatch
from swapformer.report.figures.style import Style, css_variables
from swapformer.report.page import wording
from swapformer.report.page.tables import arrow

Shown = tuple[Drawn, Markup, int]
"""A figure, its SVG as it stands in the page, and its number there."""


def render(
    template: str, sets: Sequence[Sequence[Drawn]], looks: Mapping[str, Style], values: Mapping[str, Any]
) -> str:
    """The page. `sets` of figures reach the template as `shown`, in the same order; `looks` are those of the arms."""
    variables = css_variables(looks)
    number = iter(range(sum(map(len, sets))))
    shown = [[_inlined(figure, next(number), variables) for figure in each] for each in sets]
    said = {str(number): figure.hover for each in shown for figure, _, number in each if figure.hover is not None}
    script = (Path(__file__).parent / "templates" / "report.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("swapformer.report.page"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(breakable=breakable, prose=prose, sortable=sortable)
    environment.globals.update(
        f=number_format, arrow=arrow, symbols=wording.SYMBOLS, isfinite=math.isfinite, nan=math.nan
    )
    return environment.get_template(template).render(
        **values,
        shown=shown,
        keys=[(arm, look.key, Markup(swatch(look, variables))) for arm, look in looks.items()],
        colors={name: (light, dark) for name, light, dark in variables.values()},
        said=_data(said),
        script=Markup(script),
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )  # fmt: skip


def _data(plain: object) -> Markup:
    """JSON that cannot end the element that holds it."""
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _inlined(figure: Drawn, number: int, variables: Mapping[str, tuple[str, str, str]]) -> Shown:
    described = f"{figure.title}. {figure.caption}"
    return figure, Markup(svg.inline(figure.svg, f"f{number}", variables, described)), number


def prose(text: str) -> Markup:
    """A sentence of ours, escaped, with what stands between backticks as code."""
    pieces = re.split(r"`([^`\n]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else escape(piece) for place, piece in enumerate(pieces)
    )


def breakable(text: str) -> Markup:
    """The text, escaped, with places where a long name may break."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[_/.,=+-])", text))


def sortable(value: float) -> str:
    """What a table is sorted by: the whole number, or nothing where there is none."""
    return repr(float(value)) if math.isfinite(value) else ""


def words(arms: Mapping[str, Sequence[str]]) -> Any:
    """For the rows of tables of arms: the attributes by which the page's filter knows them."""

    def attributes(arm: str) -> Markup:
        return Markup(' data-arm="{}" data-words="{}"').format(arm, " ".join([arm, *arms.get(arm, ())]))

    return attributes
