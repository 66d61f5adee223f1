"""Judges tables of results that were measured elsewhere, and keeps the looks at them in a file beside the table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from swapformer.errors import UsageError
from swapformer.report.build import Report, rebuild
from swapformer.report.external_results import Question, Values, records_of
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.look_path import look_path
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
        if kept is not None and page.resolve() == kept.resolve():
            raise UsageError(f"--html must name a page, but {page} is to keep the looks; name another one")
    found = records_of(table, asked, name)
    same = [path for path in others if kept is not None and _holds_same_runs(path, table, asked)]
    if kept is not None and not fresh:
        left_out = _kept(kept).left_out
        same = [path for path in same if not _kept(path).ids <= left_out]
        kept = _one_file([kept, *same] if kept.is_file() else same) if same else kept
    looks = _afresh(kept, same) if fresh else _kept(kept)
    values, without, paired = looks.values, looks.without, looks.paired
    if paired not in (None, asked.paired):
        raise UsageError(
            f"these results were judged {'paired' if paired else 'unpaired'} before, and must be again; --fresh leaves "
            "the earlier looks out"
        )
    damaged, remarks = [path for path in others if _is_damaged(path)], []
    if damaged:
        remarks.append(f"{' and '.join(map(str, damaged))} cannot be read: looks at these results may be missing")
    if looks.left_out and not fresh:
        remarks.append("looks before these were left out by --fresh, and so is the error that they took")
    if fresh and (same or (kept is not None and kept.is_file())):
        remarks.append("judged afresh: the looks before are left out, and so is the error that they took")
    found = records_of(table, asked, name, values) if values else found
    remarks, own = [*found.remarks, *remarks], found.values
    records = replace(found.records, manifest=replace(found.records.manifest, ledger=looks.ledger))
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
    after = looks.ledger.add(path.added, path.series) if path.added else looks.ledger
    after = after.with_seen(path.seen)
    if kept is not None and after != looks.ledger:
        ledger = after.to_json()
        merged = {trial: {**values.get(trial, {}), **own.get(trial, {})} for trial in {**values, **own}}
        lacking = {run: sorted(records.directions.keys() - row.keys()) for run, row in own.items() if row}
        for run, metrics in without.items():
            lacking[run] = sorted({*lacking.get(run, ()), *metrics})
        content = {
            "paired": asked.paired, "ledger": ledger, "values": merged, "traits": {**looks.traits, **found.traits},
            "without": {run: metrics for run, metrics in lacking.items() if metrics},
            "left_out": sorted(looks.left_out),
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


def _holds_same_runs(path: Path, table: pd.DataFrame, asked: Question) -> bool:
    """Whether a file keeps looks at these runs: two or more of each of two arms have the values that they have here.

    A single run may be equal by chance, and one arm may be shared by two questions. Where another metric is judged, a
    run is known by those that were not judged then, or are not now.
    """
    try:
        looks = _kept(path)
    except UsageError:
        return False
    here = records_of(table, asked, known=looks.values)
    arms: dict[str, int] = {}
    for cell in here.records.manifest.cells:
        now, then = here.values.get(cell.trial, {}), looks.values.get(cell.trial, {})
        judged = now.keys() & then.keys()
        all_now, all_then = {**here.traits.get(cell.trial, {}), **now}, {**looks.traits.get(cell.trial, {}), **then}
        both = all_now.keys() & all_then.keys()
        known = any(all_now[each] == all_then[each] for each in both) and all(
            now[each] == then[each] for each in judged
        )
        arms[cell.arm] = arms.get(cell.arm, 0) + known
    return sum(equal >= 2 for equal in arms.values()) >= 2


@dataclass(frozen=True)
class _Looks:
    """What a file keeps: looks, the values of the runs that they were at, and other values by which these are known.

    `paired`: whether the runs were judged so; None in no file. `without`: the judged metrics that runs did not have;
    older files do not tell. `left_out`: the ids of the looks that --fresh has left out.
    """

    ledger: Ledger = field(default_factory=Ledger)
    values: Values = field(default_factory=dict)
    traits: Values = field(default_factory=dict)
    without: Mapping[str, Sequence[str]] = field(default_factory=dict)
    paired: bool | None = None
    left_out: frozenset[str] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        """What its looks are known by."""
        return frozenset(look.id for series in self.ledger.series for look in series.looks)


def _afresh(kept: Path | None, same: Sequence[Path]) -> _Looks:
    """No looks, but which ones are left out; a damaged file is one that holds none."""
    readable = [_kept(path) for path in (kept, *same) if not (path is not None and _is_damaged(path))]
    return _Looks(left_out=frozenset().union(*(each.ids | each.left_out for each in readable)))


def _kept(path: Path | None) -> _Looks:
    """The looks in a file; none where there is no file."""
    if path is None or not path.is_file():
        return _Looks()
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        values = {str(run): dict(own) for run, own in raw["values"].items()}
        traits = {str(run): dict(own) for run, own in raw.get("traits", {}).items()}
        without = {str(trial): [str(each) for each in metrics] for trial, metrics in raw.get("without", {}).items()}
        left_out = frozenset(map(str, raw.get("left_out", ())))
        return _Looks(Ledger.from_json(raw["ledger"]), values, traits, without, bool(raw["paired"]), left_out)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} must hold the looks at these results, but it is damaged; restore it, or move it away: the looks "
            "before are then unknown"
        ) from None
