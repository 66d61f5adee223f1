"""`results.csv`, from which a study is judged again without its trials, and `history.csv`, for its curves.

Rows of `results.csv` are of three kinds, which their status tells apart: what a trial measured; a look at which claims
were judged (`judged`, without an arm, and without a seed where other claims were judged on the same ones); and what
else is known of the study (`stated`, without an arm and a seed), whose note is JSON:

    generated         true where the task generates its samples
    longest_trained   the longest length in training
    impossible        [arm, condition, reason] of an arm that could not be built
    difference        how an arm differs from the baseline, as in the manifest's `fairness`
    exact             the metrics that no seed changes
    tuning            what was tried and chosen, as in the manifest
    parameters        [arm, condition, all of them, all but those of positions]
    evaluated         [arm, condition, seeds, {evaluation set: its items}]
    remark            [arm, condition, seeds, text] of the trials' records
    tokens            [arm, condition, tokens of a training], of a ladder
    unreached         [arm, condition, seeds, metric] of times to a target that was not reached
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.errors import UsageError, quote, suggest
from swapformer.numerals import is_finite_number
from swapformer.report.records import CELL_COLUMNS, HISTORY_COLUMNS, METRIC_COLUMNS, CellKey, Records
from swapformer.results.arms import RUNG, ArmDifference, Cell, arm_name
from swapformer.results.files import write_atomic
from swapformer.results.items import ItemMeans, Items, items_of, read_items
from swapformer.results.ledger import (
    AGAIN,
    LOOK,
    OF,
    UNKNOWN,
    Ledger,
    Look,
    Series,
    look_rows,
    looks_in_rows,
    stated_claims,
    without_settings,
)
from swapformer.results.manifest import Manifest
from swapformer.results.record import CORRUPT, FINISHED, MISSING, STATUSES
from swapformer.results.tuning import Tuning

RESULT_COLUMNS: Mapping[str, str] = {
    "study": "the study's name",
    "arm": "the arm, as in study.yaml",
    "seed": "the trial's seed; differences are paired by it",
    "metric": "what was measured, after training; name@n is measured at length n; name:init before training, and "
    "name:n after n steps; look@n: the look at n seeds was the first with this one, its value the error that it took",
    "value": "the measured value; nan if it is no finite number; empty unless the trial finished and has this metric, "
    "or the metric is name:init, measured before training",
    "evaluation_se": "standard error of the value from the finite evaluation set, not from the seeds; empty if unknown",
    "direction": "lower or higher, whichever is better; empty if neither",
    "status": "finished, diverged, failed, interrupted, killed, running, missing or corrupt; of looks: judged; of what "
    "is known of the whole study: stated",
    "trial": "the trial's id: its folder is runs/trials/<id>; empty if there is none",
    "environment": "device, torch version, threads, determinism, hardware of what is timed; only equal ones are paired",
    "losses": "a hash of all losses of the trial, which two trials share only where they trained the same model",
    "note": "of what is stated: JSON, as docs/files.md describes it; of a look: digests of the claims that it judged",
}
STATED = "stated"
LARGEST_HISTORY = 200_000
"""Characters of a `history.csv`: a longer one is not published, and curves over steps are kept as they were drawn."""
_HASH = 16
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""What a cell that is no number begins with where a spreadsheet computes it; apostrophes that were there count too."""


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV: numbers to the last digit, nothing where there is no number, no cell that a sheet computes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([to_cell(name) for name in header])
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return to_cell(value)
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return "" if value is None else value


def to_cell(name: str) -> str:
    """A name as a cell of a table: one that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{name}" if _FORMULA.match(name) and not _is_number(name) else name


def from_cell(cell: str) -> str:
    """The name that `to_cell` has written."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def result_columns(manifest: Manifest) -> dict[str, str]:
    """The columns of `results.csv` with their meaning; a study with a grid has one more for each of its factors."""
    factors = {key: "the grid's value of this key" for values in manifest.conditions.values() for key in values}
    return {"study": RESULT_COLUMNS["study"], **factors, **RESULT_COLUMNS}


def results_csv(
    records: Records, metrics: Sequence[str], looks: Sequence[Look] = (),
    stated: Mapping[str, Sequence[int] | None] | None = None,
) -> str:  # fmt: skip
    """`results.csv`: tidy, one row per arm, seed, metric and condition; columns as in `result_columns`.

    The looks at which the study was judged follow, one row for each seed, then what else is known of it. Claims of
    looks, and those that were `stated`, have names that a table can tell (`LookPath.published`).
    """
    manifest = records.manifest
    names = ["condition", "arm", "seed", "metric", "value", "standard_error"]
    values = {tuple(row[:4]): row[4:] for row in records.metrics[names].itertuples(index=False, name=None)}
    columns = list(result_columns(manifest))
    rows: list[dict[str, str]] = []
    seeds = [int(seed) for seed in records.cells["seed"]]
    for cell, seed in zip(records.cells.itertuples(index=False), seeds, strict=True):
        key = (str(cell.condition), str(cell.arm), seed)
        of_cell = {
            **{factor: to_cell(str(value)) for factor, value in manifest.conditions[key[0]].items()},
            "arm": to_cell(key[1]), "seed": str(key[2]), "status": str(cell.status), "trial": str(cell.trial),
            "environment": str(cell.environment), "losses": records.losses.get(key, "")[:_HASH],
        }  # fmt: skip
        for metric in metrics:
            value, error = values.get((*key, metric), (math.nan, math.nan))
            no_number = cell.status == "finished" and (key[0], key[1], metric) in records.infinite
            rows.append({
                **of_cell, "metric": to_cell(metric), "value": _plain(value) or ("nan" if no_number else ""),
                "evaluation_se": _plain(error), "direction": records.directions.get(metric, ""),
            })  # fmt: skip
    rows += look_rows([_published(look) for look in looks], manifest.ledger.unknown if looks else "")
    rows += [
        {"metric": kind, "status": STATED, "note": json.dumps(fact, ensure_ascii=False)}
        for kind, fact in _stated(records, stated or {})
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writerow({name: to_cell(name) for name in columns})
    writer.writerows({"study": to_cell(manifest.name), **row} for row in rows)
    return out.getvalue()


def _plain(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))


def _stated(records: Records, claims: Mapping[str, Sequence[int] | None]) -> Iterator[tuple[str, Any]]:
    """Further facts about a study: the kind of each fact, and the fact as JSON holds it."""
    manifest = records.manifest
    if records.generated:
        yield "generated", True
    if manifest.longest_trained is not None:
        yield "longest_trained", manifest.longest_trained
    for (arm, condition), reason in manifest.impossible_at.items():
        yield "impossible", [arm, condition, reason]
    for each in manifest.fairness:
        yield "difference", each.to_json()
    for identity, seen in claims.items():
        yield "claim", [identity, None if seen is None else list(seen)]
    if manifest.exact:
        yield "exact", list(manifest.exact)
    if manifest.tuning is not None:
        yield "tuning", manifest.tuning.to_json()
    sizes = records.cells.dropna(subset=["total", "non_position"]).groupby(["arm", "condition"], sort=False)
    for size in sizes[["total", "non_position"]].mean().reset_index().itertuples(index=False):
        yield "parameters", [str(size.arm), str(size.condition), size.total, size.non_position]
    if any(RUNG in values for values in manifest.conditions.values()):
        known = records.cells.dropna(subset=["tokens"]).groupby(["arm", "condition"], sort=False)["tokens"].mean()
        for row in known.reset_index().itertuples(index=False):
            yield "tokens", [str(row.arm), str(row.condition), float(str(row.tokens))]
    for (arm, condition, text), seeds in _by_content(records.evaluations).items():
        yield "evaluated", [arm, condition, seeds, json.loads(text)]
    remarks = {key: list(found) for key, found in records.remarks.items()}
    for (arm, condition, text), seeds in _by_content(remarks).items():
        yield "remark", [arm, condition, seeds, json.loads(text)]
    cut: dict[tuple[str, str, str], list[int]] = {}
    for condition, arm, seed, metric in sorted(records.unreached):
        cut.setdefault((arm, condition, metric), []).append(seed)
    for (arm, condition, metric), seeds in cut.items():
        yield "unreached", [arm, condition, seeds, metric]


def _by_content(found: Mapping[CellKey, Any]) -> dict[tuple[str, str, str], list[int]]:
    """Arm, condition and what is said as JSON → the seeds of which it is said."""
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for (condition, arm, seed), said in found.items():
        seeds.setdefault((arm, condition, json.dumps(said, sort_keys=True)), []).append(seed)
    return seeds


def _published(look: Look) -> Look:
    """A look as a table has it, which does not know what arms trained."""
    return replace(look, claims=" ".join(dict.fromkeys(map(without_settings, look.claims.split()))))


def add_looks(path: Path, records: Records, before: Sequence[Look], added: Sequence[Look]) -> None:
    """Append looks to a `results.csv` that has those `before`; raises OSError."""
    looks = [_published(look) for look in (*before, *added)]
    rows = look_rows(looks, "")[len(look_rows(looks[: len(before)], "")) :]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(result_columns(records.manifest)), restval="", lineterminator="\n")
    writer.writerows({"study": to_cell(records.manifest.name), **row} for row in rows)
    write_atomic(path, path.read_text(encoding="utf-8") + out.getvalue())


def read_results(path: Path, manifest: Manifest) -> Records:
    """The records that a study's `results.csv` holds, for a manifest that says what was asked and names no cells.

    Histories are those of the `history.csv` beside it. Findings of probes are in neither, nor what trials cost. Arms
    without a row were impossible. Files of before `losses` and `note` are read too.

    Raises:
        UsageError: with the line, for a row that no report writes: of another study or arm, doubled, cut, or with a
            cell that is not what its column holds.
    """
    try:
        rows = _rows(path, manifest)
        looks, unknown = looks_in_rows(rows)
        measured = [row for row in rows if row["arm"]]
        stated = [(row["metric"], json.loads(row["note"])) for row in rows if row["status"] == STATED]
        known = {(arm, condition) for arm, condition, _ in (fact for kind, fact in stated if kind == "impossible")}
        found = _measured(measured, manifest, known if stated else None)
        filled = replace(found.manifest, ledger=Ledger((Series(looks),) if looks else (), unknown))
        history = read_history_csv(path.with_name(HISTORY))
        items = read_published_items(path.with_name(ITEMS), found)
        return replace(_with_stated(found, filled, stated), histories=history, items=items)
    except RecursionError:
        raise UsageError(f"{path} must be a study's results.csv, but a note in it is nested too deeply") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, csv.Error) as error:
        raise UsageError(f"{path} must be a study's results.csv, but cannot be read ({error})") from None


def _rows(path: Path, manifest: Manifest) -> list[dict[str, str]]:
    """The rows of a `results.csv`, each checked. Raises ValueError, with the line of the first that is wrong."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = [from_cell(name) for name in next(reader, [])]
        _require_columns(header, manifest)
        rows: list[dict[str, str]] = []
        lines: dict[tuple[str, ...], int] = {}
        for cells in reader:
            if len(cells) != len(header):
                raise ValueError(f"line {reader.line_num} must have {len(header)} cells, but has {len(cells)}")
            row = dict(zip(header, map(from_cell, cells), strict=True))
            if problem := _problem(row, manifest):
                raise ValueError(f"line {reader.line_num}: {problem}")
            if row["arm"]:
                key = (_condition(row, manifest), row["arm"], row["seed"], row["metric"])
                if (before := lines.setdefault(key, reader.line_num)) != reader.line_num:
                    raise ValueError(f"lines {before} and {reader.line_num} are of the same trial and metric; keep one")
            rows.append(row)
    if not any(row["arm"] for row in rows):
        raise ValueError("it has no row of any arm")
    for name in ("study", "direction"):
        held: dict[str, set[str]] = {}
        for row in rows:
            if row["arm"] and row[name]:
                held.setdefault(row["metric"] if name == "direction" else "rows", set()).add(row[name])
        for of, values in held.items():
            if len(values) > 1:
                raise ValueError(f"the {name} of {of} must be one, but it is {' and '.join(sorted(values))}")
    _require_whole(rows, manifest)
    return rows


def _require_whole(rows: Sequence[Mapping[str, str]], manifest: Manifest) -> None:
    """Refuse a file that lacks rows of a trial or a look of which it has others."""
    metrics = list(dict.fromkeys(row["metric"] for row in rows if row["arm"]))
    held: dict[CellKey, set[str]] = {}
    for row in rows:
        if row["arm"]:
            held.setdefault((_condition(row, manifest), row["arm"], int(row["seed"])), set()).add(row["metric"])
    for (condition, arm, seed), known in held.items():
        if lacking := [metric for metric in metrics if metric not in known]:
            raise ValueError(
                f"{arm_name(arm, condition)} with seed {seed} must have a row for each metric, but has none for "
                f"{lacking[0]}"
            )
    before: set[int] = set()
    judged = [row for row in rows if row["metric"].startswith(LOOK) and row["metric"] != UNKNOWN]
    names = dict.fromkeys((row["metric"], row.get("note", "").partition("\n")[0]) for row in judged)
    for (name, _), look in zip(names, looks_in_rows(rows)[0], strict=True):
        before |= look.trials.keys()
        own, of, all_known = name.removeprefix(LOOK).partition(AGAIN)[0].partition(OF)
        seeds = len(before) if look.seeds is None else len(look.seeds)
        if own != str(seeds) or (of and all_known != str(len(before))):
            raise ValueError(f"{name} must be of {name.removeprefix(LOOK)} seeds, but up to it there are {len(before)}")


def _require_columns(header: Sequence[str], manifest: Manifest) -> None:
    if len(header) == 1 and any(sign in header[0] for sign in ";\t"):
        raise ValueError("its cells must be parted by commas, as a report writes them")
    needed = [name for name in result_columns(manifest) if name not in ("losses", "note")]
    if missing := [name for name in needed if name not in header]:
        raise ValueError(f"the column {missing[0]} is missing")


def _problem(row: Mapping[str, str], manifest: Manifest) -> str:
    """The reason why no report writes such a row; empty for a good one."""
    if not row["arm"]:
        return ""
    if row["arm"] not in manifest.arms:
        return f"the study has no arm {quote(row['arm'])}{suggest(row['arm'], manifest.arms)}"
    if not (row["seed"].isascii() and row["seed"].isdecimal()):
        return f"a seed must be a whole number of at least 0, not {quote(row['seed'])}"
    if row["status"] not in (*STATUSES, MISSING, CORRUPT):
        return f"there is no status {quote(row['status'])}{suggest(row['status'], STATUSES)}"
    if row["direction"] not in ("", "lower", "higher"):
        return f"a direction must be lower, higher or empty, not {quote(row['direction'])}"
    for name in ("value", "evaluation_se"):
        if row[name] not in ("", "nan") and not is_finite_number(row[name]):
            return f"{name} must be a number, nan or empty, not {quote(row[name])}"
    return ""


def _measured(
    rows: Sequence[Mapping[str, str]], manifest: Manifest, impossible: Collection[tuple[str, str]] | None
) -> Records:
    """The records in the rows of trials.

    `impossible`: arms, each with its condition, that the file says could not be built; None where it does not tell.
    """
    cells: dict[CellKey, tuple[Any, ...]] = {}
    metrics, infinite, losses = [], set(), {}
    for row in rows:
        cell = (_condition(row, manifest), row["arm"], int(row["seed"]))
        known = (row["trial"], row["status"], "", *[math.nan] * 5, row["environment"], "", "", False, "", "")
        cells[cell] = (*cell, *known)
        if row.get("losses"):
            losses[cell] = row["losses"]
        if row["value"] == "nan":
            infinite.add((*cell[:2], row["metric"]))
        elif row["value"]:
            error = float(row["evaluation_se"] or "nan")
            metrics.append((*cell, row["trial"], row["metric"], float(row["value"]), error))
    cells |= _missing(cells, manifest, impossible)
    impossible_at = {
        (arm, condition): "no results"
        for arm in manifest.arms
        for condition in manifest.conditions
        if not any(key[:2] == (condition, arm) for key in cells)
    }
    filled = replace(
        manifest,
        seeds=tuple(dict.fromkeys([*manifest.seeds, *(seed for _, _, seed in cells)])),
        cells=tuple(Cell(arm, seed, str(row[3]), condition) for (condition, arm, seed), row in cells.items()),
        impossible_at=impossible_at,
    )
    return Records(
        filled,
        pd.DataFrame(list(cells.values()), columns=list(CELL_COLUMNS)),
        pd.DataFrame(metrics, columns=list(METRIC_COLUMNS)),
        pd.DataFrame({name: [] for name in HISTORY_COLUMNS}),
        {row["metric"]: row["direction"] for row in rows if row["direction"]},
        (),
        infinite=frozenset(infinite),
        losses=losses,
    )


def _missing(
    cells: Mapping[CellKey, Any], manifest: Manifest, impossible: Collection[tuple[str, str]] | None
) -> dict[CellKey, tuple[Any, ...]]:
    """Cells without a row: seeds that an arm lacks and others have, and arms that lack all and were not impossible.

    In a sequential study arms may differ in seeds.
    """
    seeds = dict.fromkeys(seed for _, _, seed in cells)
    at = dict.fromkeys(key[:2] for key in cells)
    absent = {
        (condition, arm): None
        for condition in manifest.conditions
        for arm in manifest.arms
        if impossible is not None and (arm, condition) not in impossible and (condition, arm) not in at
    }
    wanted = [(*each, seed) for each in (absent if manifest.looks else {**at, **absent}) for seed in seeds]
    nothing = ("", MISSING, "no row in results.csv", *[math.nan] * 5, "", "", "", False, "", "")
    return {key: (*key, *nothing) for key in wanted if key not in cells}


def _with_stated(records: Records, manifest: Manifest, stated: Sequence[tuple[str, Any]]) -> Records:
    """The records with further facts about the study."""
    of: dict[str, list[Any]] = {}
    for kind, fact in stated:
        of.setdefault(kind, []).append(fact)
    reasons = {(arm, condition): reason for arm, condition, reason in of.get("impossible", [])}
    manifest = replace(
        manifest,
        longest_trained=next(iter(of.get("longest_trained", [])), None),
        impossible_at={where: reasons.get(where, why) for where, why in manifest.impossible_at.items()},
        fairness=tuple(map(ArmDifference.from_json, of.get("difference", []))),
        exact=tuple(dict.fromkeys([*manifest.exact, *next(iter(of.get("exact", [])), [])])),
        tuning=next(map(Tuning.from_json, of.get("tuning", [])), None),
        ledger=replace(manifest.ledger, stated=stated_claims(of.get("claim", []))),
    )
    cells = records.cells
    for arm, condition, total, non_position in of.get("parameters", []):
        here = (cells["arm"] == arm) & (cells["condition"] == condition)
        cells.loc[here, ["total", "non_position"]] = [float(total), float(non_position)]
    for arm, condition, tokens in of.get("tokens", []):
        cells.loc[(cells["arm"] == arm) & (cells["condition"] == condition), "tokens"] = float(tokens)
    return replace(
        records,
        manifest=manifest,
        evaluations=_by_cell(of.get("evaluated", [])),
        generated=bool(of.get("generated")),
        remarks=_by_cell(of.get("remark", [])),
        unreached=frozenset(
            (condition, arm, int(seed), metric)
            for arm, condition, seeds, metric in of.get("unreached", [])
            for seed in seeds
        ),
    )


def _by_cell(facts: Sequence[tuple[str, str, Sequence[int], Any]]) -> dict[CellKey, Any]:
    return {(condition, arm, seed): said for arm, condition, seeds, said in facts for seed in seeds}


def _condition(row: Mapping[str, str], manifest: Manifest) -> str:
    """The condition of the grid that a row of `results.csv` belongs to."""
    for name, values in manifest.conditions.items():
        if all(row[key] == value for key, value in values.items()):
            return name
    raise ValueError(f"a row has no condition of the grid: {dict(row)}")


ITEMS = "items.npz"
"""Beside `results.csv`: for each condition, arm and evaluation set the mean over seeds of the sums of each item."""
LARGEST_ITEMS = 300_000
"""Bytes of an `items.npz` that is published."""


def published_items(records: Records, looks: Sequence[Look] = ()) -> Items:
    """The items of a study under one name for each condition, arm and set.

    They are the mean over all seeds, and over those of a look, whose names say which, where these are others.
    """
    found: dict[str, Any] = {}
    for (condition, arm), means in records.items.items():
        every = _finished(records, condition, arm)
        known = set[int]()
        sets: dict[tuple[int, ...], list[list[int]]] = {every: []}
        for look in looks:
            known |= look.trials.keys()
            absent = {seed for at, name, seed in look.absent if (at, name) == (condition, arm)}
            seeds = (known if look.seeds is None else set(look.seeds)) & set(every) - absent
            sets.setdefault(tuple(sorted(seeds)), [sorted(seeds)])
        for chosen, named in sets.items():
            for name, rows in items_of(means, chosen).items():
                found[json.dumps([condition, arm, name, *named])] = rows
    return found


def _finished(records: Records, condition: str, arm: str) -> tuple[int, ...]:
    """The seeds with which trials of an arm finished."""
    cells = records.cells
    here = cells[(cells["arm"] == arm) & (cells["condition"] == condition) & (cells["status"] == FINISHED)]
    return tuple(sorted(map(int, here["seed"])))


def read_published_items(path: Path, records: Records) -> dict[tuple[str, str], ItemMeans]:
    """The items of each condition and arm; none where there is no file, or one that is damaged."""
    found: dict[tuple[str, str], dict[tuple[int, ...], dict[str, Any]]] = {}
    try:
        for key, rows in read_items(path).items():
            condition, arm, name, *named = json.loads(key)
            seeds = tuple(map(int, named[0])) if named else _finished(records, condition, arm)
            found.setdefault((str(condition), str(arm)), {}).setdefault(seeds, {})[str(name)] = rows
    except (ValueError, TypeError):
        return {}
    return {arm: dict(means) for arm, means in found.items()}


HISTORY = "history.csv"


def history_csv(records: Records) -> str | None:
    """`history.csv`: the study's metrics during training, one row a value; None if missing, or too much."""
    if records.histories.empty:
        return None
    frame = records.histories.assign(
        **{name: [to_cell(str(each)) for each in records.histories[name]] for name in ("condition", "arm", "metric")}
    )
    text = str(frame.to_csv(index=False, na_rep="nan", lineterminator="\n"))
    return text if len(text) <= LARGEST_HISTORY else None


def read_history_csv(path: Path) -> pd.DataFrame:
    """The histories in a `history.csv`; none where there is no such file. Raises ValueError and KeyError."""
    if not path.is_file():
        return pd.DataFrame({name: [] for name in HISTORY_COLUMNS})
    kinds = {**dict.fromkeys(HISTORY_COLUMNS, "str"), "seed": "int64", "step": "int64"}
    frame = pd.read_csv(path, dtype=kinds, keep_default_na=False)
    frame["value"] = frame["value"].astype(float)  # of a text to the last digit, which read_csv would not give
    for name in ("condition", "arm", "metric"):
        frame[name] = [from_cell(each) for each in frame[name]]
    return frame[list(HISTORY_COLUMNS)]
