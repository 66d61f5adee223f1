"""`table.md`: the verdicts and the table of a report, as GitHub shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain

from swapformer.report.page import wording
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.verdicts import Verdict
from swapformer.report.tuning import TriedSetting
from swapformer.results.arms import arm_name


def verdicts_md(verdicts: Sequence[Verdict]) -> str:
    """The verdicts of one condition: each claim with what decides it, and its differences with 95 % intervals."""
    lines = ["| claim | verdict | decided by | difference [95 %] |", "|---|---|---|---|"]
    for each in verdicts:
        outcome = each.outcome if each.outcome == "undecided" else f"**{each.outcome}**"
        differences = "; ".join(map(wording.usual_text, each.contrasts))
        cells = [cell(each.claim.text), outcome, cell(wording.found_text(each)), cell(differences)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


BEGIN = "<!-- {}: made by `swapformer report FOLDER --publish`, FOLDER that of its study.yaml -->"
END = "<!-- end of what is made -->"
"""The markers in an exercise's README between which a study's report is written."""


def into_readme(readme: str, study: str, content: str) -> str:
    """A README with `content` between the markers of a study; unchanged where it has none."""
    begin, end = re.escape(BEGIN.format(study)), re.escape(END)
    return re.sub(f"({begin}\n).*?({end})", lambda found: f"{found[1]}\n{content}\n{found[2]}", readme, flags=re.S)


def table_md(
    rows: Sequence[ArmRow],
    metrics: Sequence[str],
    directions: Mapping[str, str],
    baseline: str,
    condition: str = "",
    caveats: Sequence[str] = (),
    verdicts: Sequence[Verdict] = (),
    note: bool = True,
) -> str:
    """`table.md` of one condition, under its name where there is a grid: verdicts, the table of arms, caveats."""
    heads = ["arm", "trials", *(f"{cell(m)}{arrow(directions.get(m))}" for m in metrics)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---", "---", *["---:"] * len(metrics)]) + "|"]
    for row in rows:
        name = f"**{cell(row.arm)}** (baseline)" if row.is_baseline else cell(row.arm)
        found = [row.summaries[metric] for metric in metrics]
        cells = [one.full_text + (f"<br>Δ {one.paired.full_text}" if one.n and one.paired else "") for one in found]
        lines.append("| " + " | ".join([name, row.trials_text, *cells]) + " |")
    return "\n".join(
        [
            *([f"### {cell(condition)}", ""] if condition else []),
            *([verdicts_md(verdicts)] if verdicts else []),
            *lines,
            *(["", cell(wording.table_note(rows, baseline))] if note else []),
            *chain.from_iterable(("", cell(text)) for text in caveats),
            "",
        ]
    )


def tried_md(rows: Sequence[TriedSetting]) -> str:
    """The settings that arms were tried with, as a section of `table.md`; nothing where there are none."""
    if not rows:
        return ""
    stages = ["first stage"] if any(row.first for row in rows) else []
    heads = ["arm", "setting", *stages, "all steps", ""]
    lines = [
        "| " + " | ".join(heads) + " |",
        "|" + "|".join(["---", "---", *["---:"] * len(stages), "---:", "---"]) + "|",
    ]
    for row in rows:
        results = [*([row.first] if stages else []), row.whole]
        cells = [arm_name(row.arm, row.condition), row.setting, *results, row.chosen]
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    return "\n".join(["", "### Settings that were tried", "", *lines, ""])


def arrow(direction: str | None) -> str:
    """An arrow that says whether lower or higher is better."""
    return {"lower": " ↓", "higher": " ↑"}.get(direction or "", "")


def cell(text: str) -> str:
    """A text, escaped for a cell of a Markdown table."""
    return re.sub(r"[\\|*$]", r"\\\g<0>", text).replace("\n", " ").replace("<", "&lt;")
