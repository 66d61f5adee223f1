"""Hostile study files: a good one with each field of a wrong type, and texts that are hard on a parser."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml

from evidence.fuzz.template import STUDY

VALUES: tuple[Any, ...] = (None, True, -1, 1.5, float("nan"), 10**23, "", "text", [], [[]], [None], {}, {"a": None})
"""What each field is set to."""

TEXTS: dict[str, str] = {
    "empty": "",
    "a text": "study",
    "a list": "[1, 2]",
    "a number": "3",
    "tabs": "arms:\n\t- a",
    "unclosed": "arms: {low: [",
    "two documents": "arms: {}\n---\narms: {}",
    "nested flow": "arms: " + "[" * 3000,
    "nested flow, closed": "arms: " + "[" * 3000 + "]" * 3000,
    "nested blocks": "arms: " + "- " * 3000 + "a",
    "nested mappings": "{a: " * 3000 + "1" + "}" * 3000,
    "an anchor within itself": "arms: &a {low: *a}",
    "an anchor bomb": "x0: &x0 [a, a, a, a, a, a, a, a, a]\n"
    + "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 12)),
    "an unknown anchor": "arms: *nothing",
    "a doubled key": "baseline: low\narms: {low: [], high: [], low: [optim.lr=1]}",
    "a doubled key above": "baseline: low\narms: {low: []}\narms: {low: []}",
    "a tag": "arms: !!python/object/apply:os.system [ls]",
    "a merge key": "baseline: low\narms: {<<: [1, 2]}",
    "a key that is a list": "? [a, b]\n: 3",
    "a key that is null": "null: 3",
    "a huge whole number": f"seeds: {'9' * 5000}",
    "a date": "seeds: 2026-01-01",
    "control characters": "question: \x1b[31m",
    "escaped control characters": 'baseline: low\narms: {low: [], "\\e[31m": []}',
    "bidirectional marks": 'baseline: low\narms: {low: [], "a\\u202eb": []}',
    "an unknown key": "baseline: low\narms: {low: []}\nnothing: 3",
    "an unknown part": "baseline: low\narms: {low: [model/position=nothing]}",
    "a part of somebody's": "baseline: low\narms: {low: [model.position._target_=os.system]}",
    "the environment": 'baseline: low\narms: {low: []}\noverrides: ["logger.tags=[${oc.env:HOME}]"]',
    "the environment in an arm": 'baseline: low\narms: {low: ["task.symbols=${oc.env:HOME}"]}',
    "a seed in an arm": "baseline: low\narms: {low: [seed=3]}",
    "a baseline that is no arm": "baseline: high\narms: {low: []}",
    "an arm with a slash": "baseline: a/b\narms: {a/b: []}",
    "a formula": "baseline: low\narms: {low: [], '=1+1': []}",
    "an override that is a mapping": "baseline: low\narms: {low: [{optim.lr: 1}]}",
    "an override without a value": "baseline: low\narms: {low: [optim.lr]}",
    "seeds without end": "baseline: low\narms: {low: []}\nseeds: 1000000000",
    "looks that fall": "baseline: low\narms: {low: []}\nseeds: {looks: [3, 2]}",
    "a name of 5000 letters": f"baseline: low\narms: {{low: [], {'x' * 5000}: [optim.lr=0.1]}}",
    "claims about nothing": "baseline: low\narms: {low: []}\nclaims: [{text: t, better: {arm: x, than: y, metric: z}}]",
    "a tuning of nothing": "baseline: low\narms: {low: []}\ntune: {}",
    "a grid of nothing": "baseline: low\narms: {low: []}\ngrid: {optim.lr: []}",
    "a match of nothing": "baseline: low\narms: {low: [], high: []}\nmatch: {nothing: model.d_model}",
}  # fmt: skip
"""Texts that are refused, by what they are."""

BYTES: dict[str, bytes] = {
    "no text": b"\xff\xfe\x00a",
    "zeros": bytes(100),
    "latin": "question: Lärm".encode("latin-1"),
}
NAMES = ("...yaml", ".yaml", "-.yaml", "a\u202eb.yaml", "a\nb.yaml", "a\x1b[31m.yaml", "a;b.yaml", "=1+1.yaml")
"""Names of files that no report folder can have."""


def mutations() -> Iterator[tuple[str, str]]:
    """(what was done, text) for each field of a good study file and each value in its place."""
    fields: list[tuple[Any, ...]] = [
        *((key,) for key in (*STUDY, "scales", "axis", "tune", "match", "grid")),
        *(
            ("arms", "high"),
            ("arms", "high", 0),
            ("overrides", 0),
            ("metrics", 0),
            ("claims", 0),
            ("claims", 0, "text"),
        ),
        *(("claims", 0, "better"), *(("claims", 0, "better", key) for key in ("arm", "than", "metric", "margin"))),
    ]
    for keys in fields:
        for value in VALUES:
            changed: Any = copy.deepcopy(STUDY)
            node = changed
            for key in keys[:-1]:
                node = node[key]
            node[keys[-1]] = value
            yield f"{'.'.join(map(str, keys))} = {value!r}", yaml.safe_dump(changed)
