"""The results of a study for a mirror: judged from the same files, by the same rules, as its report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swapformer.mirror.base import Destination, ReportProblem, StudyResults
from swapformer.mirror.follower import Target
from swapformer.mirror.process import mirror_folder
from swapformer.report.figures.figure_data import figure_data
from swapformer.report.page import wording
from swapformer.report.page.to_json import finite, row_dict
from swapformer.report.records import read
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.kept_looks import record_looks
from swapformer.report.statistics.sequential import judge_all
from swapformer.report.statistics.verdicts import Verdict
from swapformer.results.manifest import page_path
from swapformer.results.store import Store


def show_studies(
    targets: Sequence[Target],
    store: Store,
    destination: Destination,
    report_problem: ReportProblem,
    done: Callable[[], None],
) -> None:
    """Show the results of each study that the targets belong to; a problem is reported, and ends nothing."""
    for study in dict.fromkeys(target.study for target in targets if target.study):
        try:
            results = study_results(store.studies / study, store.runs_dir)
            destination.show(results, mirror_folder(store), report_problem)
            done()
        except Exception as error:
            report_problem(f"{type(error).__name__}: {error}")


def study_results(folder: Path, runs_dir: Path) -> StudyResults:
    """The verdicts, arms and costs of the study in `folder`. Raises UsageError where its manifest cannot be read."""
    records = read(folder, runs_dir)
    claims = claims_of(records.manifest)
    records = record_looks(folder, runs_dir, claims, records)
    manifest, rows = records.manifest, figure_data(records, claims)
    page = page_path(folder)
    tables = {
        "verdicts": _table({at: map(_verdict, here) for at, here in judge_all(claims, records).items()}),
        "arms": _table({at: [_arm(row, manifest.metrics) for row in data.rows] for at, data in rows.items()}),
        "cost": _table({at: map(_cost, data.rows) for at, data in rows.items()}),
    }
    return StudyResults(
        study=manifest.name,
        question=manifest.question,
        baseline=manifest.baseline,
        counts={str(status): int(count) for status, count in records.cells["status"].value_counts().items()},
        tables={name: rows for name, rows in tables.items() if rows},
        report=page if page.is_file() else None,
    )


def _table(rows: Mapping[str, Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of all conditions of the grid, each with its condition where there is one."""
    return [{"condition": at, **row} if at else row for at, here in rows.items() for row in here]


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "claim": verdict.claim.text,
        "verdict": verdict.outcome,
        "why": wording.verdict_text(verdict),
        "differences": "; ".join(wording.contrast_text(contrast) for contrast in verdict.contrasts),
        "p_holm": verdict.p_adjusted,
        "pairs": verdict.pairs,
    }


def _arm(row: ArmRow, metrics: Sequence[str]) -> dict[str, Any]:
    """Mean, interval and paired difference of each metric."""
    plain = row_dict(row, metrics)
    found: dict[str, Any] = {"arm": row.arm, "trials": ", ".join(f"{n} {s}" for s, n in plain["trials"].items() if n)}
    for name, summary in plain["metrics"].items():
        found |= {name: summary["mean"], f"{name} low": summary["lower"], f"{name} high": summary["upper"]}
        found[f"{name} Δ"] = summary["difference"]
    return found


def _cost(row: ArmRow) -> dict[str, Any]:
    """Steps and tokens of a trial, seconds of all trials together."""
    names = {"parameters without positions": "non_position"}
    columns = ("parameters", "parameters without positions", "steps", "tokens", "seconds")
    return {"arm": row.arm, **{name: finite(getattr(row, names.get(name, name))) for name in columns}}
