"""From a study's store to its report on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swapformer.errors import UsageError
from swapformer.report import canvas, figures, formats, html, tables, wording
from swapformer.report.claims import parse
from swapformer.report.evidence import gather
from swapformer.report.plain import row_dict, verdict_dict
from swapformer.report.records import Records, read
from swapformer.report.scene import Scene
from swapformer.report.summaries import ArmRow, summarise
from swapformer.report.verdicts import Verdict, judge

_COLORS = {"supported": "green", "refuted": "red", "undecided": "yellow"}


@dataclass(frozen=True)
class Report:
    """A report that was written: what it says, and where it lies."""

    records: Records
    rows: tuple[ArmRow, ...]
    verdicts: tuple[Verdict, ...]
    caveats: tuple[str, ...]
    directory: Path
    files: tuple[Path, ...]

    @property
    def complete(self) -> bool:
        """Whether every trial gave an answer (finished or diverged)."""
        return bool(self.records.cells["status"].isin(["finished", "diverged"]).all())

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`; nan and infinity become None."""
        manifest = self.records.manifest
        counts = self.records.cells["status"].value_counts()
        return {
            "study": manifest.name,
            "question": manifest.question,
            "baseline": manifest.baseline,
            "complete": self.complete,
            "trials": {str(status): int(n) for status, n in counts.items()},
            "verdicts": [verdict_dict(verdict) for verdict in self.verdicts],
            "arms": [row_dict(row, manifest.metrics) for row in self.rows],
            "impossible": dict(manifest.impossible),
            "caveats": list(self.caveats),
            "problems": list(self.records.problems),
            "files": [str(path) for path in self.files],
        }

    def render(self, console: Console) -> None:
        """Print verdicts and table to a terminal."""
        manifest = self.records.manifest
        console.print(Text.assemble((manifest.name, "bold"), f"  {manifest.question}"))
        for verdict in self.verdicts:
            color = _COLORS[verdict.outcome]
            console.print(
                Text.assemble(
                    (f"\n{wording.SYMBOLS[verdict.outcome]} {verdict.outcome:<9} ", f"bold {color}"), verdict.claim.text
                )
            )
            for contrast in verdict.contrasts:
                console.print(Text(f"  {wording.contrast_text(contrast)}", style="dim"))
            console.print(Text(f"  {wording.verdict_text(verdict)}", style="dim"))
        for metric in manifest.metrics:
            console.print()
            console.print(self._table(metric))
        for caveat in self.caveats:
            console.print(Text(f"· {caveat}", style="dim"))
        console.print(Text(str(self.directory / "report.html")), soft_wrap=True)

    def _table(self, metric: str) -> Table:
        """One metric: a line for each arm, narrow enough for any terminal."""
        manifest = self.records.manifest
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(Text(metric + tables.arrow(self.records.directions.get(metric))))
        table.add_column("trials")
        table.add_column("mean", no_wrap=True)
        table.add_column(Text(f"Δ to {manifest.baseline}"), no_wrap=True)
        for row in self.rows:
            summary = row.summaries[metric]
            paired = summary.comparison if summary.comparison is not None and summary.comparison.pairs else None
            table.add_row(
                Text(row.arm, style="bold" if row.is_baseline else ""),
                Text(f"{row.counts.get('finished', 0)}" + (f" ({row.others})" if row.others else "")),
                Text(f"{summary.text} {summary.interval_text}" if summary.n else formats.DASH),
                Text("" if paired is None else f"{paired.text} {paired.interval_text}"),
            )
        return table


def build(study_dir: Path, runs_dir: Path, publish_to: Path | None = None) -> Report:
    """Write the report of the study in `study_dir` (its manifest) and `runs_dir` (its trials) to `study_dir/report`.

    Writes `report.html`, `table.md`, `results.csv` and the figures, each atomically. With `publish_to` all but the
    page are also written there (the study's committed `results/`). Raises `UsageError` where the manifest cannot be
    read, a claim is wrong or a directory cannot be written; a damaged trial is shown, never fatal.
    """
    records = read(study_dir, runs_dir)
    manifest = records.manifest
    claims = parse(manifest.claims, tuple(manifest.arms), manifest.metrics)
    evidence = gather(records)
    verdicts = judge(claims, evidence)
    metrics = figures.reported(manifest.metrics, list(dict.fromkeys(records.metrics["metric"])))
    rows = summarise(records, evidence, manifest.metrics)
    scene = Scene(records, evidence, rows, claims)
    drawn = figures.draw(scene)
    caveats = wording.caveats(records, rows, verdicts)
    public = {
        "table.md": tables.table_md(rows, manifest.metrics, records.directions, manifest.baseline),
        "results.csv": tables.results_csv(records, metrics),
        **{f"{figure.name}.svg": figure.svg for figure in drawn},
    }
    directory = study_dir / "report"
    page = html.render(scene, drawn, verdicts, caveats)
    files = write(directory, {"report.html": page, **public})
    if publish_to is not None:
        files += write(publish_to, public)
    return Report(records, tuple(rows), tuple(verdicts), tuple(caveats), directory, tuple(files))


def write(directory: Path, contents: Mapping[str, str]) -> list[Path]:
    """Write each file atomically; figures of an earlier report that are no longer drawn are removed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            temporary = directory / f".{name}.{os.getpid()}.tmp"
            temporary.write_text(text, encoding="utf-8", newline="\n")
            os.replace(temporary, directory / name)
        for path in directory.glob("*.svg"):
            if path.name not in contents and canvas.MARK in path.read_text(encoding="utf-8", errors="replace"):
                path.unlink()
    except OSError as error:
        raise UsageError(f"the report must be written to {directory}, but that failed: {error}") from error
    return [directory / name for name in contents]
