"""Turns tables of results that were measured elsewhere into the records that reports are built of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
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
LOST, STEPS = "swapformer: lost", "swapformer: steps"
"""Columns that say of a run why it did not end well (empty if it did, None where its source does not say), and the last
step that it came to, or that each of its metrics came to."""
EMPTY = ("lost", "unstarted")
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


def records_of(
    table: pd.DataFrame, asked: Question, name: str = "results",
    known: Mapping[str, Mapping[str, float | None]] | None = None,
) -> tuple[Records, list[str], dict[str, dict[str, float | None]]]:  # fmt: skip
    """The records in a table, what should be known of it, and the values of each run by its id; none of a missing one.

    `known`: the values of runs that were judged before, which keep their ids.

    A value that is no finite number is None.

    It has a row for each run (wide), or for each run and metric (long).

    Raises UsageError for what is wrong first: a column, a number, a doubled row, an arm, a metric without direction.
    """
    long, conditions = _long(table, asked)
    if asked.paired:
        long["seed"] = long["seed"].map(_whole)
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
    rows = zip(long["metric"], long["value"], long[LOST], strict=True)
    dropped = ("",) if asked.empty == "unstarted" else ()
    # a run that crashed before its first evaluation has no value, and was lost all the same
    kept = [
        name in directions and (bool(lost) or (value is not ABSENT and _text(value) not in dropped))
        for name, value, lost in rows
    ]
    long = long[kept].reset_index(drop=True)
    long["value"] = [
        math.nan if lost or not _text(value) else _number(value, row, long)
        for row, (value, lost) in enumerate(zip(long["value"], long[LOST], strict=True))
    ]
    if without := [arm for arm in arms if arm not in set(long["arm"])]:
        raise UsageError(
            f"each arm must have a value of what is judged, but {without[0]} has none of {', '.join(directions)}; "
            "leave its rows out, or name the metric as all files spell it"
        )
    _require_runs(long, conditions, asked.baseline, arms)
    manifest = _manifest(name, asked, arms, directions, long, conditions)
    cells: list[Any] = []
    metrics, infinite = [], set()
    values: dict[str, dict[str, float | None]] = {}
    for key, run in long.groupby([*conditions, "arm", "seed"], sort=False):
        *where, arm, label = map(str, key)
        pairs = list(zip(run["metric"], run["value"], strict=True))
        own = {str(metric): value if math.isfinite(value) else None for metric, value in pairs}
        trial, condition = _id(where, arm, label, own, known or {}), _condition(conditions, where)
        cell, values[trial] = (condition, arm, _seed(arm, label, asked.paired)), own
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
    return records, list(_remarks(long, conditions, asked)), values


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
    table = table.drop(columns=[name for name in asked.columns if name in table.columns], errors="ignore")
    own = [name for name in table.columns if name not in (LOST, STEPS)]
    table = _with_ends(table.rename(columns={called: name for name, called in asked.columns.items()}), asked.by or ())
    for name in ("arm", "seed"):
        if name not in table.columns:
            raise UsageError(
                f"the results must have a column `{name}`, but have {', '.join(map(str, own))}; "
                f"--columns {name}=NAME says what it is called"
            )
        table[name] = table[name].map(_word)
        if (empty := table[name] == "").any():
            raise UsageError(f"each row must name its {name}, but row {int(empty.to_numpy().argmax()) + 1} has none")
    if {"metric", "value"} <= set(table.columns):
        others = [str(name) for name in table.columns if name not in (*COLUMNS, LOST, STEPS)]
        by = list(asked.by) if asked.by is not None else [n for n in others if table[n].map(_word).nunique() > 1]
        long = table
    else:
        by = list(asked.by or ())
        left = [name for name in table.columns if name not in ("arm", "seed", "direction", *by, LOST, STEPS)]
        # a metric may itself be called `metric` or `value`
        long = table.melt(["arm", "seed", *by, LOST, STEPS], left, _METRIC, _VALUE)
        long = long.rename(columns={_METRIC: "metric", _VALUE: "value"})
    for column in (*by, "metric"):
        long[column] = long[column].map(_word)
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
    for name in [name for name in table.columns if str(name).lower() in ("state", "status") and name not in conditions]:
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
    own: dict[str, Any] = {LOST: "", STEPS: math.nan}
    return table.assign(**{name: value for name, value in own.items() if name not in table.columns})


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
        said = {asked.metrics[metric]} if asked.metrics.get(metric) else {str(each) for each in column if each}
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
    where: Sequence[str], arm: str, label: str, own: Mapping[str, float | None],
    known: Mapping[str, Mapping[str, float | None]],
) -> str:  # fmt: skip
    """What a run is known by: its conditions, arm and label.

    A column is a condition only once it holds two values. So a run that was judged before, with the same values and
    without some of these conditions, keeps the id that it had.
    """
    now = digest([*where, arm, label])
    if now in known:
        return now
    for left in (kept for count in range(len(where)) for kept in combinations(where, count)):
        there = known.get(before := digest([*left, arm, label]), {})
        both = own.keys() & there.keys()
        if both and all(own[metric] == there[metric] for metric in both):
            return before
    return now
