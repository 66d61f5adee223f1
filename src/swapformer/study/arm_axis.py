"""What an arm says that it changes, and what it changes: leaves of the configuration, by their dotted names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from swapformer.paths import conf_dir
from swapformer.results.config import leaves
from swapformer.study.config import overrides as texts
from swapformer.study.spec import Spec

MISSING = "–"
"""Stands for a leaf that only the other configuration has."""
FOLLOWS = {"data": "task", "model.max_len": "task", "budget.steps": "budget"}
"""Leaves that are worked out from others: they say nothing new where any leaf under the other key differs as well."""


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The leaves in which two configurations differ: name → values; MISSING where only one has it."""
    first, second = (dict(leaves(config, plain_lists_whole=True)) for config in (before, after))
    found = {
        key: (first.get(key, MISSING), second.get(key, MISSING))
        for key in dict.fromkeys([*first, *second])
        if first.get(key, MISSING) != second.get(key, MISSING)
    }
    followed = {key for key, other in FOLLOWS.items() if any(name != key and covers(other, name) for name in found)}
    asked_alike = before.get("budget", {}).keys() & {"tokens", "flops"}
    followed |= {"budget.steps"} if asked_alike else set()
    return {key: values for key, values in found.items() if key not in followed}


def covers(name: str, leaf: str) -> bool:
    """Whether a leaf is `name` or lies under it."""
    return leaf == name or leaf.startswith(f"{name}.")


def axes(spec: Spec, arm: str) -> tuple[str, ...]:
    """The keys that an arm is about: the study's `axis`, else one; and what is tuned and matched.

    The one is what all arms that set anything have in common, the first as written where that is several, and the arm's
    own first key where it is none: further keys may be there on purpose, but nothing says so.
    """
    also = [*(spec.tune.values if spec.tune else ()), *((spec.match.key,) if spec.match else ())]
    keys = {name: [texts.key(override) for override in given] for name, given in spec.arms.items() if given}
    common = [key for key in next(iter(keys.values()), []) if all(key in own for own in keys.values())]
    return (*(spec.axis or (common or keys.get(arm, []))[:1]), *also)


def beyond(spec: Spec, arm: str, found: Sequence[str]) -> tuple[str, ...]:
    """Those of the changed leaves that the arm's axes do not cover."""
    known: list[str] = []
    for key in axes(spec, arm):
        known.append(key.replace("/", "."))
        if "/" not in key and "." in key:
            continue
        for name in (arm, spec.baseline):
            option = texts.value(spec.arms[name], key)
            known += _set_by(key, option) if option is not None else []
    return tuple(leaf for leaf in found if not any(covers(name, leaf) for name in known))


def _set_by(group: str, option: str) -> list[str]:
    """What an option of a group sets itself, where its file says that it sets something else than the group's node."""
    path = conf_dir() / group / f"{option}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []  # an option of the user's own, or the value of a key
    package = re.search(r"^# @package (\S+)", text, re.M)
    if package is None:
        return []
    content = yaml.safe_load(text) or {}
    place = "" if package[1] == "_global_" else package[1]
    content = {key: held for key, held in content.items() if key != "defaults"}
    return [name for name, _ in leaves(content, place, plain_lists_whole=True)]
