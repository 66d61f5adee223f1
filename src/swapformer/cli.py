"""The `swapformer` command line. Imports are late: help must come at once, and torch takes seconds."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from swapformer import __version__
from swapformer.console import WRONG_USE, CommandLine, few_collections, guarded, printable_output
from swapformer.errors import UsageError, quote, suggest

TOOLS = {
    "trials": ("swapformer.tools.trials", "list, show, compare and prune the trials in the store"),
    "status": ("swapformer.tools.status", "where a study stands, also while it runs"),
    "dashboard": ("swapformer.tools.dashboard", "a W&B workspace of a study"),
    "check": ("swapformer.tools.check", "hold a part, also one of your own, to the laws"),
    "show": ("swapformer.tools.show", "draw a part to a file, or print items of a task"),
    "cost": ("swapformer.tools.cost", "parameters, operations and bytes of a configuration, or of a study's arms"),
    "noise": ("swapformer.tools.noise", "how much a baseline varies, and what its seeds would see"),
    "judge": ("swapformer.tools.judge", "verdicts on results that were measured elsewhere"),
    "baseline": ("swapformer.tools.baseline", "what counting alone achieves on a text"),
    "sample": ("swapformer.tools.sample", "let a trained model write"),
    "export": ("swapformer.tools.export_checkpoint", "write a trained model as a Hugging Face checkpoint"),
    "import": ("swapformer.tools.import_checkpoint", "make a Hugging Face checkpoint a start for trials"),
}
"""Verbs with a command line of their own: verb → module with `main`, and what it is for."""

PAPER = {
    "latex": "tables (booktabs) and a methods paragraph",
    "pdf": "figures with embedded fonts, and their data as CSV",
    "png": "figures at 300 dots to the inch, and their data as CSV",
}
"""Options of `swapformer report`, and what each writes."""

LAUNCHING = (
    ("slots", int, "trials at a time (default: cores / trainer.threads, or one per GPU)"),
    ("slots_per_gpu", int, "trials that share a GPU"),
    ("time_limit", float, "minutes that one start of a trial may take"),
    ("retries", int, "times that a killed trial is started once more"),
)
"""Settings of the launcher that `swapformer study` takes as options: name, type, what it is for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 something failed, 2 wrong use."""
    with printable_output():
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(given: list[str]) -> int:
    try:
        sys.path.append(os.getcwd())  # parts in a package of the user's own, as `python -m` would find them
    except FileNotFoundError:
        print("swapformer: error: the working directory must exist, but it was deleted; change to one", file=sys.stderr)
        return WRONG_USE
    if given[:1] == ["train"]:
        from swapformer.train import main as train  # it speaks Hydra's command line, not ours

        return train(given[1:])
    with few_collections():  # no trial is trained in this process
        if given and given[0] in TOOLS:
            tool = importlib.import_module(TOOLS[given[0]][0])
            return guarded(lambda: tool.main(given[1:]), "--debug" in given)
        options = _parsed(given)
        return guarded(lambda: options.run(options), options.debug)


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """The arguments of a verb; argparse knows no words behind an option (`study NAME --slots 2 seeds=3`)."""
    parser = _parser()
    known = _verbs(parser)
    if given and not given[0].startswith("-") and given[0] not in known:
        parser.error(f"unknown command {quote(given[0])}{suggest(given[0], known)}")
    options, rest = parser.parse_known_args(given)
    several = next((name for name in ("overrides", "names") if hasattr(options, name)), None)
    if unknown := [text for text in rest if text.startswith("-") or several is None]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if several is not None:
        getattr(options, several).extend(rest)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = CommandLine(prog="swapformer", description="Swap one part of a Transformer; see if it mattered.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    common = CommandLine(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON for scripts")
    common.add_argument("--debug", action="store_true", help="show tracebacks")
    verbs.add_parser("train", help="train one trial (or sweep with -m); see swapformer train --help")

    study = verbs.add_parser("study", parents=[common], help="run what a study lacks, and report")
    study.add_argument("name", help="a shipped study or exercise, the beginning of its name, or a path")
    study.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="scale=smoke|cpu|gpu, seeds=N, runs_dir=…, any override for all arms",
    )
    study.add_argument(
        "--publish", action="store_true", help="put table and figures beside the study file, in results/"
    )
    reporting = study.add_mutually_exclusive_group()
    reporting.add_argument("--no-report", action="store_true", help="run what is missing, and judge nothing")
    reporting.add_argument(
        "--report", action="store_true", help="write page and figures, also where nothing was left to train"
    )
    study.add_argument(
        "--dry-run", action="store_true", help="print trials, operations, time and memory that it would take, run none"
    )
    for name, kind, text in LAUNCHING:
        study.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"{text}; short for hydra.launcher.{name}=…")
    study.set_defaults(run=_study)

    report = verbs.add_parser(
        "report", parents=[common], help="build a study's report again from the store, or compare two studies"
    )
    report.add_argument(
        "names",
        nargs="+",
        metavar="STUDY | runs_dir=…",
        help="one study's name under runs_dir/studies, or the beginning of it; two are compared (a path names a study "
        "of another store); the folder of a study or an exercise is judged again from its results/results.csv, of "
        "another scale with scale=…",
    )
    report.add_argument(
        "--publish", action="store_true", help="put table and figures beside the study file, in results/"
    )
    for name, text in PAPER.items():
        report.add_argument(f"--{name}", action="store_true", help=f"for a paper: {text}, in a folder paper/")
    report.set_defaults(run=_report)

    listing = verbs.add_parser("list", parents=[common], help="parts, tasks, presets, exercises and their studies")
    listing.add_argument("group", nargs="?", help="only this group, e.g. model/position")
    listing.add_argument("--config-dir", type=Path, help="a configuration directory of your own, listed too")
    listing.set_defaults(run=_list)

    for verb, (_, text) in TOOLS.items():
        verbs.add_parser(verb, help=f"{text}; see swapformer {verb} --help")
    return parser


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Verb → its own command line."""
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(verbs.choices)


def _study(options: argparse.Namespace) -> int | None:
    from swapformer.tools.studies import Output, study

    settings = {name: getattr(options, name) for name, *_ in LAUNCHING}
    options.overrides += [f"hydra.launcher.{name}={value}" for name, value in settings.items() if value is not None]
    output = Output(
        options.publish,
        options.json,
        options.debug,
        options.dry_run,
        report=False if options.no_report else True if options.report else None,
    )
    return study(options.name, options.overrides, output)


def _report(options: argparse.Namespace) -> int | None:
    from swapformer.tools.studies import Output, report

    paper = tuple(name for name in PAPER if getattr(options, name))
    return report(options.names, Output(options.publish, options.json, options.debug, paper=paper))


def _list(options: argparse.Namespace) -> None:
    from swapformer.catalogue import catalogue

    if options.config_dir is not None and not options.config_dir.is_dir():
        raise UsageError(f"--config-dir must be a directory, but {options.config_dir} is not")
    found = catalogue(options.config_dir)
    if options.group is not None:
        if options.group not in found:
            raise UsageError(f"no group {options.group!r}{suggest(options.group, found)}")
        found = {options.group: found[options.group]}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    width = max((len(option) for group in found.values() for option in group), default=0)
    for group, entries in found.items():
        print(group)
        for option, text in entries.items():
            print(f"  {option:{width}}  {text}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
