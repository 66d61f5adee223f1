"""Comparison of two studies: the verdicts and settings of each, and paired differences between their arms.

Trials of two studies are paired by seed only where nothing but the study tells them apart: the same environment class,
data, budget and results epoch. Where one of them differs, it is named, and there is no difference. How an arm was set
is what the configurations of its trials say, whatever chose it: overrides, tuning or matching.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from swapformer.report import number_format
from swapformer.report.derive import Derivation, derivations, ways_of
from swapformer.report.figures.figure_data import figure_data
from swapformer.report.records import CellKey, Records, read
from swapformer.report.statistics.arm_summary import ArmRow, Summary
from swapformer.report.statistics.claim_fields import Term
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.estimates import mean_estimate
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.grid import GridVerdict, grid_verdicts
from swapformer.report.statistics.kept_looks import record_looks
from swapformer.report.statistics.sequential import judge_all
from swapformer.results.arms import ArmCondition, arm_name
from swapformer.results.config import differences, read_config
from swapformer.results.manifest import Manifest

SAME = {"environment": "environment", "data": "data", "budget": "budget", "epoch": "results epoch"}
"""What two trials must share to be paired: column of the cells → in words."""
MEASURED_ON = ("task.", "eval.final_batches")
"""Settings under which two studies measure on different things, though the data be the same."""
NOT_COMPARED = ("runs_dir", "logger", "seed")
"""Keys of a config that say where a trial is stored and shown, or name its seed, not what it is."""
TRIAL_SEED = "the seed"
"""The value of `data_seed` where it is not set: each trial draws its batches by its own seed."""
MAX_NAMED = 6
"""How many differences of an arm a warning names."""
Settings = Mapping[str, tuple[Any, Any]]
"""Key → its value in each of two configurations."""


@dataclass(frozen=True)
class JudgedStudy:
    """One of two compared studies, judged; `rows` are by arm and condition, `evidence` by condition."""

    label: str
    runs_dir: Path
    records: Records
    claims: Sequence[GridVerdict]
    rows: Mapping[ArmCondition, ArmRow]
    evidence: Mapping[str, Evidence]

    @property
    def manifest(self) -> Manifest:
        return self.records.manifest

    def configs(self, arm: str, condition: str) -> dict[int, dict[str, Any]]:
        """The configurations that trials of an arm have left, by seed."""
        cells = [each for each in self.manifest.cells if (each.arm, each.condition) == (arm, condition)]
        found = {each.seed: read_config(self.runs_dir / "trials" / each.trial) for each in cells}
        return {seed: config for seed, config in found.items() if config}


@dataclass(frozen=True)
class Difference:
    """B − A of one arm in one metric over the seeds that may be paired, with its 95 % t interval.

    `apart`: how many common seeds may not, by what differs; `same`: how many are one and the same trial.
    """

    value: float
    lower: float
    upper: float
    n: int
    apart: Mapping[str, int]
    same: int

    @property
    def text(self) -> str:
        """The difference, or the reason why it is unknown."""
        if self.n:
            same = f", {self.same} of {self.n} are the same trial" if self.same else ""
            ends = number_format.interval_text(self.value, self.lower, self.upper, signed=True)
            return f"{ends} ({self.n} seeds{same})"
        if self.apart:
            return f"not paired: other {number_format.listed(list(self.apart))}"
        return "no value in common"


@dataclass(frozen=True)
class ArmPair:
    """An arm that both studies have, in one condition; `otherwise`: how it was set, beyond what all arms share."""

    arm: str
    condition: str
    otherwise: Settings
    metrics: Mapping[str, tuple[Summary, Summary, Difference]]

    @property
    def name(self) -> str:
        """The arm with its condition."""
        return arm_name(self.arm, self.condition)


@dataclass(frozen=True)
class ClaimPair:
    """A claim with its verdict in each study, None where it is not made; `reworded`: same words, other content."""

    text: str
    a: str | None
    b: str | None
    reworded: bool = False

    @property
    def changed(self) -> bool:
        """Whether both studies judge it, and not alike."""
        return self.a is not None and self.b is not None and self.a != self.b


@dataclass(frozen=True)
class Versus:
    """The comparison of two studies; `config`: the settings in which their baselines differ."""

    a: JudgedStudy
    b: JudgedStudy
    metrics: tuple[str, ...]
    claims: tuple[ClaimPair, ...]
    pairs: tuple[ArmPair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    config: Settings
    warnings: tuple[str, ...]


def judge_study(label: str, study_dir: Path, runs_dir: Path) -> JudgedStudy:
    """A study, judged as its own report does. Raises UsageError where its manifest cannot be read."""
    records = read(study_dir, runs_dir)
    claims = claims_of(records.manifest)
    records = record_looks(study_dir, runs_dir, claims, records)
    found = figure_data(records, claims)
    rows = {(row.arm, at): row for at, data in found.items() for row in data.rows}
    evidence = {at: data.evidence for at, data in found.items()}
    return JudgedStudy(label, runs_dir, records, grid_verdicts(claims, judge_all(claims, records)), rows, evidence)


def compare(a: JudgedStudy, b: JudgedStudy) -> Versus:
    """The whole comparison of two studies."""
    shared = tuple(metric for metric in a.manifest.metrics if metric in b.manifest.metrics)
    metrics = tuple(metric for metric in shared if not _is_other_number(metric, a, b))
    config = differences(*map(_baselines, (a, b)))
    apart = {at: _set_otherwise(a, b, *at) for at in a.rows if at in b.rows}
    apart = {at: {key: pair for key, pair in of.items() if config.get(key) != pair} for at, of in apart.items()}
    keys = dict.fromkeys(key for of in (config, *apart.values()) for key in of)
    measured = [key for key in keys if key.startswith(MEASURED_ON)]
    together = join_cells(a.records, b.records, bool(measured))
    pairs = []
    for at, otherwise in apart.items():
        compared = {}
        for m in metrics:
            found = _opened(paired_difference(together, *at, m), at[0], m, a.evidence[at[1]], b.evidence[at[1]])
            compared[m] = a.rows[at].summaries[m], b.rows[at].summaries[m], found
        pairs.append(ArmPair(*at, otherwise, compared))
    only_a, only_b = (
        tuple(arm_name(*at) for at in one.rows if at not in other.rows) for one, other in ((a, b), (b, a))
    )
    others = [metric for metric in shared if metric not in metrics]
    warnings = [*_warnings(together, a, b, measured, others), *(_otherwise(*at, of) for at, of in apart.items() if of)]
    return Versus(a, b, metrics, _claim_pairs(a, b), tuple(pairs), only_a, only_b, config, tuple(warnings))


def _is_other_number(metric: str, a: JudgedStudy, b: JudgedStudy) -> bool:
    """Whether a derived metric is not the same number of equal trials in both studies.

    A time to a target in seconds or operations is cut off at the least that a trial of its own study took.
    """

    def ways(name: str, known: Mapping[str, Derivation]) -> list[Any]:
        """How it is derived, and in the same manner all that it is derived from."""
        if name not in known:
            return []
        return [dict(known[name].way), *(way for each in known[name].inputs for way in ways(each, known))]

    one, other = (
        ways(metric, {each.name: each for each in derivations(ways_of(study.manifest.derive, study.manifest.claims))})
        for study in (a, b)
    )
    return one != other or any(way.get("unit") in ("operations", "seconds") for way in one)


def _compared(config: Mapping[str, Any], trials: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """A configuration without what is not compared; `trials` are those of the same arm."""
    found = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    if "data_seed" in found and all(each.get("data_seed") == each.get("seed") for each in (config, *trials)):
        found["data_seed"] = TRIAL_SEED
    task = found.get("task")
    if isinstance(task, dict) and "batch_size" in task:  # what older trials were evaluated in
        found["task"] = {**task, "eval_batch_size": task.get("eval_batch_size") or task["batch_size"]}
    return found


def _baselines(one: JudgedStudy) -> dict[str, Any]:
    """The settings of a study's baseline, which its manifest has."""
    manifest = one.manifest
    trials = one.configs(manifest.baseline, next(iter(manifest.conditions)))
    return _compared(manifest.shared_config, trials.values())


def _set_otherwise(a: JudgedStudy, b: JudgedStudy, arm: str, condition: str) -> Settings:
    """The settings of an arm that differ between two studies, by trials of one seed where there are any.

    Where a study has no trial with a configuration, its overrides say what is known.
    """
    here, there = (one.configs(arm, condition) for one in (a, b))
    if here and there:
        seeds = next(((seed, seed) for seed in here if seed in there), (next(iter(here)), next(iter(there))))
        one, other = (_compared(of[seed], of.values()) for of, seed in zip((here, there), seeds, strict=True))
        return differences(one, other)
    given = []
    for study in (a, b):
        pairs = (text.lstrip("+~").partition("=") for text in study.manifest.arms[arm])
        given.append({key.replace("/", "."): value for key, _, value in pairs})
    return {f"{key}." if key == "task" else key: pair for key, pair in differences(given[0], given[1]).items()}


def setting_text(value: Any) -> str:
    """The value of a setting as text."""
    return value if isinstance(value, str) else json.dumps(value)


def _otherwise(arm: str, condition: str, settings: Settings) -> str:
    """A sentence on the settings of an arm that differ."""
    named = [f"{key} {setting_text(one)} against {setting_text(other)}" for key, (one, other) in settings.items()]
    more = f"; and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return f"{arm_name(arm, condition)} was set otherwise: {'; '.join(named[:MAX_NAMED])}{more}."


def _by_text(study: JudgedStudy) -> dict[tuple[str, int], GridVerdict]:
    """The verdicts by the text of their claim, and which of equal texts it is."""
    found: dict[tuple[str, int], GridVerdict] = {}
    for each in study.claims:
        found[each.claim.text, sum(text == each.claim.text for text, _ in found)] = each
    return found


def _claim_pairs(a: JudgedStudy, b: JudgedStudy) -> tuple[ClaimPair, ...]:
    first, second = map(_by_text, (a, b))
    found = []
    for text, number in dict.fromkeys([*first, *second]):
        one, other = first.get((text, number)), second.get((text, number))
        reworded = one is not None and other is not None and one.claim != other.claim
        a_outcome, b_outcome = (None if each is None else each.outcome for each in (one, other))
        found.append(ClaimPair(text, a_outcome, b_outcome, reworded))
    return tuple(found)


def _warnings(
    together: pd.DataFrame, a: JudgedStudy, b: JudgedStudy, measured: Sequence[str], others: Sequence[str]
) -> list[str]:
    """The settings that keep trials from being paired, with both values; and what else must be known."""
    found = []
    for column, words in SAME.items():
        values = [", ".join(sorted(set(together[f"{column}_{name}"]))) for name in "ab"]
        if len(together) and (together[f"{column}_a"] != together[f"{column}_b"]).any():
            shown = [value[:12] if column == "data" else value for value in values]
            found.append(f"Other {words}: {shown[0]} against {shown[1]}. Such trials are not paired.")
    if others:
        found.append(
            f"Not the same number in both: {', '.join(others)}. What is derived otherwise, or cut off at the end of "
            "each study's own trials, has no difference."
        )
    if measured:
        found.append(f"They measure on different things ({', '.join(measured)}), so no trials are paired.")
    if not len(together) and set(a.rows) & set(b.rows):
        found.append("Arms of the same name have no finished seed in common, so no trials are paired.")
    if a.manifest.question and b.manifest.question and a.manifest.question != b.manifest.question:
        found.append("They ask different questions.")
    if a.manifest.baseline != b.manifest.baseline:
        found.append(
            f"Their baselines are {a.manifest.baseline} and {b.manifest.baseline}: Δ is to another arm in each."
        )
    for one in (a, b):
        lost = [arm_name(*at) for at, row in one.rows.items() if row.counts.get("diverged")]
        if lost:
            found.append(f"In {one.label}, trials of {', '.join(lost)} diverged: what is over the others flatters.")
    return found


def join_cells(a: Records, b: Records, other_measure: bool) -> pd.DataFrame:
    """The cells that both studies finished, by arm, condition and seed, with what tells them apart in `apart`."""
    keys = ["arm", "condition", "seed"]
    tables = []
    for records in (a, b):
        cells = records.cells[records.cells["status"] == "finished"]
        steps, tokens = (cells[name].map(number_format.large) for name in ("steps", "tokens"))
        budget = steps + " steps, " + tokens + " tokens"
        tables.append(cells.assign(budget=budget)[[*keys, "trial", *SAME]])
    together = tables[0].merge(tables[1], on=keys, suffixes=("_a", "_b"))
    wrong = {words: together[f"{column}_a"] != together[f"{column}_b"] for column, words in SAME.items()}
    named: list[CellKey] = list(together[["condition", "arm", "seed"]].itertuples(index=False, name=None))
    others = [_other_items(a.evaluations.get(cell, {}), b.evaluations.get(cell, {})) for cell in named]
    wrong["data"] |= pd.Series([other_measure or other for other in others], index=together.index, dtype=bool)
    apart = [[words for words, column in wrong.items() if column[index]] for index in together.index]
    for name, records in (("a", a), ("b", b)):
        values = records.metrics.pivot_table(index=keys, columns="metric", values="value")
        together = together.join(values.add_suffix(f"_{name}"), on=keys)
    return together.assign(apart=pd.Series(apart, index=together.index, dtype=object))


def _other_items(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two trials are known to have been evaluated on other items."""
    return any(one[name] != other[name] for name in one.keys() & other.keys())


def _opened(difference: Difference, arm: str, metric: str, a: Evidence, b: Evidence) -> Difference:
    """The difference b − a, with an end open where it would flatter a side that lost trials, as within a study."""
    sides = a.flattering_limits([Term(-1.0, arm, metric)]), b.flattering_limits([Term(1.0, arm, metric)])
    below, above = (any(side) for side in zip(*sides, strict=True))
    lower, upper = -math.inf if below else difference.lower, math.inf if above else difference.upper
    return replace(difference, lower=lower, upper=upper)


def paired_difference(together: pd.DataFrame, arm: str, condition: str, metric: str) -> Difference:
    """The difference of an arm in a metric, in one condition, from the cells that `join_cells` gave."""
    rows = together[(together["arm"] == arm) & (together["condition"] == condition)]
    nothing = pd.Series(np.nan, index=rows.index)
    values = rows.get(f"{metric}_b", nothing) - rows.get(f"{metric}_a", nothing)
    rows, values = rows[values.notna()], values[values.notna()]
    fit = np.array([not apart for apart in rows["apart"]], dtype=bool)
    paired = values.to_numpy(dtype=float)[fit]
    apart = Counter(words for each in rows["apart"][~fit] for words in each)
    same = int((rows["trial_a"] == rows["trial_b"])[fit].sum())
    estimate = mean_estimate(paired)
    return Difference(estimate.value, estimate.lower(0.025), estimate.upper(0.025), len(paired), apart, same)
