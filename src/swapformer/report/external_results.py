"""Turns tables of results that were measured elsewhere into the records that reports are built of."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from swapformer.errors import UsageError, quote, suggest
from swapformer.numerals import read_number
from swapformer.report import number_format
from swapformer.report.records import CELL_COLUMNS, HISTORY_COLUMNS, METRIC_COLUMNS, Records
from swapformer.report.statistics.estimates import mean_estimate, unpaired_estimate
from swapformer.results.arms import Cell, arm_name
from swapformer.results.ledger import digest
from swapformer.results.manifest import Manifest
from swapformer.results.record import FINISHED, MISSING

DIRECTIONS = ("lower", "higher")
COLUMNS = ("arm", "seed", "metric", "value", "direction")
"""The columns of a table of results; without `metric` and `value`, each metric is a column of its own."""
LOST, STEPS, FILE = "swapformer: lost", "swapformer: steps", "swapformer: file"
"""Columns that say of a run why it did not end well (empty if it did, None where its source does not say), the last
step that it came to, or that each of its metrics came to, and the file that it is from."""
_HIDDEN: dict[str, Any] = {LOST: "", STEPS: math.nan, FILE: ""}
"""Those columns, with what they hold where nothing is known."""
EMPTY = ("lost", "unstarted")
_SUMMARIES = ("mean", "avg", "average", "median", "std", "sd", "stdev", "sem", "total", "sum")
"""What a spreadsheet writes in place of a seed under a table's runs."""
"""What a run whose value is empty may be."""


_METRIC, _VALUE = "swapformer: metric", "swapformer: value"
_WHOLE = re.compile(r"(\d+)\.0+", re.ASCII)
"""A whole number as pandas writes it where a column has holes."""


class _Absent:
    """The cell of a row that does not have a column at all."""

    def __str__(self) -> str:
        return ""


ABSENT = _Absent()
_KNOWN = {
    **dict.fromkeys(("loss", "nll", "perplexity", "ppl", "bpb", "bits", "error", "mae", "mse", "rmse"), "lower"),
    **dict.fromkeys(("accuracy", "acc", "match", "f1", "bleu", "auc", "reward"), "higher"),
}
"""The direction of a metric, by a word of its name."""
_NEUTRAL = frozenset(
    {"val", "valid", "validation", "dev", "test", "eval", "evaluation", "train", "training"}
    | {"final", "last", "mean", "avg", "average", "exact", "cross", "entropy"}
    | {"per", "token", "char", "character", "byte", "word"}
)
"""Words that leave the direction of a metric as it is. With any other word the direction must be said."""
_STATES = {
    **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded", "ok", "passed"), False),
    **dict.fromkeys(("crashed", "failed", "killed", "preempted", "preempting", "running", "pending"), True),
    **dict.fromkeys(("error", "aborted", "cancelled", "canceled", "timeout", "out_of_memory", "oom"), True),
    **dict.fromkeys(("interrupted", "diverged"), True),
}
"""What a column `state` or `status` says of a run → whether it was lost."""
_UNKNOWN = ("", *[math.nan] * 5, "", "", "", False, "", "")
"""What is not known of a run: from `reason` on, the columns of a cell."""
_NAMED = 4
"""Runs that a remark names."""
_WORTH = 0.7
"""Pairing is recommended where the first interval would be narrower than this share of what it is."""


@dataclass(frozen=True)
class Question:
    """The settings of a verdict on a table of results.

    Attributes:
        baseline: the arm that the others are compared with.
        metrics: metric → `lower` or `higher`, whichever is better; empty where its name or a column says so.
        margin: how much better than the baseline an arm must be in each metric, where no `claims` are given.
        claims: as in a study file; empty: each other arm is better than the baseline in each metric.
        paired: whether equal seeds of two arms mean equal data and weights.
        by: the columns that hold conditions; None for all others of a long table, and none of a wide one.
        columns: what columns of `COLUMNS` are called, where they are called otherwise.
        exact, ranges: as in a study file.
        empty: of `EMPTY`, what a run is whose value is empty: one that was lost costs its arm the verdict, as a
            diverged one does; one that was never started is left out.
    """

    baseline: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    margin: float = 0.0
    claims: Sequence[Mapping[str, Any]] = ()
    paired: bool = False
    by: Sequence[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    exact: Sequence[str] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    empty: str = EMPTY[0]


Values = Mapping[str, Mapping[str, float | None]]
"""Run, by its id → metric → value; None if it is no finite number."""


@dataclass(frozen=True)
class JudgedTable:
    """What a table of results holds.

    `remarks`: what should be known of it. `values`: what is judged; nothing of a run that is missing. `traits`: values
    that are not judged and are others for each run, by which runs are known again.
    """

    records: Records
    remarks: Sequence[str]
    values: Values
    traits: Values


def records_of(
    table: pd.DataFrame, asked: Question, name: str = "results", known: Values | None = None
) -> JudgedTable:  # fmt: skip
    """The records in a table, which has a row for each run (wide), or for each run and metric (long).

    `known`: the values of runs that were judged before, which keep their ids.

    Raises UsageError for what is wrong first: a column, a number, a doubled row, an arm, a metric without direction.
    """
    long, conditions = _long(table, asked)
    whole = long["seed"].map(_whole)
    if asked.paired or not long.assign(seed=whole).duplicated([*conditions, "arm", "seed", "metric"]).any():
        long["seed"] = whole  # so that a run keeps its name when it is judged paired
    arms = list(dict.fromkeys(long["arm"]))
    if asked.baseline not in arms:
        near = suggest(asked.baseline, arms)
        meant = near if "did you mean" in near else ""  # else it would list the arms again
        given = f"{quote(asked.baseline)} is none{meant}" if asked.baseline else "none is named"
        raise UsageError(f"--baseline must name one of the arms, {number_format.listed(_few(arms))}, but {given}")
    directions = _directions(long, asked)
    listed = isinstance(asked.exact, list | tuple)
    if unknown := [each for each in asked.exact if each not in directions] if listed else [asked.exact]:
        raise UsageError(
            f"`exact` must list metrics that are judged, such as [{next(iter(directions))}], but is or has "
            f"{quote(unknown[0])}{suggest(str(unknown[0]), directions)}"
        )
    if asked.empty not in EMPTY:
        raise UsageError(f"a run with an empty value must be one of {', '.join(EMPTY)}, not {quote(asked.empty)}")
    every, named = long, long["metric"].isin(list(directions))
    long = long[named & (long["value"].map(lambda each: each is not ABSENT) | (long[LOST] != ""))]
    if without := [arm for arm in arms if arm not in set(long["arm"])]:
        raise UsageError(
            f"each arm must have a value of what is judged, but {without[0]} has none of {', '.join(directions)}; "
            "leave its rows out, or name the metric as all files spell it"
        )
    long = pd.concat([long, _holes(long, every, conditions)], ignore_index=True)
    left_out = list(_left_out(long, every, conditions, list(directions)))
    # a run that crashed before its first evaluation has no value, and was lost all the same
    empty = long["value"].map(_text) == ""
    long = long[(long[LOST] != "") | ~empty | (asked.empty == EMPTY[0])].reset_index(drop=True)
    long["value"] = [
        math.nan if lost or not _text(value) else _number(value, row, long)
        for row, (value, lost) in enumerate(zip(long["value"], long[LOST], strict=True))
    ]
    _require_runs(long, conditions, asked.baseline, arms)
    _require_ranges(long, asked)
    manifest = _manifest(name, asked, arms, directions, long, conditions)
    cells: list[Any] = []
    metrics, infinite = [], set()
    values: dict[str, dict[str, float | None]] = {}
    traits, of_runs = {}, _traits(every[~named], conditions)
    for key, run in long.groupby([*conditions, "arm", "seed"], sort=False):
        *where, arm, label = map(str, key)
        pairs = list(zip(run["metric"], run["value"], strict=True))
        own = {str(metric): value if math.isfinite(value) else None for metric, value in pairs}
        trial, condition = _id(where, arm, label, own, known or {}, values), _condition(conditions, where)
        cell, values[trial] = (condition, arm, _seed(arm, label, asked.paired)), own
        traits[trial] = of_runs.get((*where, arm, label), {})
        cells.append((*cell, trial, FINISHED, "", float(run[STEPS].max()), *_UNKNOWN[2:]))
        for metric, value in pairs:
            if math.isfinite(value):
                metrics.append((*cell, trial, metric, value, math.nan))
            else:
                infinite.add((condition, arm, metric))
    for where, arm, label in _missing(long, conditions, arms, asked.paired):
        cells.append((_condition(conditions, where), arm, _seed(arm, label, asked.paired), "", MISSING, *_UNKNOWN))
        values[digest([*where, arm, label])] = {}
    records = Records(
        replace(
            manifest,
            seeds=tuple(dict.fromkeys(row[2] for row in cells)),
            cells=tuple(Cell(arm, seed, trial, condition) for condition, arm, seed, trial, *_ in cells),
        ),
        pd.DataFrame(cells, columns=list(CELL_COLUMNS)),
        pd.DataFrame(metrics, columns=list(METRIC_COLUMNS)),
        pd.DataFrame({name: [] for name in HISTORY_COLUMNS}),
        directions,
        (),
        infinite=frozenset(infinite),
        whole=True,
    )
    renamed = table.rename(columns={called: name for name, called in asked.columns.items()})
    pooled = _pooled(renamed, {*conditions, *directions})
    remarks = [*_unread_states(table, conditions), *left_out, *pooled, *_remarks(long, conditions, asked)]
    return JudgedTable(records, remarks, values, traits)


def _traits(others: pd.DataFrame, conditions: Sequence[str]) -> dict[tuple[str, ...], dict[str, float | None]]:
    """Of each run the values of metrics that are not judged, where no two runs share one: settings are no such."""
    found: dict[tuple[str, ...], dict[str, float | None]] = {}
    for metric, rows in others.groupby("metric", sort=False):
        try:
            numbers = [read_number(value) if _text(value) else math.nan for value in rows["value"]]
        except ValueError:
            continue
        known = [value for value in numbers if math.isfinite(value)]
        if len(set(known)) < len(known) or all(map(float.is_integer, known)):
            continue
        for key, value in zip(rows[[*conditions, "arm", "seed"]].itertuples(index=False), numbers, strict=True):
            if not math.isfinite(value):
                continue
            found.setdefault(tuple(map(str, key)), {})[str(metric)] = value
    return found


def _condition(keys: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))


def _few(names: Sequence[str]) -> list[str]:
    return [*names[:8], "…"] if len(names) > 8 else list(names)


def _long(table: pd.DataFrame, asked: Question) -> tuple[pd.DataFrame, list[str]]:
    """The table with a row for each run and metric, and the columns that hold conditions."""
    if asked.columns.keys() - set(COLUMNS):
        raise UsageError(f"columns can be called otherwise that are {', '.join(COLUMNS)}, not {sorted(asked.columns)}")
    for name in (*asked.columns.values(), *(asked.by or ())):
        if name not in table.columns:
            raise UsageError(f"there is no column {quote(name)}{suggest(name, list(map(str, table.columns)))}")
    replaced = asked.columns.keys() - set(asked.columns.values())
    table = table.drop(columns=[name for name in table.columns if name in replaced])
    own = [name for name in table.columns if name not in _HIDDEN]
    table = _with_ends(table.rename(columns={called: name for name, called in asked.columns.items()}), asked.by or ())
    for name in ("arm", "seed"):
        if name not in table.columns:
            raise UsageError(
                f"the results must have a column `{name}`, but have {', '.join(map(str, own))}; "
                f"--columns {name}=NAME says what it is called"
            )
        table[name] = table[name].map(_word)
        if name == "seed" and (total := table[name].str.lower().isin(_SUMMARIES)).any():
            raise UsageError(
                f"each row must be a run, but row {int(total.to_numpy().argmax()) + 1} is a summary of others, "
                f"{quote(table[name][total].iloc[0])}; leave it out"
            )
        if (empty := table[name] == "").any():
            raise UsageError(f"each row must name its {name}, but row {int(empty.to_numpy().argmax()) + 1} has none")
    if {"metric", "value"} <= set(table.columns):
        others = [str(name) for name in table.columns if name not in (*COLUMNS, *_HIDDEN)]
        by = list(asked.by) if asked.by is not None else [n for n in others if table[n].map(_word).nunique() > 1]
        long = table
    else:
        by = list(asked.by or ())
        left = [name for name in table.columns if name not in ("arm", "seed", "direction", *by, *_HIDDEN)]
        ways = ["direction"] if "direction" in table.columns else []
        if ways and len(asked.metrics) > 1 and not all(asked.metrics.values()):
            raise UsageError(
                "`direction` must be of one metric where each has a column, but several are judged; say which way is "
                f"better by --metric {next(iter(asked.metrics))}=lower or =higher, and so on"
            )
        # a metric may itself be called `metric` or `value`
        long = table.melt(["arm", "seed", *by, *ways, *_HIDDEN], left, _METRIC, _VALUE)
        long = long.rename(columns={_METRIC: "metric", _VALUE: "value"})
    for column in (*by, "metric"):
        long[column] = long[column].map(_word)
    # a run is lost if any of its rows says so, whatever metric that is of
    said = long.groupby([*by, "arm", "seed"], sort=False)[LOST].transform(lambda rows: next(filter(None, rows), ""))
    long[LOST] = [other if own == "" else own for own, other in zip(long[LOST], said, strict=True)]
    pairs = zip(long[STEPS], long["metric"], strict=True)
    steps = [each.get(metric, math.nan) if isinstance(each, Mapping) else each for each, metric in pairs]
    return _with_stops(long.assign(**{STEPS: np.array(steps, float)}), by), by


def _with_stops(long: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """The table in which a run that stops before another of its arm is lost, where its source does not tell its end.

    What counts is the last step of the metric itself: a run may go on while its evaluation has stopped.
    """
    last = long.groupby([*conditions, "arm", "metric"], sort=False)[STEPS].transform("max")
    ends = []
    for lost, step, furthest, metric in zip(long[LOST], long[STEPS], last, long["metric"], strict=True):
        if lost is not None:
            ends.append(lost)
        elif math.isnan(step) and not math.isnan(furthest):
            ends.append(f"it has no {metric}, others of its arm have")
        else:
            ends.append(f"it stops at step {step:g}, others of its arm at {furthest:g}" if step < furthest else "")
    return long.assign(**{LOST: ends})


def _with_ends(table: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """The table with columns that say how each run ended; a column of states, as W&B writes it, is read as one."""
    for name in [name for name in table.columns if _says_end(name) and name not in conditions]:
        states = ["" if _text(state).lower() in ("nan", "none") else _text(state).lower() for state in table[name]]
        if not any(state in _STATES for state in states):
            continue  # it says something else
        if unknown := [state for state in states if state not in ("", *_STATES)]:
            raise UsageError(
                f"what `{name}` says of a run must be known, such as finished or crashed, but one has "
                f"{quote(unknown[0])}; rename the state, or the column if it says something else"
            )
        before = table[LOST] if LOST in table.columns else [""] * len(table)
        here = (f"its {name} is {state}" if _STATES.get(state) else "" for state in states)
        # lost if any source says so; None where no source says anything
        lost = [known or new or known for known, new in zip(before, here, strict=True)]
        table = table.drop(columns=name).assign(**{LOST: lost})
    return table.assign(**{name: value for name, value in _HIDDEN.items() if name not in table.columns})


def _says_end(column: object) -> bool:
    """Whether a column may say how runs ended, by its name: `state`, `run_state`, `extra.status`."""
    return re.split(r"[/_. -]", str(column).lower())[-1] in ("state", "status")


def _text(value: object) -> str:
    """A cell's text; empty for one that holds nothing."""
    return "" if value is None or value is pd.NA else str(value).strip()


def _word(value: object) -> str:
    """A cell as a name: whole numbers without a decimal point, and empty where it holds nothing."""
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else str(int(value)) if float(value).is_integer() else str(value)
    text = _text(value)
    return found[1] if (found := _WHOLE.fullmatch(text)) else text


def _number(value: object, row: int, long: pd.DataFrame) -> float:
    try:
        return read_number(value)
    except ValueError:
        where = f"{long['metric'][row]} of {long['arm'][row]} with seed {long['seed'][row]}"
        raise UsageError(f"a value must be a number, but {where} is {quote(str(value))}") from None


def _directions(long: pd.DataFrame, asked: Question) -> dict[str, str]:
    """Each judged metric and which direction of it is better."""
    known = list(dict.fromkeys(map(str, long["metric"])))
    if not asked.metrics and len(known) != 1:
        raise UsageError(f"--metric must name what is judged, one or several of {', '.join(_few(known)) or 'none'}")
    for name in asked.metrics:
        if name not in known:
            raise UsageError(f"there is no metric {quote(name)}{suggest(name, known)}")
    found = {}
    for metric in asked.metrics or known:
        column = long.loc[long["metric"] == metric, "direction"] if "direction" in long.columns else ()
        said = {asked.metrics[metric]} if asked.metrics.get(metric) else {_word(each) for each in column} - {""}
        if len(said) > 1:
            raise UsageError(f"one direction of {metric} must be better, but its rows say {' and '.join(sorted(said))}")
        found[metric] = next(iter(said), _direction_of(metric))
        if found[metric] not in DIRECTIONS:
            given = f", not {quote(found[metric])}" if found[metric] else ""
            raise UsageError(
                f"the better direction of {metric} must be said{given}: --metric {metric}=lower or =higher"
            )
    return found


def _direction_of(metric: str) -> str:
    """The better direction of a metric whose name has known words only; empty for any other."""
    words = re.split(r"[/_. -]", metric.split("@")[0].lower())
    ways = {_KNOWN[word] for word in words if word in _KNOWN}
    return ways.pop() if len(ways) == 1 and all(word in _KNOWN or word in _NEUTRAL for word in words) else ""


def _holes(judged: pd.DataFrame, every: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """An empty row for each run of a table that lacks a metric which is judged, of which its file has values.

    Such a run was lost, as one whose cell is empty: it ended without what is judged. Files of which each holds one run
    are one table; other files without a metric are of other metrics.
    """
    run = [*conditions, "arm", "seed"]
    held = every.drop_duplicates([FILE, *run])
    single = held[FILE].map(held[FILE].value_counts()) == 1
    spoken = set(judged[[FILE, "metric"]].itertuples(index=False, name=None))
    there = set(judged[[*run, "metric"]].itertuples(index=False, name=None))
    places = dict.fromkeys(judged[[*conditions, "metric"]].itertuples(index=False, name=None))
    found = []
    for row, alone in zip(held.to_dict("records"), single, strict=True):
        for *where, metric in places:
            own = tuple(row[name] for name in run)
            if list(own[:-2]) == where and (*own, metric) not in there and (alone or (row[FILE], metric) in spoken):
                there.add((*own, metric))
                found.append({**row, "metric": metric, "value": "", STEPS: math.nan})
    return pd.DataFrame(found, columns=every.columns, dtype=object).astype({STEPS: float})


def _left_out(
    judged: pd.DataFrame, every: pd.DataFrame, conditions: Sequence[str], metrics: Sequence[str]
) -> Iterator[str]:
    """A remark on each file whose runs have nothing that is judged, and are taken for those of something else."""
    run = [*conditions, "arm", "seed"]
    known = set(judged[run].itertuples(index=False, name=None))
    held = every.drop_duplicates([FILE, *run])
    away = held[[key not in known for key in held[run].itertuples(index=False, name=None)]]
    for file, rows in away.groupby(away[FILE].map(str), sort=False):
        count, of = len(rows), f" of {file}" if file else ""
        what = f"1 run{of} has" if count == 1 else f"{count} runs{of} have"
        yield f"{what} no {' and no '.join(metrics)}: {'it is' if count == 1 else 'they are'} left out"


def _require_ranges(long: pd.DataFrame, asked: Question) -> None:
    """Refuse a value that lies outside what the question says of its metric."""
    for metric, (low, high) in asked.ranges.items():
        wrong = long[(long["metric"] == metric) & ((long["value"] < low) | (long["value"] > high))]
        if len(wrong):
            row = wrong.iloc[0]
            raise UsageError(
                f"`ranges` says that {metric} lies from {low:g} to {high:g}, but {row['arm']} has {row['value']:g} "
                f"with seed {row['seed']}; correct it"
            )


def _require_runs(long: pd.DataFrame, conditions: Sequence[str], baseline: str, arms: Sequence[str]) -> None:
    """Refuse runs with two values of a metric, arms of one run each, and arms that never meet the baseline."""
    doubled = long.duplicated([*conditions, "arm", "seed", "metric"])
    if doubled.any():
        row = long[doubled].iloc[0]
        where = "".join(f", {name} {row[name]}" for name in conditions)
        raise UsageError(
            f"each run must have one value of a metric, but {row['arm']} with seed {row['seed']}{where} has several of "
            f"{row['metric']}; --by names columns that tell runs apart"
        )
    if long.groupby([*conditions, "arm"])["seed"].nunique().max() < 2:
        raise UsageError("an arm must have at least 2 seeds, better 5, to show how much they differ, but each has one")
    places = {arm: set(map(tuple, rows[list(conditions)].to_numpy())) for arm, rows in long.groupby("arm")}
    for arm in arms:
        if not places[arm] & places[baseline]:
            raise UsageError(
                f"an arm must have runs where the baseline has, but {arm} has none in any condition of {baseline}; "
                f"name the columns that are conditions by --by, others than {', '.join(conditions)}"
            )


def _manifest(
    name: str, asked: Question, arms: Sequence[str], directions: Mapping[str, str], long: pd.DataFrame,
    conditions: Sequence[str],
) -> Manifest:  # fmt: skip
    rows = long[list(conditions)].drop_duplicates().itertuples(index=False) if conditions else [()]
    places = [dict(zip(conditions, map(str, row), strict=True)) for row in rows]
    claims = list(asked.claims) or [
        {"text": f"{arm} is better than {asked.baseline} in {metric}",
         "better": {"arm": arm, "than": asked.baseline, "metric": metric, "margin": asked.margin}}
        for metric in directions for arm in arms if arm != asked.baseline
    ]  # fmt: skip
    if not claims:
        raise UsageError(f"{asked.baseline} must be compared with another arm, but there is no other")
    return Manifest(
        name=name, scale="", question="", baseline=asked.baseline, metrics=tuple(directions),
        arms=dict.fromkeys(arms, ()), seeds=(), claims=tuple(claims), cells=(),
        conditions={_condition(list(each), list(each.values())): each for each in places},
        exact=tuple(asked.exact), ranges=asked.ranges,
    )  # fmt: skip


def _whole(label: str) -> str:
    """The label of a seed, without leading zeros if it is a number: `01` is `1`."""
    return str(int(label)) if label.isascii() and label.isdecimal() and len(label) < 16 else label


def _seed(arm: str, label: str, paired: bool) -> int:
    """A number that is equal for runs that are compared with each other, whatever else is in the table."""
    if paired and label.isascii() and label.isdecimal() and len(label) < 16:
        return int(label)
    return int(digest([label] if paired else [arm, label])[:15], 16)


def _missing(
    long: pd.DataFrame, conditions: Sequence[str], arms: Sequence[str], paired: bool
) -> Iterator[tuple[list[str], str, str]]:
    """Condition, arm and seed of the runs that an arm lacks: others have that seed, and unless paired, share others."""
    for key, part in long.groupby(list(conditions), sort=False) if conditions else [((), long)]:
        held = {arm: set(part.loc[part["arm"] == arm, "seed"]) for arm in arms}
        for arm in arms:
            like = [seeds for seeds in held.values() if paired or not held[arm] or seeds & held[arm]]
            for label in sorted(set().union(*like) - held[arm]):
                yield list(map(str, key)), arm, label


def _unread_states(table: pd.DataFrame, conditions: Sequence[str]) -> Iterator[str]:
    """A remark on each column that may say how runs ended, in words that are not known."""
    for name in table.columns:
        words = [word for each in table[name] if (word := _text(each)) and _says_end(name)]
        if words and name not in conditions and not any(word.lower() in _STATES for word in words):
            shown = number_format.listed(_few([quote(word) for word in dict.fromkeys(words)]))
            yield f"`{name}` is not read: none of its words says how a run ended ({shown}); finished or crashed would"


def _pooled(table: pd.DataFrame, known: Collection[str]) -> Iterator[str]:
    """A remark on each column by which runs of an arm fall into groups, though it is no condition."""
    if {"metric", "value"} <= set(table.columns):
        return  # there each column that differs is one, unless --by says otherwise
    for name in map(str, table.columns):
        if name in ("arm", "seed", "direction", *_HIDDEN, *known):
            continue
        sizes = table[name].map(_word).groupby(table["arm"]).value_counts()
        groups = sizes.groupby(level=0).agg(["min", "size"])
        if ((groups["min"] > 1) & (groups["size"] > 1)).any():
            yield f"runs of an arm differ in {name}, over which they are averaged; --by {name} judges each by itself"


def _remarks(long: pd.DataFrame, conditions: Sequence[str], asked: Question) -> Iterator[str]:
    """Remarks on the table, a line each."""
    if len(lost := long[long[LOST] != ""].drop_duplicates([*conditions, "arm", "seed"])):
        named = [
            f"{arm} with seed {seed} ({why})"
            for arm, seed, why in zip(*(lost[n] for n in ("arm", "seed", LOST)), strict=False)
        ]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        yield f"lost: {'; '.join(named[:_NAMED])}{more}; a run that did not end well counts as one that diverged"
    for key, run in long.groupby([*conditions, "metric", "arm"], sort=False):
        *where, metric, arm = map(str, key)
        name = arm_name(arm, _condition(conditions, where))
        if len(run) > 2 and run["value"].nunique() == 1 and metric not in asked.exact:
            yield f"all {len(run)} seeds of {name} have the same {metric}, {run['value'].iloc[0]:g}: is the seed set?"
    if asked.paired:
        return
    _, part = next(iter(long.groupby([*conditions, "metric"], sort=False)))
    values = part.pivot(index="seed", columns="arm", values="value")
    for arm in [each for each in values.columns if each != asked.baseline and asked.baseline in values.columns]:
        x, y = values[[arm, asked.baseline]].dropna().to_numpy(float).T
        if len(x) < 3 or not np.isfinite([x, y]).all():
            continue
        paired, apart = (high - low for low, high in (mean_estimate(x - y).limits, unpaired_estimate(x, y).limits))
        if paired < _WORTH * apart:
            yield (
                f"{arm} and {asked.baseline} share seeds: paired by them, the interval of their difference would be "
                f"{paired / apart:.0%} as wide; say --paired if equal seeds mean equal data and weights"
            )
            return


def _id(
    where: Sequence[str], arm: str, label: str, own: Mapping[str, float | None], known: Values, taken: Collection[str]
) -> str:
    """What a run is known by: its conditions, arm and label.

    A column is a condition only once it holds two values. So a run that was judged before, with the same values and
    without some of these conditions, keeps the id that it had, unless another run of the table has `taken` that.
    """
    now = digest([*where, arm, label])
    if now in known:
        return now
    for left in (kept for count in range(len(where)) for kept in combinations(where, count)):
        there = known.get(before := digest([*left, arm, label]), {})
        both = own.keys() & there.keys()
        if both and before not in taken and all(own[metric] == there[metric] for metric in both):
            return before
    return now
