"""Two studies side by side: what each says, and what may be paired between them.

Trials of two studies are paired by seed only where nothing but the study tells them apart: the same environment class,
data, budget and results epoch. Where one of them differs, it is named, and there is no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.report import number_format
from swapformer.report.condition_view import scenes
from swapformer.report.pairing import MEASURED_ON, SAME, Difference, difference, joined
from swapformer.report.records import Records, read
from swapformer.report.setting_differences import Otherwise, otherwise, warning
from swapformer.report.statistics.arm_summary import ArmRow, Summary
from swapformer.report.statistics.claims import parse
from swapformer.report.statistics.grid_verdict import Everywhere, everywhere
from swapformer.report.statistics.sequential import judge_all
from swapformer.results.manifest import Manifest


@dataclass(frozen=True)
class Side:
    """One of the two studies, judged."""

    label: str
    records: Records
    claims: Sequence[Everywhere]
    rows: Mapping[tuple[str, str], ArmRow]

    @property
    def manifest(self) -> Manifest:
        return self.records.manifest


@dataclass(frozen=True)
class Pair:
    """An arm that both studies have, in one condition.

    `alike`: both set the same overrides, and nothing came out otherwise, as `otherwise` lists it.
    """

    arm: str
    condition: str
    alike: bool
    otherwise: tuple[Otherwise, ...]
    metrics: Mapping[str, tuple[Summary, Summary, Difference]]


@dataclass(frozen=True)
class ClaimPair:
    """A claim with its verdict in each study; None where it does not make it. `reworded`: same words, other content."""

    text: str
    a: str | None
    b: str | None
    reworded: bool = False

    @property
    def changed(self) -> bool:
        """Whether both judge it, and not alike."""
        return self.a is not None and self.b is not None and self.a != self.b


@dataclass(frozen=True)
class Versus:
    """Two studies; `config`: the leaves in which their baselines differ, with both values."""

    a: Side
    b: Side
    metrics: tuple[str, ...]
    claims: tuple[ClaimPair, ...]
    pairs: tuple[Pair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    config: Mapping[str, tuple[Any, Any]]
    warnings: tuple[str, ...]


def side(label: str, study_dir: Path, runs_dir: Path) -> Side:
    """A study, judged as its own report does. Raises UsageError where its manifest cannot be read."""
    records = read(study_dir, runs_dir)
    manifest = records.manifest
    claims = parse(manifest.claims, tuple(manifest.arms), manifest.metrics)
    rows = {(row.arm, where): row for where, scene in scenes(records, claims).items() for row in scene.rows}
    return Side(label, records, everywhere(claims, judge_all(claims, records)), rows)


def compare(a: Side, b: Side, config: Mapping[str, tuple[Any, Any]]) -> Versus:
    """All that can be said of two studies; `config` as in `Versus`."""
    metrics = tuple(metric for metric in a.manifest.metrics if metric in b.manifest.metrics)
    apart = {place: otherwise(a.manifest, b.manifest, place) for place in a.rows if place in b.rows}
    settings = [*config, *_set_apart(a, b), *(each.key for found in apart.values() for each in found)]
    measured = [key for key in dict.fromkeys(settings) if key.startswith(MEASURED_ON)]
    together = joined(a.records, b.records, bool(measured))
    pairs = [
        Pair(
            arm,
            condition,
            a.manifest.arms[arm] == b.manifest.arms[arm] and not found,
            found,
            {m: (a.rows[arm, condition].summaries[m], b.rows[arm, condition].summaries[m],
                 difference(together, arm, condition, m)) for m in metrics},
        )
        for (arm, condition), found in apart.items()
    ]  # fmt: skip
    only_a, only_b = (
        tuple(number_format.placed(*place) for place in one.rows if place not in other.rows)
        for one, other in ((a, b), (b, a))
    )
    warnings = (
        *_warnings(together, a, b, measured),
        *(warning(place, found) for place, found in apart.items() if found),
    )
    return Versus(a, b, metrics, _claims(a, b), tuple(pairs), only_a, only_b, config, warnings)


def _set_apart(a: Side, b: Side) -> list[str]:
    """The keys that an arm sets in one study, and not, or otherwise, in the other; a group of the task as `task.`."""
    arms, others = a.manifest.arms, b.manifest.arms
    apart = [text for arm in arms if arm in others for text in sorted(set(arms[arm]) ^ set(others[arm]))]
    keys = [text.lstrip("+").partition("=")[0].replace("/", ".") for text in apart]
    return [f"{key}." if key == "task" else key for key in keys]


def _claims(a: Side, b: Side) -> tuple[ClaimPair, ...]:
    first, second = ({each.claim.text: each for each in one.claims} for one in (a, b))
    found = []
    for text in dict.fromkeys([*first, *second]):
        one, other = first.get(text), second.get(text)
        reworded = one is not None and other is not None and one.claim != other.claim
        judged = (None if one is None else one.outcome, None if other is None else other.outcome)
        found.append(ClaimPair(text, judged[0], judged[1], reworded))
    return tuple(found)


def _warnings(together: pd.DataFrame, a: Side, b: Side, measured: Sequence[str]) -> tuple[str, ...]:
    """What keeps trials from being paired, with both values; and what else must be known."""
    found = []
    for column, words in SAME.items():
        values = [", ".join(sorted(set(together[f"{column}_{name}"]))) for name in "ab"]
        if len(together) and (together[f"{column}_a"] != together[f"{column}_b"]).any():
            shown = [value[:12] if column == "data" else value for value in values]
            found.append(f"Other {words}: {shown[0]} against {shown[1]}. Such trials are not paired.")
    if measured:
        found.append(f"They measure on different things ({', '.join(measured)}), so no trials are paired.")
    if not len(together) and set(a.rows) & set(b.rows):
        found.append("Arms of the same name have no finished seed in common, so no trials are paired.")
    if a.manifest.question != b.manifest.question:
        found.append("They ask different questions.")
    if a.manifest.baseline != b.manifest.baseline:
        found.append(
            f"Their baselines are {a.manifest.baseline} and {b.manifest.baseline}: Δ is to another arm in each."
        )
    for one in (a, b):
        lost = [number_format.placed(*place) for place, row in one.rows.items() if row.counts.get("diverged")]
        if lost:
            found.append(f"In {one.label}, trials of {', '.join(lost)} diverged: what is over the others flatters.")
    other = [arm for arm in a.manifest.arms if arm in b.manifest.arms and a.manifest.arms[arm] != b.manifest.arms[arm]]
    if other:
        found.append(f"Of the same name, but set otherwise: {', '.join(other)}.")
    return tuple(found)
