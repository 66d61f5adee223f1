"""Building a report: from a study's store to its page, tables and figures on disk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from swapformer.errors import UsageError, printable
from swapformer.errors import quote as quoted
from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.condition_view import View, condition_views
from swapformer.report.figures.figure_data import ReportFigure, reported_metrics
from swapformer.report.page import study_page, tables, wording
from swapformer.report.page.caveats import caveats, design_sentences, evaluation_caveats, exchange, ladder_sentences
from swapformer.report.page.paper import paper_tex
from swapformer.report.page.to_json import fairness_dict, row_dict, tuned_dict, verdict_dict
from swapformer.report.records import Records, read
from swapformer.report.results_csv import (
    HISTORY,
    ITEMS,
    LARGEST_ITEMS,
    add_looks,
    history_csv,
    published_items,
    results_csv,
)
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.grid import GridVerdict, grid_verdicts
from swapformer.report.statistics.kept_looks import record_looks
from swapformer.report.statistics.look_path import look_path
from swapformer.report.statistics.sequential import judge_all, trials_saved
from swapformer.report.statistics.verdicts import ALPHA, FIRST, Verdict
from swapformer.report.tuning import read_tuning, tried_settings, with_results
from swapformer.results.arms import arm_name
from swapformer.results.config import config_path
from swapformer.results.files import READ_ONLY, clear_temporaries, temporary_of
from swapformer.results.items import npz
from swapformer.results.lock import wait_for_lock
from swapformer.results.manifest import PAGE, REPORT, Manifest, place_of
from swapformer.results.store import Store

LARGEST_PUBLISHED = 200_000
"""Bytes of a figure in a study's `results/`."""


class ReadOnly(UsageError):
    """A folder may only be read."""


@dataclass(frozen=True)
class Report:
    """A report that was written: its content, and the files that hold it.

    `views` hold tables and verdicts of each condition of a grid (one, without a name, where there is none), `claims`
    the verdicts of each claim over all conditions. `errors`: what each look may err with. `unwritten` says why
    the report's folder could not be written to.
    """

    records: Records
    views: tuple[View, ...]
    claims: tuple[GridVerdict, ...]
    caveats: tuple[str, ...]
    directory: Path
    files: tuple[Path, ...]
    errors: tuple[float, ...] = ()
    unwritten: str = ""

    @property
    def rows(self) -> tuple[ArmRow, ...]:
        """The rows of all tables."""
        return tuple(row for view in self.views for row in view.rows)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, condition by condition."""
        return tuple(verdict for view in self.views for verdict in view.verdicts)

    @property
    def page(self) -> Path | None:
        """The page in the report's folder, if there is one."""
        return found if (found := self.directory / PAGE).is_file() else None

    @property
    def table(self) -> pd.DataFrame:
        """A row for each arm and metric, with the mean of its seeds and its 95 % interval."""
        columns = ["condition", "arm", "metric", "n", "mean", "lower", "upper"]
        rows = [
            (view.condition, row.arm, metric, one.n, one.mean, one.lower, one.upper)
            for view in self.views for row in view.rows for metric, one in row.summaries.items()
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    @property
    def complete(self) -> bool:
        """Whether every trial gave an answer (finished or diverged)."""
        return bool(self.records.cells["status"].isin(["finished", "diverged"]).all())

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data for `--json`; nan and infinity become None."""

        def at(view: View, plain: dict[str, Any]) -> dict[str, Any]:
            return {"condition": view.condition, **plain} if view.condition else plain

        manifest = self.records.manifest
        counts = self.records.cells["status"].value_counts()
        return {
            "study": manifest.name,
            "question": manifest.question,
            "baseline": manifest.baseline,
            "complete": self.complete,
            "trials": {str(status): int(n) for status, n in counts.items()},
            "saved": trials_saved(self.records, self.verdicts),
            "verdicts": [at(view, verdict_dict(verdict)) for view in self.views for verdict in view.verdicts],
            "arms": [at(view, row_dict(row, manifest.metrics)) for view in self.views for row in view.rows],
            "everywhere": [{"text": each.claim.text, "outcome": each.outcome} for each in self.claims],
            "tuning": [tuned_dict(tuned) for view in self.views for tuned in view.tuned],
            "fairness": [fairness_dict(each) for each in manifest.fairness],
            "impossible": {arm_name(*at): reason for at, reason in manifest.impossible_at.items()},
            "design": design_sentences(self.records, self.views),
            "caveats": list(self.caveats),
            "problems": list(self.records.problems),
            "files": [str(path) for path in self.files],
        }

    def render(self, console: Console) -> None:
        """Print a line for each verdict, tables and caveats; where a page holds it all, the table of the first metric.

        Notes that limit a verdict are always printed below it.
        """
        manifest = self.records.manifest
        brief = any(path.name == PAGE for path in self.files) or (self.directory.name == REPORT and bool(self.page))
        console.print(Text.assemble((manifest.name, "bold"), f"  {manifest.question}".rstrip()))
        for each in self.claims:
            (only,) = each.verdicts.values() if len(each.verdicts) == 1 else (None,)
            why = "" if only is None else f": {wording.found_text(only)}"
            mark = f"{wording.SYMBOLS[each.outcome]} "
            console.print(Text.assemble((mark, f"bold {wording.COLORS[each.outcome]}"), f"{each.claim.text}{why}"))
            for condition, verdict in each.verdicts.items():
                if only is None:
                    said = f"  {wording.SYMBOLS[verdict.outcome]} with {condition}: {wording.found_text(verdict)}"
                    console.print(Text(said, style=wording.COLORS[verdict.outcome]))
                for note in verdict.notes:
                    if note not in wording.found_text(verdict):  # it limits the verdict, and is not its reason
                        console.print(Text(f"{'  ' if only else '    '}{note}", style="dim"))
        if sure := wording.error_text(self.errors, self.verdicts):
            items = wording.items_text(self.verdicts) if self.records.evaluations else ""
            console.print(Text(f"{sure} {items}".strip(), style="dim"))
        for caveat in evaluation_caveats(self.views) if brief else ():
            console.print(Text(f"· {caveat}", style="dim"))
        for view in self.views[-1:] if brief else self.views:
            console.print(Text(f"\n{view.condition}" if view.condition else "", style="bold"))
            for number, metric in enumerate(manifest.metrics[:1] if brief else manifest.metrics):
                console.print(*[""] * (number > 0), self._table(view, metric), sep="\n")
        if brief:
            tables, notes = len(self.views) * len(manifest.metrics) - 1, len(self.caveats)
            counts = ((tables, "more table"), (notes, "caveat"))
            more = [f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count]
            console.print(Text(f"\n{', '.join([*more, 'all figures'])}:"))
        else:
            console.print(*map(Text, ("", *design_sentences(self.records, self.views))), sep="\n")
            for caveat in self.caveats:
                console.print(Text(f"· {caveat}", style="dim"))
        paper = [path.parent for path in self.files if path.parent.name == "paper"][:1]
        for path in [*(path for path in self.files if path.name == PAGE), *paper] or self.files:
            console.print(Text(str(path)), soft_wrap=True)
        if self.unwritten:
            console.print(Text(f"swapformer: {self.unwritten}"), soft_wrap=True)
        elif not self.files and self.directory.name == REPORT:
            what = "the page was not drawn" if self.page is None else f"{self.page} is as it was"
            console.print(Text(f"{what}; `swapformer report {self._called()}` draws it"), soft_wrap=True)

    def _called(self) -> str:
        """The study's name for a command, with its store where that is not the default one."""
        store, name = place_of(self.directory.parent.resolve())
        where = os.path.relpath(store)
        return name if where == "runs" else f"{name} {shlex.quote(f'runs_dir={where}')}"

    def _table(self, view: View, metric: str) -> Table:
        """One metric: a line for each arm, narrow enough for any terminal."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(Text(metric + tables.arrow(self.records.directions.get(metric))))
        table.add_column("trials")
        table.add_column("mean", no_wrap=True)
        table.add_column(Text(f"Δ to {self.records.manifest.baseline}"), no_wrap=True)
        for row in view.rows:
            summary = row.summaries[metric]
            table.add_row(
                Text(row.arm, style="bold" if row.is_baseline else ""),
                Text(row.trials_text),
                Text(summary.full_text),
                Text(summary.paired.full_text if summary.paired else ""),
            )
        return table


PAPER = ("latex", "pdf", "png")
"""What a report may write for a paper, to a folder `paper` of its own."""


def build(
    study_dir: Path, runs_dir: Path, publish_to: Path | None = None, paper: Sequence[str] = (), draw: bool = True
) -> Report:
    """Write the report of the study in `study_dir` (its manifest) and `runs_dir` (its trials) to `study_dir/report`.

    Writes `report.html`, `table.md`, `results.csv`, `history.csv` and the figures, each atomically. With `publish_to`
    all but the page are also written there (the study's committed `results/`), of the figures those that the study file
    lists, and the README of its exercise. `paper` (of `PAPER`) adds a folder `report/paper`: tables and a methods
    paragraph in LaTeX, each figure as PDF or PNG, and its data as CSV. Without `draw` no file of it is written.

    A store that may only be read is reported all the same; `Report.unwritten` says that no file was written.

    Raises `UsageError` where the manifest cannot be read, a claim is wrong or a directory cannot be written; a damaged
    trial is shown, never fatal.
    """
    records = read(study_dir, runs_dir)
    records = replace(records, manifest=with_results(records.manifest, runs_dir))
    asked = records.manifest
    claims = claims_of(asked)
    records = record_looks(study_dir, runs_dir, claims, records)
    manifest = records.manifest
    verdicts, path = judge_all(claims, records), look_path(claims, records)
    errors = tuple(look.error for look in path.looks) or (FIRST * ALPHA,)
    with svg.also_as([kind for kind in paper if kind != "latex"]) as drawn:
        views = condition_views(records, claims, verdicts, read_tuning(manifest), draw)
        grid = study_page.grid_section(views) if draw else None
    overall, warnings = grid_verdicts(claims, verdicts), caveats(records, views)
    directory = study_dir / REPORT
    if grid is None:
        return Report(records, tuple(views), tuple(overall), tuple(warnings), directory, (), errors)
    figures = [*grid.figures, *_figures(views)]
    metrics = reported_metrics(manifest.metrics, list(dict.fromkeys(records.metrics["metric"])))
    metrics = list(dict.fromkeys([*metrics, *(metric for claim in claims for metric in claim.metrics)]))
    public = {
        "table.md": _table_md(records, views),
        "results.csv": results_csv(records, metrics, path.published, path.published_statements(manifest.ledger)),
        HISTORY: history_csv(records),
    }
    items = npz(published_items(records, path.looks))
    page = study_page.render(records, views, overall, grid, warnings, _folders(runs_dir, directory), errors)
    unwritten = ""
    try:
        files = write(directory, {PAGE: page, **public, **_drawn(figures)})
        if paper:
            files += write(directory / "paper", _paper(records, views, figures, drawn, paper), clean=False)
    except ReadOnly as error:
        files, unwritten = [], str(error)
    if publish_to is not None:
        kept = {ITEMS: items if 0 < len(items) <= LARGEST_ITEMS else None}
        shown = _listed(manifest, figures, publish_to)
        files += write(publish_to, {**public, **kept, **_drawn(shown)}, keep=_names(manifest))
        files += _publish_readme(publish_to, records, views, errors)
    return Report(records, tuple(views), tuple(overall), tuple(warnings), directory, tuple(files), errors, unwritten)


def _folders(runs_dir: Path, page: Path) -> Callable[[str], str | None]:
    """The link from a page in a folder to that of a trial; None where the store does not have it."""
    store = Store(runs_dir)

    def folder(trial: str) -> str | None:
        found = store.directory(trial)
        return quote(os.path.relpath(found, page)) if config_path(found).is_file() else None

    return folder


def rebuild(
    records: Records, directory: Path, publish: bool = False, paper: Sequence[str] = (), draw: bool = True,
    page: Path | None = None, remarks: Sequence[str] = (),
) -> Report:  # fmt: skip
    """The report of records that are not in a store, but were read from the `results.csv` in `directory`.

    It has no page unless `page` says where; `remarks` precede its caveats. With `publish`, the table and those of
    the listed figures that need no more than those numbers are written there, and the look that this is, if it is one;
    the other figures stay. `paper` as in `build`, in `directory/paper`. Without `draw` there are no figures.
    """
    manifest = records.manifest
    claims = claims_of(manifest)
    verdicts = judge_all(claims, records)
    with svg.also_as([kind for kind in paper if kind != "latex"]) as also:
        views = condition_views(records, claims, verdicts, read_tuning(manifest), draw)
        figures = [*study_page.grid_section(views).figures, *_figures(views)] if draw else []
    drawn = _listed(manifest, figures, directory) if publish and draw else figures
    public = {"table.md": _table_md(records, views), **_drawn(drawn)}
    files = write(directory, public, clean=draw, keep=_names(manifest)) if publish else []
    path = look_path(claims, records)
    errors = tuple(look.error for look in path.looks) or (FIRST * ALPHA,)
    if publish and path.added and (directory / "results.csv").is_file():
        add_looks(directory / "results.csv", records, path.before, path.added)
    if publish:
        files += _publish_readme(directory, records, views, errors)
    if paper:
        files += write(directory / "paper", _paper(records, views, figures, also, paper), clean=False)
    overall, warnings = grid_verdicts(claims, verdicts), [*remarks, *caveats(records, views)]
    if page is not None:
        grid = study_page.grid_section(views)
        html = study_page.render(records, views, overall, grid, warnings, lambda trial: None, errors)
        files += write(page.parent, {page.name: html}, clean=False)
    return Report(records, tuple(views), tuple(overall), tuple(warnings), directory, tuple(files), errors)


def _figures(views: Sequence[View]) -> list[ReportFigure]:
    return [figure for view in views for figure in view.figures]


def _names(manifest: Manifest) -> set[str]:
    """The files of the figures that a study file lists."""
    return {f"{each.name}.svg" for each in manifest.figures}


def _listed(manifest: Manifest, drawn: Sequence[ReportFigure], place: Path) -> list[ReportFigure]:
    """The figures that are published, of those that were drawn; others are in the folder already.

    Raises UsageError for one that is neither, and for one that is too large for a folder of results.
    """
    known = {each.name: each for each in drawn}
    for each in manifest.figures:
        if each.name not in known and not (place / f"{each.name}.svg").is_file():
            names = number_format.listed(sorted(known)) or "none"
            raise UsageError(
                f"`figures` of {manifest.name} must name figures of its report, but {quoted(each.name)} is not one; it "
                f"draws {names}"
            )
    found = [known[each.name] for each in manifest.figures if each.name in known]
    for figure in found:
        if (size := len(figure.svg.encode())) > LARGEST_PUBLISHED:
            raise UsageError(
                f"a published figure may have {LARGEST_PUBLISHED:,} bytes, but {figure.name} has {size:,}; take it out "
                "of `figures`: the report's page has it"
            )
    return found


def _drawn(figures: Sequence[ReportFigure]) -> dict[str, str]:
    return {f"{figure.name}.svg": figure.svg for figure in figures}


def _paper(
    records: Records,
    views: Sequence[View],
    figures: Sequence[ReportFigure],
    drawn: Mapping[str, Mapping[str, bytes]],
    paper: Sequence[str],
) -> dict[str, str | bytes]:
    """The files for a paper: name → content."""
    files: dict[str, str | bytes] = {"paper.tex": paper_tex(records, views)} if "latex" in paper else {}
    for figure in figures:
        files |= {f"{figure.name}.{kind}": content for kind, content in drawn.get(figure.svg, {}).items()}
        files |= {f"{figure.name}.csv": figure.csv} if figure.csv and figure.svg in drawn else {}
    return files


def _table_md(records: Records, views: Sequence[View]) -> str:
    asked = records.manifest
    ladder = "".join(f"\n{tables.cell(line)}\n" for line in ladder_sentences(views))
    return (
        ladder.lstrip("\n")
        + ("\n" if ladder else "")
        + "\n".join(
            tables.table_md(
                view.rows,
                asked.metrics,
                records.directions,
                asked.baseline,
                view.condition,
                [*exchange([replace(view, condition="")]), *evaluation_caveats([view])],
                view.verdicts,
            )
            for view in views
        )
        + tables.tried_md(tried_settings([tuned for view in views for tuned in view.tuned]))
    )


def _readme_md(records: Records, views: Sequence[View], errors: Sequence[float], place: str) -> str:
    """The part of a README that is about a study: figures, which lie at `place`, verdicts, and how sure they are.

    A figure with a caption is shown, others are linked.
    """
    asked, parts = records.manifest, list[str]()
    links = [f"[{each.name}]({place}/{each.name}.svg)" for each in asked.figures if not each.caption]
    for each in asked.figures:
        caption = tables.cell(each.caption)
        parts += [f"![{caption}]({place}/{each.name}.svg)", "", f"*{caption}*", ""] if caption else []
    parts += [f"Figures: {number_format.listed(links)}.", ""] if links else []
    for view in (each for each in views if each.verdicts):
        parts += [f"### {tables.cell(view.condition)}", ""] if view.condition else []
        parts += [tables.verdicts_md(view.verdicts)]
    judged = [verdict for view in views for verdict in view.verdicts]
    sure, unknown = wording.error_text(errors, judged), wording.items_text(judged)
    parts += [sure, ""] if sure else []
    parts += [unknown, ""] if unknown else []
    parts += [
        f"All arms, metrics and intervals: [table]({place}/table.md). A row for each seed: [csv]({place}/results.csv)."
    ]
    return "\n".join([*parts, ""])


def _publish_readme(place: Path, records: Records, views: Sequence[View], errors: Sequence[float]) -> list[Path]:
    """Write the study between its markers in the README of its exercise, if that has them; the files written."""
    folder = place.parent if place.name == "results" else place.parent.parent
    for readme in (folder / "README.md", folder.parent / "README.md"):
        if readme.is_file():
            before = readme.read_text(encoding="utf-8")
            where = place.relative_to(readme.parent).as_posix()
            after = tables.into_readme(before, records.manifest.name, _readme_md(records, views, errors, where))
            if after != before:
                return write(readme.parent, {readme.name: after}, clean=False)
    return []


def write(
    directory: Path, contents: Mapping[str, str | bytes | None], clean: bool = True, keep: Collection[str] = ()
) -> list[Path]:
    """Write each file atomically, its text `printable` unless it is a table of data; one without content is removed.

    One report at a time writes to a folder. It removes what a killed one left there and, with `clean`, the figures of
    an earlier report that are no longer drawn, but those in `keep`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(directory):
            clear_temporaries(directory)
            for name, text in contents.items():
                if text is None:  # what an earlier report left is of other trials
                    (directory / name).unlink(missing_ok=True)
                    continue
                temporary = temporary_of(directory / name)
                if isinstance(text, str):
                    shown = text if name.endswith(".csv") else printable(text)
                    temporary.write_text(shown, encoding="utf-8", newline="\n")
                else:
                    temporary.write_bytes(text)
                os.replace(temporary, directory / name)
            for path in directory.glob("*.svg") if clean else ():
                stale = path.name not in contents and path.name not in keep
                if stale and svg.MARK in path.read_text(encoding="utf-8", errors="replace"):
                    path.unlink()
    except OSError as error:
        if error.errno in READ_ONLY:
            raise ReadOnly(f"{directory} may only be read ({error.strerror}), so no report was written") from error
        raise UsageError(f"the report must be written to {directory}, but that failed: {error}") from error
    return [directory / name for name, text in contents.items() if text is not None]
