"""Reads results of other tools, a row for each run: tables, offline runs of W&B, event files of TensorBoard.

A row may say how its run ended: `LOST` why it did not end well, `STEPS` the step that it came to.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from swapformer.errors import UsageError, quote
from swapformer.numerals import is_finite_number
from swapformer.report.external_results import LOST, STEPS

KINDS = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
Commas = Literal["decimal", "thousands"]
"""What a comma between the digits of a number is."""
_DECIMAL = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)


def file_rows(paths: Iterable[Path], commas: Commas | None = None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The rows of tables, each with the file that it is from; of a folder, those of all tables below it.

    Raises:
        UsageError: for a path that does not exist, and a file that is no table.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"results must be a file or a folder, but {path} does not exist")
        inside = [
            each
            for each in sorted(path.rglob("*"))
            if each.suffix.lower() in KINDS and not each.name.endswith("judged.json")
        ]
        for each in inside if path.is_dir() else [path]:
            try:
                yield from ((each, row) for row in _rows(each, commas))
            except (OSError, ValueError, RecursionError, csv.Error) as error:
                raise UsageError(f"{each} cannot be read as {each.suffix or 'a table'}: {error}") from None


def _rows(path: Path, commas: Commas | None) -> Iterator[dict[str, Any]]:
    """The rows of a file; raises ValueError for what is no table."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"its name must end in one of {', '.join(KINDS)}")
    if kind == ".parquet":
        yield from pd.read_parquet(path).to_dict("records")  # type: ignore[misc]
        return
    text = path.read_bytes().decode("utf-8-sig")
    if kind in (".csv", ".tsv"):
        yield from _cells(text, commas)
        return
    # at \n only: JSON may hold U+2028 and the like, at which str.splitlines would cut it
    for line in [line for line in text.split("\n") if line.strip()] if kind == ".jsonl" else [text]:
        found = json.loads(line)
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                raise ValueError(f"a row must be an object of names and values, not {quote(each)}")
            yield _flat(each)


def _cells(text: str, commas: Commas | None) -> Iterator[dict[str, Any]]:
    """The rows of a table of text, its cells parted by commas, semicolons or tabs; blanks around a cell do not count.

    Behind semicolons and tabs a comma between digits is a decimal point, unless `commas` says otherwise.
    """
    first = text.partition("\n")[0]
    parted = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=parted, strict=True, skipinitialspace=parted == ",")
    head = [name.strip() for name in next(reader, [])]
    if len(set(head)) < len(head):
        raise ValueError("its columns must have different names")
    rows = []
    for cells in reader:
        if len(cells) not in (0, len(head)):
            raise ValueError(f"line {reader.line_num} must have {len(head)} cells, but has {len(cells)}")
        if cells:
            rows.append([cell.strip() for cell in cells])
    of_numbers = dict(zip(head, zip(*rows, strict=True), strict=False))
    if commas is None and parted != ",":
        for name, column in of_numbers.items():
            _require_clear_commas(name, column)
        commas = "decimal"
    for cells in rows:
        yield {name: _without_commas(cell, commas) for name, cell in zip(head, cells, strict=True)}


def _without_commas(cell: str, commas: Commas | None) -> str:
    if commas == "decimal" and _DECIMAL.fullmatch(cell):
        return cell.replace(",", ".")
    return cell.replace(",", "") if commas == "thousands" and _THOUSANDS.fullmatch(cell) else cell


def _require_clear_commas(name: str, cells: Sequence[str]) -> None:
    """Refuse a column whose commas may stand before thousands: 980 beside 1,250, or points beside commas."""
    with_comma = [cell for cell in cells if _DECIMAL.fullmatch(cell) or _THOUSANDS.fullmatch(cell)]
    plain = [cell for cell in cells if is_finite_number(cell)]
    three = [cell for cell in with_comma if _THOUSANDS.fullmatch(cell) and not cell.lstrip("+-").startswith("0")]
    if not with_comma:
        return
    with_point = next((cell for cell in cells if "." in cell and (cell in with_comma or cell in plain)), None)
    other = with_point or (plain[0] if plain and three else None)
    if other is not None:
        shown = three[0] if three else with_comma[0]
        raise ValueError(
            f"a comma in {name} could be a decimal point or stand before thousands: it has both {quote(shown)} and "
            f"{quote(other)}; say --commas decimal or --commas thousands"
        )


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested objects as one, their names joined by points."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {before + str(name): value}
    return found


def with_path(rows: Iterable[tuple[Path, dict[str, Any]]], pattern: str | None) -> Iterator[dict[str, Any]]:
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
    """Each offline run of W&B below a folder: its name, group, job type, configuration and last values.

    A run that was resumed lies in several folders, and is one. A run whose exit status is not 0, or that has none since
    it was killed, is lost.
    """
    parts: dict[str, list[list[dict[str, Any]]]] = {}
    for path in sorted(folder.rglob("*.wandb")):
        entries = _wandb_entries(path)
        run: Mapping[str, Any] = next((entry["run"] for entry in entries if entry["type"] == "run"), {})
        # ids are unique only within a project
        key = [run.get("entity"), run.get("project"), run["run_id"]] if run.get("run_id") else [str(path)]
        parts.setdefault(json.dumps(key), []).append(entries)
    for of_run in parts.values():
        row: dict[str, Any] = {}
        lost = ""
        for entries in sorted(of_run, key=_started):
            lost = "it has no exit status, so it was killed or still runs"
            for entry in entries:
                own = entry.get(entry["type"], {})
                if entry["type"] == "run":
                    row |= {name: own.get(name) for name in ("display_name", "run_group", "job_type")}
                    row |= _flat(own.get("config", {}).get("update", own.get("config", {})))
                elif entry["type"] in ("history", "summary"):
                    row |= _flat(own.get("item" if entry["type"] == "history" else "update", {}))
                elif entry["type"] == "exit":
                    status = own.get("exit_code", 0)
                    lost = f"its exit status is {status}" if status else ""
        steps = row.get("_step", math.nan)
        named = {name: value for name, value in row.items() if not name.startswith("_")}
        yield {"arm": row.get("job_type") or row.get("run_group"), **named, LOST: lost, STEPS: steps}


def _wandb_entries(path: Path) -> list[dict[str, Any]]:
    """The entries of one file of an offline run."""
    import subprocess

    from wandb.util import get_core_path

    command = [get_core_path(), "leet", "inspect", "--json", "--run-file", str(path), str(path.parent)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise UsageError(f"{path} cannot be read by wandb: {said or done.returncode}")
    try:
        # at \n only: a note may hold U+0085, at which str.splitlines would cut its line
        found = [json.loads(line) for line in done.stdout.decode("utf-8").split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: what wandb says of it is no JSON ({error})") from None
    return [each for each in found if isinstance(each, dict) and "type" in each]


def _started(entries: Sequence[Mapping[str, Any]]) -> str:
    return str(next((entry["run"].get("start_time", "") for entry in entries if entry["type"] == "run"), ""))


def tensorboard_rows(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each run of TensorBoard below a folder, with the last value of each scalar and the last step of all."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise UsageError("--tensorboard needs TensorBoard: pip install 'swapformer[tensorboard]'") from None
    for place in sorted({path.parent for path in folder.rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 1, "tensors": 1}).Reload()
        last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
        steps = max((each.step for each in last.values()), default=math.nan)
        yield place, {**{tag: each.value for tag, each in last.items()}, STEPS: steps}


def mark_stopped(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in which a run that stops before another one of its arm is lost: event files do not say how a run ended."""
    found = list(rows)
    furthest: dict[str, float] = {}
    for row in found:
        furthest[str(row.get("arm"))] = max(furthest.get(str(row.get("arm")), 0), row[STEPS])
    for row in found:
        last = furthest[str(row.get("arm"))]
        row[LOST] = f"it stops at step {row[STEPS]:g}, others of its arm at {last:g}" if row[STEPS] < last else ""
    return found
