"""`table.md`: the verdicts and the table of a report, as GitHub shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from swapformer.report.page import wording
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.verdicts import Verdict


def verdicts_md(verdicts: Sequence[Verdict]) -> str:
    """The verdicts of one condition: each claim with its differences and the limits that decide."""
    lines = ["| claim | verdict | difference, and the limits that decide |", "|---|---|---|"]
    for each in verdicts:
        found = "; ".join(map(wording.contrast_text, each.contrasts)) or wording.verdict_text(each)
        outcome = each.outcome if each.outcome == "undecided" else f"**{each.outcome}**"
        lines.append(f"| {cell(each.claim.text)} | {outcome} | {cell(found)} |")
    return "\n".join([*lines, ""])


def table_md(
    rows: Sequence[ArmRow],
    metrics: Sequence[str],
    directions: Mapping[str, str],
    baseline: str,
    condition: str = "",
    caveats: Sequence[str] = (),
    verdicts: Sequence[Verdict] = (),
) -> str:
    """`table.md` of one condition, under its name where there is a grid: verdicts, the table of arms, caveats."""
    heads = ["arm", "trials", *(f"{cell(m)}{arrow(directions.get(m))}" for m in metrics)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---", "---", *["---:"] * len(metrics)]) + "|"]
    for row in rows:
        name = f"**{cell(row.arm)}** (baseline)" if row.is_baseline else cell(row.arm)
        found = [row.summaries[metric] for metric in metrics]
        cells = [one.full_text + (f"<br>Δ {one.paired.full_text}" if one.n and one.paired else "") for one in found]
        lines.append("| " + " | ".join([name, row.trials_text, *cells]) + " |")
    note = cell(wording.table_note(rows, baseline))
    return "\n".join(
        [
            *([f"### {cell(condition)}", ""] if condition else []),
            *([verdicts_md(verdicts)] if verdicts else []),
            *lines,
            "",
            note,
            *chain.from_iterable(("", cell(text)) for text in caveats),
            "",
        ]
    )


def arrow(direction: str | None) -> str:
    """An arrow that says whether lower or higher is better."""
    return {"lower": " ↓", "higher": " ↑"}.get(direction or "", "")


def cell(text: str) -> str:
    """A text as it stands in a cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
