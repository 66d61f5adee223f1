"""`swapformer judge`: verdicts on results that were measured elsewhere, in files or in the logs of other tools."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.console import CommandLine, terminal
from swapformer.errors import UsageError
from swapformer.report.external_looks import judge_table
from swapformer.report.external_results import ABSENT, EMPTY, FILE, Question
from swapformer.results.ledger import digest
from swapformer.study.stated_numbers import parse_ranges
from swapformer.tools.command_line import add_common
from swapformer.tools.result_files import KINDS, LOOKS, below, file_rows, tensorboard_rows, wandb_rows, with_path
from swapformer.yaml_reader import read_yaml

_CLAIM_KEYS = ("baseline", "metrics", "claims", "exact", "ranges")


def main(arguments: Sequence[str]) -> int:
    """Print the verdicts; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    table = _table(options)
    sources = [Path(each) for each in (*options.files, options.wandb, options.tensorboard) if each is not None]
    kept, others = _kept_looks(sources, options.fresh)
    report = judge_table(table, question(options), sources[0].name, kept, options.fresh, options.html, others)
    if options.json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        report.render(terminal())
    return 0


def _kept_looks(sources: Sequence[Path], fresh: bool) -> tuple[Path, list[Path]]:
    """The file that keeps the looks at results, and those beside it that may keep some at the same runs.

    It is the one beside any of them, or beside the first in alphabetical order, or above them all, so that neither the
    order of files nor a new one forgets looks.
    """
    sources = [Path(os.path.abspath(each)) for each in sources]
    linked = {each.resolve().parent for each in sources}
    beside = [each / "judged.json" if each.is_dir() else each.with_name(f"{each.name}.judged.json") for each in sources]
    folders = {each.parent for each in beside}
    # of files in several folders above them all, so that each of these files finds it
    named = f"{sources[0].stem}+{len(sources) - 1}.{digest(sorted(map(str, sources)))[:6]}.judged.json"
    first = min(beside) if len(folders) == 1 else Path(os.path.commonpath(folders)) / named
    known = sorted({path for path in beside if path.is_file()})
    if len(known) > 1 and not fresh:
        raise UsageError(
            f"looks at these results must be kept in one file, but {' and '.join(map(str, known))} hold some; judge "
            "each by itself, or --fresh judges all as new results"
        )
    # a folder may have been judged before some of its files, or after, and files together or each by itself
    near = {
        path for folder in folders | linked for above in (folder, *folder.parents) for path in above.glob(f"*{LOOKS}")
    }
    near |= {path for each in sources if each.is_dir() for path in below(each, f"*{LOOKS}")}
    kept = known[0] if known else first
    own = {each.resolve() for each in (*beside, kept)}
    others = {each.resolve(): each for each in sorted(near, reverse=True) if each.resolve() not in own}
    return _shown(kept), sorted(map(_shown, others.values()))


def _shown(path: Path) -> Path:
    """A path as short as it can be named from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def question(options: argparse.Namespace) -> Question:
    """The settings of the command line, and of the file that --claims names."""
    raw: Any = read_yaml(options.claims) if options.claims else {}
    raw = {key: value for key, value in raw.items() if value is not None} if isinstance(raw, Mapping) else {"": raw}
    metrics, claims = raw.get("metrics", {}), raw.get("claims", [])
    fits = isinstance(metrics, list | Mapping) and all(isinstance(name, str) for name in metrics)
    if not fits or not isinstance(claims, list) or not raw.keys() <= set(_CLAIM_KEYS):
        raise UsageError(
            f"{options.claims} must map {', '.join(_CLAIM_KEYS)}, or some of them: metrics to a list or map of names, "
            "claims to a list"
        )
    metrics = dict.fromkeys(metrics, "") if isinstance(metrics, list) else dict(metrics)
    for name, _, way in (text.partition("=") for text in options.metric):
        if metrics.get(name) and way and metrics[name] != way:
            raise UsageError(f"one direction of {name} must be better, but both {metrics[name]} and {way} are given")
        metrics[name] = way or metrics.get(name, "")
    if claims and options.margin is not None:
        raise UsageError(f"each claim of {options.claims} has a margin of its own, so --margin says nothing; remove it")
    return Question(
        baseline=options.baseline or str(raw.get("baseline", "")),
        metrics=metrics,
        margin=options.margin or 0.0,
        claims=claims,
        paired=options.paired,
        empty=options.empty,
        by=options.by,
        columns={name: called for name, _, called in (text.partition("=") for text in options.columns)},
        exact=raw.get("exact", ()),
        ranges=parse_ranges(raw.get("ranges", {}), metrics),
    )


def _table(options: argparse.Namespace) -> pd.DataFrame:
    """One row for each run, or for each run and metric, of all that the command line names."""
    for name, _, called in (text.partition("=") for text in options.columns):
        if f"{{{name}}}" in (options.name or "") and called != name:
            raise UsageError(
                f"{name} must be said once, but both --name and --columns {name}={called} say it; remove one of them"
            )
    kinds = [bool(options.files), options.wandb is not None, options.tensorboard is not None]
    if sum(kinds) != 1:
        raise UsageError("results must come from FILEs, --wandb FOLDER or --tensorboard FOLDER: name one of the three")
    for folder in (each for each in (options.wandb, options.tensorboard) if each is not None):
        if not folder.is_dir():
            raise UsageError(f"results must be in a folder, but {folder} is no folder")
    if options.wandb is not None and options.name is not None:
        raise UsageError("--name reads the paths of files; runs of W&B have other names: remove it")
    if options.wandb is not None:
        rows = list(wandb_rows(options.wandb))
    elif options.tensorboard is not None:
        rows = list(with_path(tensorboard_rows(options.tensorboard), options.name))
    else:
        rows = list(with_path(_named(file_rows(options.files, options.commas), options.name is not None), options.name))
    if not rows:
        sources = [str(each) for each in (*options.files, options.wandb, options.tensorboard) if each is not None]
        what = "offline run of W&B" if options.wandb else "event file of TensorBoard" if options.tensorboard else "row"
        hint = f"; tables are {', '.join(KINDS)}, their rows below the names of columns" if what == "row" else ""
        raise UsageError(f"there must be a row for each run, but {' and '.join(sources)} has no {what}{hint}")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pd.DataFrame({name: pd.Series([row.get(name, ABSENT) for row in rows], dtype=object) for name in columns})


def _named(
    rows: Iterator[tuple[Path, dict[str, Any]]], by_path: bool
) -> Iterator[tuple[Path, dict[str, Any]]]:  # fmt: skip
    """Rows that say which file they are from; a file without any is a run where its path names one."""
    return ((path, {**row, FILE: str(path)}) for path, row in rows if row or by_path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer judge",
        description="Verdicts on results that were measured anywhere. A table has a row for each run (arm, seed, loss, "
        "accuracy) or for each run and metric (arm, seed, metric, value; other columns are conditions).",
    )
    made.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help=f"{', '.join(KINDS)}, or a folder of them; one or many"
    )
    made.add_argument("--baseline", metavar="ARM", help="the arm that the others are compared with")
    made.add_argument(
        "--metric", action="append", default=[], metavar="NAME[=lower|higher]", help="what is judged; may be repeated"
    )
    made.add_argument("--margin", type=float, metavar="X", help="how much better counts (default: 0)")
    made.add_argument("--claims", type=Path, metavar="YAML", help=f"a file with {', '.join(_CLAIM_KEYS)}")
    made.add_argument("--paired", action="store_true", help="equal seeds mean equal data and weights")
    made.add_argument(
        "--columns", nargs="+", action="extend", default=[], metavar="NAME=COLUMN", help="names of columns: arm=method"
    )
    made.add_argument(
        "--by", nargs="*", action="extend", metavar="COLUMN", help="the columns that hold conditions; may be none"
    )
    made.add_argument("--name", metavar="PATTERN", help="what the path of a run's file says: '{arm}/seed{seed}.json'")
    made.add_argument(
        "--commas", choices=("decimal", "thousands"), help="what a comma between digits is, where unclear"
    )
    made.add_argument(
        "--empty",
        choices=EMPTY,
        default=EMPTY[0],
        help="a run whose value is empty was lost, and costs its arm the verdict (default), or was never started",
    )
    made.add_argument("--wandb", type=Path, metavar="FOLDER", help="offline runs; the arm is the job type or the group")
    made.add_argument("--tensorboard", type=Path, metavar="FOLDER", help="runs; --name reads the arm in their paths")
    made.add_argument("--fresh", action="store_true", help="leave out the looks before, and say so")
    made.add_argument("--html", type=Path, metavar="PAGE", help="write the page of a report there")
    return add_common(made)
