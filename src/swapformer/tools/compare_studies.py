"""`swapformer report A B`: compares two studies, or two scales of one, in a table for the terminal or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
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
from swapformer.report.versus import Difference, Versus, compare, judge_study
from swapformer.results.config import differences, read_config
from swapformer.results.manifest import Manifest, manifest_path, place_of
from swapformer.tools.command_line import store_of, study_folder

NOT_COMPARED = ("runs_dir", "logger", "seed")
"""Keys of a config that say where a trial is stored and shown, or name its seed, not what it is."""
TRIAL_SEED = "the seed"
"""The value of `data_seed` where it is not set: each trial draws its batches by its own seed."""


def run(names: Sequence[str], overrides: Sequence[str], as_json: bool) -> None:
    """Print the comparison."""
    folders = [_folder(name, overrides) for name in names]
    if folders[0] == folders[1]:
        raise UsageError(f"two different studies are compared, but both names mean {folders[0]}")
    stores, labels = zip(*map(place_of, folders), strict=True)
    if labels[0] == labels[1]:  # of two stores
        labels = tuple(map(str, folders))
    a, b = (judge_study(*each) for each in zip(labels, folders, stores, strict=True))
    found = compare(a, b, differences(_config(a.manifest, folders[0]), _config(b.manifest, folders[1])))
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


def _config(manifest: Manifest, folder: Path) -> dict[str, object]:
    """The baseline's settings without those that are not compared."""
    config = {key: value for key, value in manifest.shared_config.items() if key not in NOT_COMPARED}
    trials = [cell.trial for cell in manifest.cells if cell.arm == manifest.baseline]
    last = read_config(place_of(folder)[0] / "trials" / trials[-1]) if trials else {}
    # Trials draw their batches by their own seed if the baseline's first and last trial both do.
    if "data_seed" in config and all(c.get("data_seed") == c.get("seed") for c in (manifest.shared_config, last)):
        config["data_seed"] = TRIAL_SEED
    task = config.get("task")
    if isinstance(task, dict) and "batch_size" in task:  # what older trials were evaluated in
        config["task"] = {**task, "eval_batch_size": task.get("eval_batch_size") or task["batch_size"]}
    return config


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
        "arms": [{"arm": pair.arm, "condition": pair.condition, "alike": pair.alike,
                  "otherwise": [asdict(each) for each in pair.differences],
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


def setting_text(value: Any) -> str:
    """The value of a setting as text."""
    return value if isinstance(value, str) else json.dumps(value)


def _outcome(outcome: str | None) -> Text:
    if outcome is None:
        return Text("not claimed", style="dim")
    return Text(f"{wording.SYMBOLS[outcome]} {outcome}", style=wording.COLORS[outcome])
