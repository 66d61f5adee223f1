"""Differences in how an arm was set in two studies: by tuning, by matching, or by its own overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swapformer.report import number_format
from swapformer.results.arms import ArmCondition, ArmDifference, arm_name, value_text
from swapformer.results.manifest import Manifest

MAX_NAMED = 6
"""How many differences of an arm a warning names."""


@dataclass(frozen=True)
class SettingDifference:
    """A setting with its value in each study; `how` is `tuned`, `matched`, or empty."""

    key: str
    a: str
    b: str
    how: str

    @property
    def text(self) -> str:
        """`optim.lr 1e-3 against 3e-3 (tuned)`."""
        return f"{self.key} {self.a} against {self.b}" + (f" ({self.how})" if self.how else "")


def setting_differences(a: Manifest, b: Manifest, at: ArmCondition) -> tuple[SettingDifference, ...]:
    """The settings in which an arm's trials differ between two studies.

    What was tuned comes first, then what was matched, then all that differs from the baseline where both studies say
    it. A setting that one of them does not change has its baseline's value there.
    """
    tuned, matched, changed = ([key for m in (a, b) for key in of(m, at)] for of in (_tuned, _matched, _changed))
    how = dict.fromkeys(matched, "matched") | dict.fromkeys(tuned, "tuned")
    told = all(_entry(manifest, at) for manifest in (a, b))
    keys = dict.fromkeys([*tuned, *matched, *(changed if told else ())])
    found = [SettingDifference(key, _value(a, at, key), _value(b, at, key), how.get(key, "")) for key in keys]
    return tuple(each for each in found if not _same(each.a, each.b))


def difference_warning(at: ArmCondition, found: Sequence[SettingDifference]) -> str:
    """The differences of an arm as a sentence."""
    more = f"; and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    named = "; ".join(each.text for each in found[:MAX_NAMED])
    return f"{arm_name(*at)} was set otherwise: {named}{more}."


def _entry(manifest: Manifest, at: ArmCondition) -> ArmDifference | None:
    return next((each for each in manifest.fairness if (each.arm, each.condition) == at), None)


def _tuned(manifest: Manifest, at: ArmCondition) -> Mapping[str, str]:
    if manifest.tuning is None:
        return {}
    chosen = [each.values for each in manifest.tuning.chosen if (each.arm, each.condition) == at]
    return [*chosen, dict.fromkeys(manifest.tuning.keys, "not chosen yet")][0]


def _matched(manifest: Manifest, at: ArmCondition) -> Mapping[str, str]:
    entry = _entry(manifest, at)
    solved = entry.match if entry is not None else None
    return {} if solved is None or solved.value is None else {solved.key: value_text(solved.value)}


def _changed(manifest: Manifest, at: ArmCondition) -> Mapping[str, str]:
    entry = _entry(manifest, at)
    return {} if entry is None else {key: after for key, _, after in entry.changes}


def _value(manifest: Manifest, at: ArmCondition, key: str) -> str:
    """A setting of an arm as text: its own, else the baseline's in that condition."""
    for own in (_tuned(manifest, at), _matched(manifest, at), _changed(manifest, at)):
        if key in own:
            return own[key]
    there = [each for each in manifest.fairness if each.condition == at[1]]
    before = [before for each in there for name, before, _ in each.changes if name == key]
    return [*before, *_leaf(manifest.shared_config, key), number_format.DASH][0]


def _leaf(node: Any, key: str) -> Iterator[str]:
    """The leaf under a dotted name as text, if there is one; numbers are indices of a list."""
    for name in key.split("."):
        if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        elif isinstance(node, Mapping) and name in node:
            node = node[name]
        else:
            return
    yield value_text(node)


def _same(one: str, other: str) -> bool:
    """Whether two values are the same text, or the same number."""
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False
