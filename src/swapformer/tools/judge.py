"""`swapformer judge`: verdicts on results that were measured elsewhere, in files or in the logs of other tools."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.console import CommandLine, terminal
from swapformer.errors import UsageError, quote
from swapformer.report.external_results import Question, judge_table
from swapformer.study.stated_numbers import parse_ranges
from swapformer.tools.command_line import add_common
from swapformer.yaml_reader import read_yaml

KINDS = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
_CLAIM_KEYS = ("baseline", "metrics", "claims", "exact", "ranges")
_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")


def main(arguments: Sequence[str]) -> int:
    """Print the verdicts; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    table = _table(options)
    sources = [Path(each) for each in (*options.files, options.wandb, options.tensorboard) if each is not None]
    kept = _kept_looks(sources, options.fresh)
    report = judge_table(table, question(options), sources[0].name, kept, options.fresh, options.html)
    if options.json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        report.render(terminal())
    return 0


def _kept_looks(sources: Sequence[Path], fresh: bool) -> Path:
    """The file that keeps the looks at results: the one beside any of them, or beside the first in alphabetical order.

    So neither the order of files nor a new one forgets looks.
    """
    beside = [each / "judged.json" if each.is_dir() else each.with_name(f"{each.name}.judged.json") for each in sources]
    known = sorted({path for path in beside if path.is_file()})
    if len(known) > 1 and not fresh:
        raise UsageError(
            f"looks at these results must be kept in one file, but {' and '.join(map(str, known))} hold some; judge "
            "each by itself, or --fresh judges all as new results"
        )
    return known[0] if known else min(beside)


def question(options: argparse.Namespace) -> Question:
    """The settings of the command line, and of the file that --claims names."""
    raw: Any = read_yaml(options.claims) if options.claims else {}
    metrics = raw.get("metrics", {}) if isinstance(raw, Mapping) else None
    if not isinstance(metrics, list | Mapping) or not raw.keys() <= set(_CLAIM_KEYS):
        raise UsageError(
            f"{options.claims} must map {', '.join(_CLAIM_KEYS)}, or some of them, metrics to a list or map"
        )
    metrics = dict.fromkeys(metrics, "") if isinstance(metrics, list) else dict(metrics)
    metrics |= {name: way for name, _, way in (text.partition("=") for text in options.metric)}
    return Question(
        baseline=options.baseline or str(raw.get("baseline", "")),
        metrics=metrics,
        margin=options.margin,
        claims=raw.get("claims", ()),
        paired=options.paired,
        by=options.by,
        columns={name: called for name, _, called in (text.partition("=") for text in options.columns)},
        exact=raw.get("exact", ()),
        ranges=parse_ranges(raw.get("ranges", {}), metrics),
    )


def _table(options: argparse.Namespace) -> pd.DataFrame:
    """One row for each run, or for each run and metric, of all that the command line names."""
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
        rows = list(_named(tensorboard_rows(options.tensorboard), options.name))
    else:
        rows = list(_named(_file_rows(options.files), options.name))
    if not rows:
        sources = [str(each) for each in (*options.files, options.wandb, options.tensorboard) if each is not None]
        what = "offline run of W&B" if options.wandb else "event file of TensorBoard" if options.tensorboard else "row"
        hint = f"; tables are {', '.join(KINDS)}, their rows below the names of columns" if what == "row" else ""
        raise UsageError(f"there must be a row for each run, but {' and '.join(sources)} has no {what}{hint}")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns})


def _file_rows(paths: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in paths:
        if not path.exists():
            raise UsageError(f"results must be a file or a folder, but {path} does not exist")
        inside = [each for each in sorted(path.rglob("*")) if each.suffix in KINDS and "judged.json" not in each.name]
        for each in inside if path.is_dir() else [path]:
            try:
                yield from ((each, row) for row in _rows(each))
            except (OSError, ValueError, csv.Error) as error:
                raise UsageError(f"{each} cannot be read as {each.suffix or 'a table'}: {error}") from None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file; raises ValueError for what is no table."""
    if path.suffix not in KINDS:
        raise ValueError(f"its name must end in one of {', '.join(KINDS)}")
    if path.suffix == ".parquet":
        yield from pd.read_parquet(path).to_dict("records")  # type: ignore[misc]
        return
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix in (".csv", ".tsv"):
        yield from _cells(text)
        return
    for line in [line for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else [text]:
        found = json.loads(line)
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                raise ValueError(f"a row must be an object of names and values, not {quote(each)}")
            yield _flat(each)


def _cells(text: str) -> Iterator[dict[str, Any]]:
    """The rows of a table of text, its cells parted by commas, semicolons or tabs.

    Behind semicolons and tabs a comma between digits is a decimal point.
    """
    first = text.partition("\n")[0]
    parted = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=parted, strict=True)
    head = next(reader, [])
    if len(set(head)) < len(head):
        raise ValueError("its columns must have different names")
    for cells in reader:
        if len(cells) not in (0, len(head)):
            raise ValueError(f"line {reader.line_num} must have {len(head)} cells, but has {len(cells)}")
        if parted != ",":
            cells = [cell.replace(",", ".") if _COMMA.fullmatch(cell.strip()) else cell for cell in cells]
        if cells:
            yield dict(zip(head, cells, strict=True))


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested objects as one, their names joined by points."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {before + str(name): value}
    return found


def _named(rows: Iterable[tuple[Path, dict[str, Any]]], pattern: str | None) -> Iterator[dict[str, Any]]:
    """Rows with what `pattern`, such as `{arm}/seed{seed}.json`, reads in the end of their file's path."""
    if pattern is None:
        yield from (row for _, row in rows)
        return
    parts = re.split(r"\{(\w+)\}", pattern)
    if len(parts) < 3 or len(set(parts[1::2])) < len(parts) // 2:
        raise UsageError(f"--name must have names in braces, such as '{{arm}}/seed{{seed}}.json', not {quote(pattern)}")
    groups = (f"(?P<{part}>[^/]+?)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    expression = re.compile("(?:.*/)?" + "".join(groups))
    for path, row in rows:
        found = expression.fullmatch(path.as_posix())
        if found is None:
            raise UsageError(f"the path of each file must end as --name says, {quote(pattern)}, but {path} does not")
        yield {**found.groupdict(), **row}


def wandb_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Each offline run of W&B below a folder: its name, group, job type, configuration and last values."""
    import subprocess

    from wandb.util import get_core_path

    for path in sorted(folder.rglob("*.wandb")):
        command = [get_core_path(), "leet", "inspect", "--json", "--run-file", str(path), str(path.parent)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise UsageError(f"{path} cannot be read by wandb: {done.stderr.strip() or done.returncode}")
        row: dict[str, Any] = {}
        for entry in map(json.loads, done.stdout.splitlines()):
            own = entry.get(entry["type"], {})
            if entry["type"] == "run":
                row |= {name: own.get(name) for name in ("display_name", "run_group", "job_type")}
                row |= _flat(own.get("config", {}).get("update", own.get("config", {})))
            elif entry["type"] in ("history", "summary"):
                row |= _flat(own.get("item" if entry["type"] == "history" else "update", {}))
        yield {"arm": row.get("job_type") or row.get("run_group"), **{k: v for k, v in row.items() if k[:1] != "_"}}


def tensorboard_rows(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each run of TensorBoard below a folder, with the last value of each scalar."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise UsageError("--tensorboard needs TensorBoard: pip install 'swapformer[tensorboard]'") from None
    for place in sorted({path.parent for path in folder.rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 1, "tensors": 1}).Reload()
        yield place, {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}


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
    made.add_argument("--margin", type=float, default=0.0, metavar="X", help="how much better counts (default: 0)")
    made.add_argument("--claims", type=Path, metavar="YAML", help=f"a file with {', '.join(_CLAIM_KEYS)}")
    made.add_argument("--paired", action="store_true", help="equal seeds mean equal data and weights")
    made.add_argument("--columns", nargs="+", default=[], metavar="NAME=COLUMN", help="names of columns: arm=method")
    made.add_argument("--by", nargs="*", metavar="COLUMN", help="the columns that hold conditions; may be none")
    made.add_argument("--name", metavar="PATTERN", help="what the path of a run's file says: '{arm}/seed{seed}.json'")
    made.add_argument("--wandb", type=Path, metavar="FOLDER", help="offline runs; the arm is the job type or the group")
    made.add_argument("--tensorboard", type=Path, metavar="FOLDER", help="runs; --name reads the arm in their paths")
    made.add_argument("--fresh", action="store_true", help="leave out the looks before, and say so")
    made.add_argument("--html", type=Path, metavar="PAGE", help="write the page of a report there")
    return add_common(made)
