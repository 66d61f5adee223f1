"""The tables that a report writes as files: `results.csv` and `table.md`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import chain

from swapformer.report.page import wording
from swapformer.report.records import Records, to_cell
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.results.ledger import Look, look_rows
from swapformer.results.manifest import Manifest

RESULT_COLUMNS: Mapping[str, str] = {
    "study": "the study's name",
    "arm": "the arm, as in study.yaml",
    "seed": "the trial's seed; differences are paired by it",
    "metric": "what was measured, after training; name@n is measured at length n; name:init before training, and "
    "name:n after n steps; look@n: the look at n seeds was the "
    "first with this one; its value is the error that it took",
    "value": "the measured value; empty unless the trial finished and has this metric, or the metric is name:init, "
    "measured before training",
    "evaluation_se": "standard error of the value from the finite evaluation set, not from the seeds; empty if unknown",
    "direction": "lower or higher, whichever is better; empty if neither",
    "status": "finished, diverged, failed, interrupted, killed, running, missing or corrupt; of looks: judged",
    "trial": "the trial's id: its folder is runs/trials/<id>; empty if there is none",
    "environment": "device, torch version, threads, determinism, hardware of what is timed; only equal ones are paired",
}


def result_columns(manifest: Manifest) -> dict[str, str]:
    """The columns of `results.csv` with their meaning; a study with a grid has one more for each of its factors."""
    factors = {key: "the grid's value of this key" for values in manifest.conditions.values() for key in values}
    return {"study": RESULT_COLUMNS["study"], **factors, **RESULT_COLUMNS}


def results_csv(records: Records, metrics: Sequence[str], looks: Sequence[Look] = ()) -> str:
    """`results.csv`: tidy, one row per arm, seed, metric and condition; columns as in `result_columns`.

    The looks at which the study was judged follow, one row for each seed.
    """
    columns = ["condition", "arm", "seed", "metric", "value", "standard_error"]
    values = {tuple(row[:4]): row[4:] for row in records.metrics[columns].itertuples(index=False, name=None)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([to_cell(name) for name in result_columns(records.manifest)])
    for cell in records.cells.itertuples(index=False):
        for metric in metrics:
            value, error = values.get((cell.condition, cell.arm, cell.seed, metric), (math.nan, math.nan))
            factors = records.manifest.conditions[str(cell.condition)].values()
            writer.writerow([
                *(to_cell(str(name)) for name in (records.manifest.name, *factors, cell.arm)), cell.seed,
                to_cell(metric), _plain(value), _plain(error), records.directions.get(metric, ""), cell.status,
                cell.trial, cell.environment,
            ])  # fmt: skip
    columns = list(result_columns(records.manifest))
    for row in look_rows(looks, records.manifest.ledger.unknown if looks else ""):
        writer.writerow([to_cell(records.manifest.name), *(row.get(column, "") for column in columns[1:])])
    return out.getvalue()


def table_md(
    rows: Sequence[ArmRow],
    metrics: Sequence[str],
    directions: Mapping[str, str],
    baseline: str,
    condition: str = "",
    caveats: Sequence[str] = (),
) -> str:
    """`table.md`: the table as GitHub shows it, under the condition's name where there is a grid; caveats follow it."""
    heads = ["arm", "trials", *(f"{_cell(m)}{arrow(directions.get(m))}" for m in metrics)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---", "---", *["---:"] * len(metrics)]) + "|"]
    for row in rows:
        name = f"**{_cell(row.arm)}** (baseline)" if row.is_baseline else _cell(row.arm)
        found = [row.summaries[metric] for metric in metrics]
        cells = [one.full_text + (f"<br>Δ {one.paired.full_text}" if one.n and one.paired else "") for one in found]
        lines.append("| " + " | ".join([name, row.trials_text, *cells]) + " |")
    note = _cell(wording.table_note(rows, baseline))
    return "\n".join(
        [
            *([f"### {_cell(condition)}", ""] if condition else []),
            *lines,
            "",
            note,
            *chain.from_iterable(("", _cell(text)) for text in caveats),
            "",
        ]
    )


def arrow(direction: str | None) -> str:
    """An arrow that says whether lower or higher is better."""
    return {"lower": " ↓", "higher": " ↑"}.get(direction or "", "")


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _plain(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))
