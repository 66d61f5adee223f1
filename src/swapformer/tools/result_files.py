"""Reads results of other tools, a row for each run: tables, offline runs of W&B, event files of TensorBoard.

A row may say how its run ended: `LOST` why it did not end well, `STEPS` the step that it came to.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from swapformer.errors import UsageError, quote
from swapformer.numerals import is_finite_number
from swapformer.report.external_results import LOST, STEPS

_TEXT = (".csv", ".tsv")
_LINES = (".jsonl", ".ndjson")
KINDS = (*_TEXT, *_LINES, ".json", ".parquet")
Commas = Literal["decimal", "thousands"]
"""What a comma between the digits of a number is."""
LOOKS = "judged.json"
"""How the names of files that keep looks end."""
_COPIES = ".ipynb_checkpoints"
_DECIMAL = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)


def file_rows(paths: Iterable[Path], commas: Commas | None = None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The rows of tables, each with the file that it is from; of a folder, those of all tables below it.

    Behind semicolons and tabs a comma between digits is a decimal point, unless `commas` says otherwise.

    Raises:
        UsageError: for a path that does not exist, a file that is no table, and a column of which the files together
            do not tell what its commas are.
    """
    read: list[tuple[Path, list[dict[str, Any]], bool]] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"results must be a file or a folder, but {path} does not exist")
        inside = [each for each in below(path) if each.suffix.lower() in KINDS]
        for each in inside if path.is_dir() else [path]:
            try:
                rows = list(_rows(each))
            except (OSError, ValueError, RecursionError, csv.Error) as error:
                raise UsageError(f"{each} cannot be read as {each.suffix or 'a table'}: {error}") from None
            read.append((each, [row for row, _ in rows], any(spelled for _, spelled in rows)))
    unclear = {name for _, table, spelled in read if spelled and commas is None for row in table for name in row}
    columns: dict[str, list[str]] = {name: [] for name in sorted(unclear)}
    for _, table, _ in read:
        for row in table:
            for name in unclear & row.keys():
                columns[name].append(str(row[name]))
    for name, column in columns.items():
        _require_clear_commas(name, column)
    for path, table, spelled in read:
        if not table:
            yield path, {}  # it may be a run's that crashed before it had measured anything
        for row in table:
            text = path.suffix.lower() in _TEXT
            own = commas if commas or not spelled else "decimal"
            yield path, {name: _without_commas(cell, own) for name, cell in row.items()} if text else row


def below(folder: Path, pattern: str = "*") -> list[Path]:
    """The files below a folder that fit a pattern, in linked folders too; those that keep looks only where asked."""
    found = []
    for place, folders, names in os.walk(folder, followlinks=True):
        here = Path(place)
        above = {each.resolve() for each in (here, *here.parents) if each == folder or folder in each.parents}
        # a link to a folder above would go round in circles; notebooks keep copies of what they show
        folders[:] = [each for each in folders if (here / each).resolve() not in above and each != _COPIES]
        found += [
            here / each
            for each in names
            if fnmatchcase(each, pattern) and each.endswith(LOOKS) == pattern.endswith(LOOKS)
        ]
    return sorted(found)


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], bool]]:
    """The rows of a file, each with whether a comma may be a decimal point in it.

    Raises ValueError for what is no table.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"its name must end in one of {', '.join(KINDS)}")
    if kind == ".parquet":
        table = pd.read_parquet(path)
        table = table.reset_index([name for name in table.index.names if name is not None])
        yield from ((row, False) for row in table.to_dict("records"))  # type: ignore[misc]
        return
    text = path.read_bytes().decode("utf-8-sig")
    if kind in _TEXT:
        yield from _cells(text)
        return
    # at \n only: JSON may hold U+2028 and the like, at which str.splitlines would cut it
    for line in [line for line in text.split("\n") if line.strip()] if kind in _LINES else [text]:
        found = json.loads(line, object_pairs_hook=_once)
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                raise ValueError(f"a row must be an object of names and values, not {quote(each)}")
            yield _flat(each), False


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, none of whose names stands in it twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"a row must have each name once, but one has {quote(twice)} twice")
    return found


def _cells(text: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """The rows of a table of text, its cells parted by commas, semicolons or tabs; blanks around a cell do not count.

    The second of each pair: whether a comma between digits may be a decimal point.
    """
    said = re.match(r"sep=(.)\r?\n", text)  # how Excel is told what parts the cells
    text = text[said.end() :] if said else text
    remarks = re.match(r"(?:#.*\n)*", text)
    assert remarks is not None, "a pattern that fits nothing fits everywhere"
    of_table = _parts(text[remarks.end() :].partition("\n")[0])
    while text.startswith("#") and _parts(text.partition("\n")[0]) < of_table:
        text = text.partition("\n")[2]
    first = text.partition("\n")[0]
    parted = said[1] if said else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=parted, strict=True, skipinitialspace=parted == ",")
    head = [name.strip() for name in next(reader, [])]
    if len(set(head)) < len(head):
        raise ValueError("its columns must have different names")
    for cells in reader:
        if len(cells) not in (0, len(head)):
            raise ValueError(f"line {reader.line_num} must have {len(head)} cells, but has {len(cells)}")
        if cells:
            yield dict(zip(head, (cell.strip() for cell in cells), strict=True)), parted != ","


def _parts(line: str) -> int:
    """How often a line is parted into cells at most."""
    return max(map(line.count, ",;\t"))


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
        raise UsageError(
            f"a comma in {name} could be a decimal point or stand before thousands: it has both {quote(shown)} and "
            f"{quote(other)}; say --commas decimal or --commas thousands"
        )


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested objects as one, their names joined by points."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        own = _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {before + str(name): value}
        if twice := sorted(own.keys() & found.keys()):
            raise ValueError(f"a row must have each name once, but one has {quote(twice[0])} nested and with a point")
        found |= own
    return found


def with_path(rows: Iterable[tuple[Path, dict[str, Any]]], pattern: str | None) -> Iterator[dict[str, Any]]:
    """Rows with what `pattern`, such as `{arm}/seed{seed}.json`, reads in the end of their file's path.

    Raises:
        UsageError: for a path that does not end so, that can be read in several ways, or says other than its row does.
    """
    if pattern is None:
        yield from (row for _, row in rows)
        return
    parts = re.split(r"\{(\w+)\}", pattern)
    if len(parts) < 3 or len(set(parts[1::2])) < len(parts) // 2:
        raise UsageError(f"--name must have names in braces, such as '{{arm}}/seed{{seed}}.json', not {quote(pattern)}")
    read = [(path, row, _named_by(path, pattern, parts)) for path, row in rows]
    runs = {path: row for path, row, said in read if said is not None}
    for path, row, said in read:
        above = [runs[each] for each in path.parents if each in runs]
        if above and not any(name in other and row[name] is not None for other in above for name in _metrics(row)):
            continue  # what TensorBoard keeps beside a run: hyperparameters, scalars that share a plot
        if above:
            raise UsageError(
                f"a run must be in one folder, but {path} and a folder above it have values of the same metrics; name "
                "the one that counts, or move the other away"
            )
        if said is None:
            raise UsageError(f"the path of each file must end as --name says, {quote(pattern)}, but {path} does not")
        if other := [name for name in said if name in row and str(row[name]).strip() != said[name]]:
            raise UsageError(
                f"a row must not say otherwise than its path, but {path} is of {other[0]} {quote(said[other[0]])}, and "
                f"its row of {quote(str(row[other[0]]))}; leave {{{other[0]}}} out of --name, or the column"
            )
        yield {**row, **said}


def _metrics(row: Mapping[str, Any]) -> list[str]:
    """The metrics of a run of TensorBoard."""
    return [name for name in row if name not in (LOST, STEPS)]


def _named_by(path: Path, pattern: str, parts: Sequence[str]) -> dict[str, str] | None:
    """What the parts of a pattern, every second of which is a name, stand for in a path; a seed is digits if it can.

    None for a path that does not end so.
    """
    for seed in (r"\d+", "[^/]+"):
        # the shortest and the longest reading differ where there are several
        ways = []
        for lazy in ("?", ""):
            groups = (
                f"(?P<{part}>{seed if part == 'seed' else '[^/]+'}{lazy})" if index % 2 else re.escape(part)
                for index, part in enumerate(parts)
            )
            ways.append(re.fullmatch("(?:.*/)?" + "".join(groups), path.as_posix()))
        if ways[0] and ways[1]:
            one, other = ways[0].groupdict(), ways[1].groupdict()
            if one == other:
                return one
            shown = [", ".join(f"{name} {quote(value)}" for name, value in way.items()) for way in (one, other)]
            raise UsageError(
                f"--name must say one thing of a path, but {quote(pattern)} reads {path} as {shown[0]} or as "
                f"{shown[1]}; put other signs between the names"
            )
    return None


def wandb_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Each offline run of W&B below a folder: its name, group, job type, configuration and last values.

    A run that was resumed lies in several folders, and is one. A run whose exit status is not 0, or that has none since
    it was killed, is lost.
    """
    parts: dict[str, list[list[dict[str, Any]]]] = {}
    for path in below(folder, "*.wandb"):
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
                elif entry["type"] == "config":  # what was set after the run began
                    row |= _flat(own.get("update", {}))
                    for name in own.get("remove", []):
                        row.pop(str(name), None)
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
    """Each run of TensorBoard below a folder, with the last value and the last step of each scalar.

    Event files do not say how a run ended, so `LOST` is None.
    """
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise UsageError("--tensorboard needs TensorBoard: pip install 'swapformer[tensorboard]'") from None
    for place in sorted({path.parent for path in below(folder, "events.out.tfevents.*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 1, "tensors": 1}).Reload()
        last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
        values = {tag: each.value for tag, each in last.items()}
        for tag in events.Tags()["tensors"]:  # where newer writers keep scalars too
            newest = events.Tensors(tag)[-1]
            if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
                last[tag], values[tag] = newest, float(make_ndarray(newest.tensor_proto).item())
        yield place, {**values, LOST: None, STEPS: {tag: each.step for tag, each in last.items()}}
