"""`results.csv` and `table.md`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from swapformer.report import number_format
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow, Summary
from swapformer.results.manifest import Manifest

RESULT_COLUMNS: Mapping[str, str] = {
    "study": "the study's name",
    "arm": "the arm, as in study.yaml",
    "seed": "the trial's seed; differences are paired by it",
    "metric": "what was measured, after training; name@n is measured at length n",
    "value": "the measured value; empty unless the trial finished and has this metric",
    "evaluation_se": "standard error of the value from the finite evaluation set, not from the seeds; empty if unknown",
    "direction": "lower or higher, whichever is better; empty if neither",
    "status": "finished, diverged, failed, interrupted, killed, running, missing or corrupt",
    "trial": "the trial's id: its folder is runs/trials/<id>; empty if there is none",
    "environment": "device, torch version, threads, determinism; only equal ones are paired",
}


def result_columns(manifest: Manifest) -> dict[str, str]:
    """The columns of `results.csv` with their meaning; a study with a grid has one more for each of its factors."""
    factors = {key: "the grid's value of this key" for values in manifest.conditions.values() for key in values}
    return {"study": RESULT_COLUMNS["study"], **factors, **RESULT_COLUMNS}


def results_csv(records: Records, metrics: Sequence[str]) -> str:
    """`results.csv`: tidy, one row per arm, seed, metric and condition; columns as in `result_columns`."""
    values = {
        (condition, arm, seed, metric): (value, error)
        for condition, arm, seed, metric, value, error in records.metrics[
            ["condition", "arm", "seed", "metric", "value", "standard_error"]
        ].itertuples(index=False)
    }
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result_columns(records.manifest))
    for cell in records.cells.itertuples(index=False):
        for metric in metrics:
            value, error = values.get((cell.condition, cell.arm, cell.seed, metric), (math.nan, math.nan))
            writer.writerow([
                records.manifest.name, *records.manifest.conditions[str(cell.condition)].values(), cell.arm, cell.seed,
                metric, _plain(value), _plain(error), records.directions.get(metric, ""), cell.status, cell.trial,
                cell.environment,
            ])  # fmt: skip
    return out.getvalue()


def table_md(
    rows: Sequence[ArmRow], metrics: Sequence[str], directions: Mapping[str, str], baseline: str, condition: str = ""
) -> str:
    """`table.md`: the table as GitHub shows it, under the condition's name where there is a grid."""
    heads = ["arm", "trials", *(f"{_cell(m)}{arrow(directions.get(m))}" for m in metrics)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---", "---", *["---:"] * len(metrics)]) + "|"]
    for row in rows:
        name = f"**{_cell(row.arm)}** (baseline)" if row.is_baseline else _cell(row.arm)
        counts = f"{row.counts.get('finished', 0)}" + (f" ({row.others})" if row.others else "")
        cells = [_markdown_summary(row.summaries[metric]) for metric in metrics]
        lines.append("| " + " | ".join([name, counts, *cells]) + " |")
    note = (
        f"Mean over finished trials with its 95 % t interval; Δ is the difference to {_cell(baseline)}, paired by "
        "seed, with its 95 % t interval (not corrected for several comparisons; the verdicts are). "
        "A round bracket is an open end: an arm that diverged is not flattered by its survivors."
    )
    return "\n".join([*([f"### {_cell(condition)}", ""] if condition else []), *lines, "", note, ""])


def arrow(direction: str | None) -> str:
    """Which way is better."""
    return {"lower": " ↓", "higher": " ↑"}.get(direction or "", "")


def _markdown_summary(summary: Summary) -> str:
    if not summary.n:
        return number_format.DASH
    text = f"{summary.text} {summary.interval_text}"
    if summary.comparison is None or not summary.comparison.pairs:
        return text
    return f"{text}<br>Δ {summary.comparison.text} {summary.comparison.interval_text}"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _plain(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))
