"""The results of a study for a mirror: judged from the same files, by the same rules, as its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swapformer.mirror.base import Destination, ReportProblem, StudyResults
from swapformer.mirror.follower import Target
from swapformer.mirror.process import mirror_folder
from swapformer.report.figures.figure_data import figure_data
from swapformer.report.page import wording
from swapformer.report.page.to_json import finite, row_dict, verdict_dict
from swapformer.report.records import read
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.sequential import judge_all, record_looks
from swapformer.report.statistics.verdicts import Verdict
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
    manifest = records.manifest
    verdicts = judge_all(claims, records)
    rows = [(condition, row) for condition, data in figure_data(records, claims).items() for row in data.rows]
    page = folder / "report" / "report.html"
    return StudyResults(
        study=manifest.name,
        question=manifest.question,
        baseline=manifest.baseline,
        counts={str(status): int(count) for status, count in records.cells["status"].value_counts().items()},
        verdicts=[_at(where, _verdict(verdict)) for where, here in verdicts.items() for verdict in here],
        arms=[_at(where, _arm(row_dict(row, manifest.metrics))) for where, row in rows],
        costs=[_at(where, _cost(row)) for where, row in rows],
        report=page if page.is_file() else None,
    )


def _at(condition: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row with its condition of the grid, where there is one."""
    return {"condition": condition, **row} if condition else row


def _verdict(verdict: Verdict) -> dict[str, Any]:
    plain = verdict_dict(verdict)
    return {
        "claim": plain["text"],
        "verdict": plain["outcome"],
        "why": plain["why"],
        "differences": "; ".join(wording.contrast_text(contrast) for contrast in verdict.contrasts),
        "p_holm": plain["p_holm"],
        "pairs": plain["pairs"],
    }


def _arm(row: Mapping[str, Any]) -> dict[str, Any]:
    """Mean, interval and paired difference of each metric."""
    found: dict[str, Any] = {"arm": row["arm"], "trials": ", ".join(f"{n} {s}" for s, n in row["trials"].items() if n)}
    for name, summary in row["metrics"].items():
        found |= {name: summary["mean"], f"{name} low": summary["lower"], f"{name} high": summary["upper"]}
        found[f"{name} Δ"] = summary["difference"]
    return found


def _cost(row: ArmRow) -> dict[str, Any]:
    """Steps and tokens of a trial, seconds of all trials together."""
    return {
        "arm": row.arm,
        "parameters": finite(row.parameters),
        "parameters without positions": finite(row.non_position),
        "steps": finite(row.steps),
        "tokens": finite(row.tokens),
        "seconds": finite(row.seconds),
    }
