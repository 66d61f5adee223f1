"""`swapformer dashboard`: builds a W&B workspace of a study."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from swapformer.console import CommandLine
from swapformer.errors import UsageError
from swapformer.mirror.dashboard import logged_in, logger_settings, require, save, to_json, workspace
from swapformer.report.records import read
from swapformer.results.files import write_atomic
from swapformer.tools.command_line import add_common, names_and_overrides, store_of, study_folder


def main(arguments: Sequence[str]) -> int:
    """Write the workspace as JSON, and save it when logged in; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    names, overrides = names_and_overrides(options.arguments)
    if len(names) != 1:
        raise UsageError(f"one study has to be named, but {len(names)} were")
    store = store_of(overrides)
    folder = study_folder(store, names[0])
    require()
    records = read(folder, store.runs_dir)
    used = logger_settings(records.manifest)
    project = options.project or used.get("project") or "swapformer"
    space = workspace(records, project, options.entity or used.get("entity"))
    path = folder / "report" / "workspace.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_json(space))
    print(path)
    if options.offline:
        return 0
    if logged_in():
        print(save(space))
    else:
        print("not logged in to W&B, so it is only written to that file; `wandb login`, then the same command saves it")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer dashboard",
        description="A W&B workspace of a study, made from what its report is made from: written as JSON beside the "
        "report, and saved when you are logged in. Mirror the study's trials with logger=wandb.",
    )
    made.add_argument("arguments", nargs="*", metavar="STUDY | runs_dir=…", help="the study, or the beginning of it")
    made.add_argument("--project", help="W&B project (default: the one that the study was mirrored to)")
    made.add_argument("--entity", help="W&B entity (default: the study's, or yours)")
    made.add_argument("--offline", action="store_true", help="only write the file")
    return add_common(made, json=False)
