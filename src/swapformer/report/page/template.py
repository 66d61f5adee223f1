"""Self-contained pages from templates: style and script inline, no network, and everything a user wrote escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from swapformer.errors import printable
from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import ReportFigure
from swapformer.report.figures.style import Style, css_variables, swatch
from swapformer.report.page import wording
from swapformer.report.page.tables import arrow
from swapformer.results.arms import arm_name


def render(
    template: str,
    sets: Sequence[Sequence[ReportFigure]],
    styles: Mapping[str, Style],
    arms: Mapping[str, Sequence[str]],
    values: Mapping[str, Any],
) -> str:
    """The HTML of a page.

    Args:
        sets: of figures; the template has them as `shown`, each as (figure, SVG as it stands in the page, number).
        styles: of the arms in the figures.
        arms: with their overrides; rows of tables are filtered by them.
        values: what else the template shows.
    """
    variables = css_variables(styles)
    number = iter(range(sum(map(len, sets))))
    shown = [[(figure, *_inlined(figure, next(number), variables)) for figure in each] for each in sets]
    saved = {str(n): packed(figure.csv) for each in shown for figure, _, n in each}
    said = {str(n): figure.tooltips for each in shown for figure, _, n in each if figure.tooltips is not None}
    script = (Path(__file__).parent / "templates" / "report.js").read_text(encoding="utf-8")

    def words(arm: str) -> Markup:
        """The attributes by which the page's filter knows the row of an arm."""
        return Markup(' data-arm="{}" data-words="{}"').format(arm, " ".join([arm, *arms.get(arm, ())]))

    json_text = json.dumps(_printable(said), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            shown=shown,
            words=words,
            keys=[(arm, style.key, Markup(swatch(style, variables))) for arm, style in styles.items()],
            colors={name: (light, dark) for name, light, dark in variables.values()},
            saved=Markup(json.dumps({"csv": saved, "colors": {name: light for name, light, _ in variables.values()}})),
            said=Markup(json_text.replace("<", "\\u003c")),  # it cannot end the element that holds it
            script=Markup(script),
            script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        )
    )


@cache
def _environment() -> jinja2.Environment:
    """Templates, each compiled once in a process."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("swapformer.report.page"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(breakable=breakable, prose=prose, sortable=sortable)
    environment.globals.update(
        f=number_format, arm_name=arm_name, arrow=arrow, symbols=wording.SYMBOLS, isfinite=math.isfinite, nan=math.nan
    )
    return environment


def packed(text: str) -> str:
    """A text for the page's script: deflated, in base64, since tables of maps are long and repeat themselves."""
    if not text:
        return ""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(squeeze.compress(text.encode()) + squeeze.flush()).decode()


def _printable(node: Any) -> Any:
    """Plain data whose texts are `printable`; JSON's own escapes would be undone by the page's script."""
    if isinstance(node, Mapping):
        return {key: _printable(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_printable(value) for value in node]
    return printable(node) if isinstance(node, str) else node


def _inlined(figure: ReportFigure, number: int, variables: Mapping[str, tuple[str, str, str]]) -> tuple[Markup, int]:
    return Markup(svg.inline(figure.svg, f"f{number}", variables, f"{figure.title}. {figure.caption}")), number


def prose(text: str) -> Markup:
    """One of our sentences, escaped, with what stands between backticks as code."""
    pieces = re.split(r"`([^`\n]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece) for index, piece in enumerate(pieces)
    )


def breakable(text: str) -> Markup:
    """The text, escaped, with points where a long name may break."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[_/.,=+-])", text))


def sortable(value: float) -> str:
    """The key by which the page sorts a table: the whole number, or nothing if missing."""
    return repr(float(value)) if math.isfinite(value) else ""
