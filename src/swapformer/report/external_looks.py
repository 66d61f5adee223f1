"""Judges tables of results that were measured elsewhere, and keeps the looks at them in a file beside the table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from swapformer.errors import UsageError
from swapformer.report.build import Report, rebuild
from swapformer.report.external_results import Question, records_of
from swapformer.report.records import Records
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.sequential import look_path
from swapformer.results.files import write_atomic
from swapformer.results.ledger import Ledger

MARK = b'<meta name="generator" content="swapformer">'
"""What every page of a report has near its beginning."""


def judge_table(
    table: pd.DataFrame, asked: Question, name: str = "results", kept: Path | None = None, fresh: bool = False,
    page: Path | None = None, others: Sequence[Path] = (),
) -> Report:  # fmt: skip
    """The report of a table of results.

    Args:
        table: a row for each run, or for each run and metric; see `COLUMNS`.
        asked: what is asked of it.
        name: of the report.
        kept: the file that keeps the looks; a judgement of the same runs and more is then the next look.
        fresh: leave out the looks that were kept, and say so.
        page: where to write a page, if anywhere.
        others: files of looks at other tables. Where `kept` does not exist yet, one that holds the same runs takes its
            place: looks are found by the runs that they were at, whatever their table is called.

    Raises:
        UsageError: for what is wrong with the table, the question or the file of looks, where a run that was judged
            has other values now, and where the page would replace a file that is no page.
    """
    if page is not None:
        _require_page(page)
    records, remarks, own = records_of(table, asked, name)
    same: list[Path] = []
    if kept is not None and not kept.is_file():
        same = [path for path in others if _holds_same_runs(path, records, own)]
        kept = _one_file(same) if same and not fresh else kept
    before, values, paired, without = (Ledger(), {}, None, {}) if fresh else _kept(kept)
    if paired not in (None, asked.paired):
        raise UsageError(
            f"these results were judged {'paired' if paired else 'unpaired'} before, and must be again; --fresh leaves "
            "the earlier looks out"
        )
    damaged = [path for path in others if _is_damaged(path)]
    if damaged:
        remarks.append(f"{' and '.join(map(str, damaged))} cannot be read: looks at these results may be missing")
    if fresh and (same or (kept is not None and kept.is_file())):
        remarks.append("judged afresh: the looks before are left out, and so is the error that they took")
    if values:
        records, remarks, own = records_of(table, asked, name, values)
    records = replace(records, manifest=replace(records.manifest, ledger=before))
    path = look_path(claims_of(records.manifest), records)
    changed = sum(
        own[run].get(metric, math.nan) != value
        for run, row in values.items()
        for metric, value in row.items()
        if run in own and metric in records.directions
    )
    gained = [metric for run, metrics in without.items() for metric in metrics if metric in own.get(run, {})]
    if gained:
        raise UsageError(
            f"runs that were judged must stay as they were, but {len(gained)} had no {gained[0]} when it was "
            "judged; --fresh judges them as new results"
        )
    gone = [run for run, row in values.items() if run not in own and records.directions.keys() & row.keys()]
    if changed or gone:
        raise UsageError(
            f"runs that were judged must stay as they were, but {changed or len(gone)} are others than {kept} holds, "
            "or gone; --fresh judges them as new results"
        )
    report = rebuild(records, Path(), draw=page is not None, page=page, remarks=remarks)
    if kept is not None and path.added:
        ledger = before.add(path.added, path.series).to_json()
        merged = {trial: {**values.get(trial, {}), **own.get(trial, {})} for trial in {**values, **own}}
        lacking = {run: sorted(records.directions.keys() - row.keys()) for run, row in own.items() if row}
        for run, metrics in without.items():
            lacking[run] = sorted({*lacking.get(run, ()), *metrics})
        content = {
            "paired": asked.paired, "ledger": ledger, "values": merged,
            "without": {run: metrics for run, metrics in lacking.items() if metrics},
        }  # fmt: skip
        try:
            write_atomic(kept, json.dumps(content) + "\n")
        except OSError as error:
            lost = f"this look could not be kept in {kept} ({error.strerror}): judge from a folder of your own"
            return replace(report, caveats=(lost, *report.caveats))
    return report


def _require_page(page: Path) -> None:
    """Refuse to replace what is no page of a report."""
    if page.is_dir():
        raise UsageError(
            f"--html must name a file, but {page} is a folder; name one in it, such as {page / 'page.html'}"
        )
    if page.is_file() and MARK not in page.read_bytes()[: 1 << 12]:
        raise UsageError(f"--html must name a new file or an earlier page, but {page} is neither; name another one")


def _one_file(paths: Sequence[Path]) -> Path:
    """The only file that keeps looks at the same runs."""
    if len(paths) > 1:
        raise UsageError(
            f"looks at these results must be kept in one file, but {' and '.join(map(str, paths))} hold some; judge "
            "each by itself, or --fresh judges all as new results"
        )
    return paths[0]


def _is_damaged(path: Path) -> bool:
    try:
        _kept(path)
    except UsageError:
        return True
    return False


def _holds_same_runs(path: Path, records: Records, own: Mapping[str, Mapping[str, float | None]]) -> bool:
    """Whether a file keeps looks at these runs: two or more of each of two arms have the values that they have here.

    A single run may be equal by chance, and one arm may be shared by two questions.
    """
    try:
        _, values, _, _ = _kept(path)
    except UsageError:
        return False
    arms: dict[str, int] = {}
    for cell in records.manifest.cells:
        here, there = own.get(cell.trial, {}), values.get(cell.trial, {})
        both = here.keys() & there.keys()
        arms[cell.arm] = arms.get(cell.arm, 0) + bool(both and all(here[each] == there[each] for each in both))
    return sum(equal >= 2 for equal in arms.values()) >= 2


_Kept = tuple[Ledger, dict[str, dict[str, float | None]], bool | None, dict[str, list[str]]]


def _kept(path: Path | None) -> _Kept:
    """The looks that a file keeps, the values of the runs that they were at, and whether these were paired.

    Last the metrics that runs did not have when these were judged; older files do not tell.
    """
    if path is None or not path.is_file():
        return Ledger(), {}, None, {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        values = {str(trial): dict(own) for trial, own in raw["values"].items()}
        without = {str(trial): [str(each) for each in metrics] for trial, metrics in raw.get("without", {}).items()}
        return Ledger.from_json(raw["ledger"]), values, bool(raw["paired"]), without
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} must hold the looks at these results, but it is damaged; restore it, or move it away: the looks "
            "before are then unknown"
        ) from None
