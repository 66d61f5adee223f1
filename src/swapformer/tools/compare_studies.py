"""`swapformer report A B`: compares two studies, or two scales of one, in a table for the terminal or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swapformer.console import terminal
from swapformer.errors import UsageError
from swapformer.report.page import wording
from swapformer.report.page.tables import arrow
from swapformer.report.page.to_json import finite
from swapformer.report.statistics.arm_summary import Summary
from swapformer.report.versus import Difference, Versus, compare, judge_study, setting_text
from swapformer.results.manifest import manifest_path, place_of
from swapformer.tools.command_line import store_of, study_folder


def run(names: Sequence[str], overrides: Sequence[str], as_json: bool) -> None:
    """Print the comparison."""
    folders = [_folder(name, overrides) for name in names]
    if folders[0] == folders[1]:
        raise UsageError(f"two different studies are compared, but both names mean {folders[0]}")
    stores, labels = zip(*map(place_of, folders), strict=True)
    if labels[0] == labels[1]:  # of two stores
        labels = tuple(map(str, folders))
    a, b = (judge_study(*each) for each in zip(labels, folders, stores, strict=True))
    found = compare(a, b)
    if as_json:
        print(json.dumps(versus_dict(found), indent=1))
    else:
        print_versus(found, terminal())


def _folder(name: str, overrides: Sequence[str]) -> Path:
    """The folder of the study of this name, or the folder that the name is a path of."""
    path = Path(name)
    if manifest_path(path).is_file():
        return path.resolve()
    return study_folder(store_of(overrides), name)


def versus_dict(found: Versus) -> dict[str, Any]:
    """The comparison as plain data for `--json`; nan and infinity become None."""

    def summary(one: Summary) -> dict[str, Any]:
        return {"mean": finite(one.mean), "lower": finite(one.lower), "upper": finite(one.upper), "n": one.n}

    def metric(a: Summary, b: Summary, d: Difference) -> dict[str, Any]:
        return {"a": summary(a), "b": summary(b), "pairs": d.n, "same": d.same, "apart": dict(d.apart),
                "difference": finite(d.value), "lower": finite(d.lower), "upper": finite(d.upper)}  # fmt: skip

    return {
        "studies": [{"name": one.label, "question": one.manifest.question, "baseline": one.manifest.baseline,
                     "scale": one.manifest.scale} for one in (found.a, found.b)],
        "warnings": list(found.warnings),
        "claims": [{"text": each.text, "a": each.a, "b": each.b, "changed": each.changed, "reworded": each.reworded}
                   for each in found.claims],
        "arms": [{"arm": pair.arm, "condition": pair.condition,
                  "otherwise": {key: list(values) for key, values in pair.otherwise.items()},
                  "metrics": {name: metric(*values) for name, values in pair.metrics.items()}} for pair in found.pairs],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "config": {key: list(values) for key, values in found.config.items()},
    }  # fmt: skip


def print_versus(found: Versus, console: Console) -> None:
    """Print the comparison: what keeps the studies apart first, then verdicts, metrics, settings."""

    def table(*heads: str) -> Table:
        return Table(*heads, box=None, pad_edge=False, header_style="bold")

    for letter, one in zip("AB", (found.a, found.b), strict=True):
        console.print(Text.assemble((f"{letter}  {one.label}", "bold"), f"  {one.manifest.question}"))
    for warning in found.warnings:
        console.print(Text(f"! {warning}", style="yellow"))
    if found.claims:
        verdicts = table("verdicts", "A", "B")
        for claim in found.claims:
            bold = Text(claim.text, style="bold" if claim.changed else "")
            verdicts.add_row(bold, _outcome(claim.a), _outcome(claim.b))
        console.print("", verdicts)
    for metric in found.metrics:
        values = table(metric + arrow(found.a.records.directions.get(metric)), "A", "B", "B − A, paired")
        for pair in found.pairs:
            a, b, difference = pair.metrics[metric]
            values.add_row(*map(Text, (pair.name, a.full_text, b.full_text, difference.text)))
        console.print("", values)
    for letter, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            console.print(Text(f"only in {letter}: {', '.join(names)}"))
    if found.config:
        settings = table("the baselines' settings", "A", "B")
        for key, pair_of in found.config.items():
            settings.add_row(*map(Text, (key, *map(setting_text, pair_of))))
        console.print("", settings)
    else:
        console.print(Text("\nthe baselines' settings are the same"))


def _outcome(outcome: str | None) -> Text:
    if outcome is None:
        return Text("not claimed", style="dim")
    return Text(f"{wording.SYMBOLS[outcome]} {outcome}", style=wording.COLORS[outcome])
