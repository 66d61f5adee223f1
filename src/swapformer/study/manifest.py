"""What the report needs to know about a study beside its trials: `manifest.json`."""

from __future__ import annotations

import json
from typing import Any

from swapformer.errors import UsageError
from swapformer.study import overrides as texts
from swapformer.study.expand import Plan
from swapformer.study.files import write_atomic
from swapformer.study.provenance import Provenance
from swapformer.study.store import Store
from swapformer.study.trial import Config

SCHEMA_VERSION = 1


def manifest(plan: Plan, provenance: Provenance) -> dict[str, Any]:
    """What the report needs to know about a study beside the trials."""
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
        "cells": [{"arm": cell.arm, "seed": cell.seed, "trial": cell.trial.id} for cell in plan.cells],
        "impossible": [{"arm": arm, "reason": reason} for arm, reason in plan.impossible.items()],
        "command": provenance.command,
        "commit": provenance.commit,
        "longest_trained": plan.longest_trained,
        "shared_config": plan.shared_config,
    }


def write_manifest(plan: Plan, store: Store, provenance: Provenance) -> None:
    """Put the manifest into the study's folder, atomically."""
    folder = store.studies / plan.spec.name
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "manifest.json", json.dumps(manifest(plan, provenance), indent=1) + "\n")


def find_axis(plan: Plan) -> dict[str, Any] | None:
    """The one config key that tells the arms apart by different numbers, with each arm's value; None without one."""
    keys = {texts.key(override) for overrides in plan.spec.arms.values() for override in overrides}
    key = plan.spec.axis or (next(iter(keys)) if len(keys) == 1 else None)
    if key is None or "/" in key:
        return None
    values = {cell.arm: _look_up(cell.trial.config, key) for cell in plan.cells}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    if numbers and len(set(values.values())) == len(values) > 1:
        return {"key": key, "values": values}
    if plan.spec.axis:
        raise UsageError(f"`axis` must name a key whose number differs in every arm, but {key} has {values}")
    return None


def _look_up(config: Config, key: str) -> Any:
    node: Any = config
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node
