"""The decision table of an exercise: a picture of what its studies found, drawn from their published results.

An exercise that has one says in `decisions.yaml` what stands in it:

    title: What each attention costs, and what it learns
    columns: {training: seconds of a step at 2048 tokens}
    rows:
      standard:
        training: {study: training, arm: softmax, metric: time/step@2048, text: "{:.0f} ms", times: 1000}
      linear:
        training: {study: training, arm: linear, metric: time/step@2048, over: softmax, text: "× {:.2f}",
                   claim: so does linear attention, supported: better, refuted: alike}

A cell shows the mean over seeds of a metric, over that of another arm where `over` names one, `times` a number, and
what the verdict on a claim of its study makes of it: better, worse or alike, a question mark where it is undecided.

`python -m docs.scorecard --publish` draws it beside the file, as `decisions.svg`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.report.figures.style import ALARM, GRID, INK, PAPER, SOFT
from swapformer.report.records import Records
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.grid import grid_verdicts
from swapformer.report.statistics.sequential import judge_all
from swapformer.study.published_results import published_results
from swapformer.yaml_reader import read_yaml

FILE, PICTURE = "decisions.yaml", "decisions.svg"
NOT_RUN = "not run yet"
MARKS = {"better": ("▲", "#1a7f37"), "worse": ("▼", ALARM), "alike": ("=", SOFT), "undecided": ("?", SOFT)}
_KEYS = ("study", "arm", "metric", "over", "times", "text", "claim", "supported", "refuted")
_WIDTH, _HEIGHT, _FIRST, _HEAD, _TITLE = 150, 46, 110, 52, 34


@dataclass(frozen=True)
class TableCell:
    """A cell: what is shown, and one of MARKS, or nothing where no claim is about it."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class DecisionTable:
    """A table of decisions; `columns`: name → what stands in it; `rows`: name → its cells, in the columns' order."""

    title: str
    columns: Mapping[str, str]
    rows: Mapping[str, tuple[TableCell, ...]]

    def svg(self) -> str:
        """The table as a picture."""
        width = _FIRST + _WIDTH * len(self.columns)
        height = _TITLE + _HEAD + _HEIGHT * len(self.rows) + 24
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
            written(12, 23, self.title, 14, INK, "start", "bold"),
        ]
        for index, (name, said) in enumerate(self.columns.items()):
            middle = _FIRST + _WIDTH * (index + 0.5)
            lines.append(written(middle, _TITLE + 18, name, 12, INK, weight="bold"))
            lines.append(written(middle, _TITLE + 36, said, 9, SOFT))
        for index, (name, cells) in enumerate(self.rows.items()):
            top = _TITLE + _HEAD + _HEIGHT * index
            lines.append(f'<line x1="8" x2="{width - 8}" y1="{top}" y2="{top}" stroke="{GRID}"/>')
            lines.append(written(12, top + 28, name, 12, INK, "start", "bold"))
            for column, cell in enumerate(cells):
                middle = _FIRST + _WIDTH * (column + 0.5)
                lines.append(written(middle, top + (20 if cell.mark else 28), cell.text, 11.5, INK))
                if cell.mark:
                    sign, colour = MARKS[cell.mark]
                    lines.append(written(middle, top + 37, f"{sign} {cell.mark}", 10, colour))
        told = (
            "▲ better, ▼ worse, = alike: a claim was supported or refuted; ? undecided. No mark: no claim is about it."
        )
        lines += [written(12, height - 8, told, 9, SOFT, "start"), "</svg>", ""]
        return "\n".join(lines)


def written(
    x: float, y: float, text: str, size: float, colour: str, anchor: str = "middle", weight: str = "normal"
) -> str:
    """A line of text in an SVG, whose anchor lies at (x, y)."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def decision_table(folder: Path) -> DecisionTable | None:
    """The decision table of the exercise in a folder; None if it has none. Raises UsageError for what is wrong."""
    path = folder / FILE
    if not path.is_file():
        return None
    raw = read_yaml(path, "a decision table")
    if not isinstance(raw, Mapping) or set(raw) != {"title", "columns", "rows"}:
        raise UsageError(f"{path} must have `title`, `columns` and `rows`, and nothing else")
    columns, found = raw["columns"], _Published(folder)
    rows = {}
    for name, cells in raw["rows"].items():
        if set(cells) != set(columns):
            raise UsageError(f"{path}: the row {quote(name)} must have the cells {', '.join(columns)}")
        rows[name] = tuple(_cell(f"{path}, {name}, {column}", cells[column], found) for column in columns)
    return DecisionTable(raw["title"], columns, rows)


class _Published:
    """The published results of an exercise's studies, each read and judged once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, tuple[Records, dict[str, str]] | None] = {}

    def study(self, part: str) -> tuple[Records, dict[str, str]] | None:
        """The records of a part and its claims' verdicts; None where it was not run yet."""
        if part not in self._read:
            path = self.folder / part / "study.yaml"
            if not path.is_file():
                raise UsageError(f"{self.folder / FILE} names the study {quote(part)}, but {path} does not exist")
            self._read[part] = _judged(path) if (path.parent / "results" / "results.csv").is_file() else None
        return self._read[part]


def _judged(path: Path) -> tuple[Records, dict[str, str]]:
    records, _ = published_results(path)
    claims = claims_of(records.manifest)
    return records, {each.claim.text: each.outcome for each in grid_verdicts(claims, judge_all(claims, records))}


def _cell(where: str, raw: Mapping[str, Any], found: _Published) -> TableCell:
    for key in raw:
        if key not in _KEYS:
            raise UsageError(f"{where}: a cell has no key {quote(key)}{suggest(str(key), _KEYS)}")
    study = found.study(raw["study"])
    if study is None:
        return TableCell(NOT_RUN)
    records, verdicts = study
    value = _mean(where, records, raw["arm"], raw["metric"]) * raw.get("times", 1)
    if "over" in raw:
        value /= _mean(where, records, raw["over"], raw["metric"])
    text = raw["text"].format(value)
    if "claim" not in raw:
        return TableCell(text)
    if raw["claim"] not in verdicts:
        hint = suggest(raw["claim"], verdicts)
        raise UsageError(f"{where}: the study {raw['study']} does not claim {quote(raw['claim'])}{hint}")
    outcome = verdicts[raw["claim"]]
    mark = raw.get(outcome, "") if outcome in ("supported", "refuted") else "undecided"
    if mark and mark not in MARKS:
        raise UsageError(f"{where}: a verdict makes a cell {', '.join(MARKS)}, not {quote(mark)}")
    return TableCell(text, mark)


def _mean(where: str, records: Records, arm: str, metric: str) -> float:
    table = records.metrics
    values = table.loc[(table["arm"] == arm) & (table["metric"] == metric), "value"]
    if values.empty:
        raise UsageError(f"{where}: no trial of the arm {quote(arm)} has {quote(metric)}")
    return float(values.mean())
