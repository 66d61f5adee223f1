"""What the report needs to know about a study beside its trials: `manifest.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.files import write_atomic
from swapformer.results.store import Store
from swapformer.study.config import overrides as texts
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Config
from swapformer.study.plan import Place, Plan, Setting

SCHEMA_VERSION = 1


def manifest(plan: Plan, provenance: Provenance, fairness: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """What the report needs to know about a study beside the trials; `fairness` as in `arm_differences`."""
    spec = plan.spec
    return {
        "schema_version": SCHEMA_VERSION,
        "name": spec.name,
        "scale": spec.scale,
        "question": spec.question,
        "baseline": spec.baseline,
        "metrics": list(spec.metrics),
        "arms": {arm: list(overrides) for arm, overrides in spec.arms.items()},
        "axis": find_axis(plan),
        "seeds": list(spec.seeds),
        "claims": [dict(claim) for claim in spec.claims],
        "looks": list(spec.looks),
        "conditions": {name: _values(overrides) for name, overrides in spec.conditions.items() if name},
        "cells": [
            {**_at((cell.arm, cell.condition)), "seed": cell.seed, "trial": cell.trial.id} for cell in plan.cells
        ],
        "impossible": [{**_at(place), "reason": reason} for place, reason in plan.impossible.items()],
        "tuning": _tuning(plan),
        "fairness": list(fairness),
        "command": provenance.command,
        "commit": provenance.commit,
        "longest_trained": plan.longest_trained,
        "shared_config": plan.shared_config,
    }


def write_manifest(
    plan: Plan, store: Store, provenance: Provenance, fairness: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Put the manifest into the study's folder, atomically."""
    folder = store.studies / plan.spec.name
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "manifest.json", json.dumps(manifest(plan, provenance, fairness), indent=1) + "\n")


def _tuning(plan: Plan) -> dict[str, Any] | None:
    """What was tried on which seeds, and what was chosen."""
    tune = plan.spec.tune
    if tune is None:
        return None
    return {
        "metric": plan.spec.metrics[0],
        "keys": list(tune.values),
        "seeds": list(tune.seeds),
        "tried": [
            {**_at(template.place), "values": _values(template.setting), "trials": [trial.id for trial in trials]}
            for template, trials in plan.tuning
        ],
        "refused": [
            {**_at(place), "values": _values(setting), "reason": reason}
            for (place, setting), reason in plan.refused.items()
        ],
        "chosen": [
            {**_at(place), "values": _values(choice.setting), "edges": list(choice.edges), "diverged": choice.diverged}
            for place, choice in plan.chosen.items()
        ],
    }


def _at(place: Place) -> dict[str, str]:
    """An arm, and its condition where there is a grid."""
    arm, condition = place
    return {"arm": arm, "condition": condition} if condition else {"arm": arm}


def _values(setting: Setting) -> dict[str, str]:
    return {texts.key(override): override.partition("=")[2] for override in setting}


def find_axis(plan: Plan) -> dict[str, Any] | None:
    """The one config key that tells the arms apart by different numbers, with each arm's value; None without one."""
    named = plan.spec.axis
    keys = named or list({texts.key(override) for overrides in plan.spec.arms.values() for override in overrides})
    if len(keys) != 1 or "/" in keys[0]:
        return None
    (key,) = keys
    values = {each.arm: _look_up(each.config, key) for each in reversed(plan.templates)}
    values = {arm: values[arm] for arm in plan.spec.arms if arm in values}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    if numbers and len(set(values.values())) == len(values) > 1:
        return {"key": key, "values": values}
    if named:
        raise UsageError(f"`axis` must name a key whose number differs in every arm, but {key} has {values}")
    return None


def _look_up(config: Config, key: str) -> Any:
    node: Any = config
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node
