"""`swapformer cost STUDY`: what the arms of a study cost, counted, and with `--measure` timed on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from swapformer.console import Failed
from swapformer.errors import UsageError
from swapformer.report.build import build
from swapformer.results.arms import arm_name
from swapformer.results.config import read_config
from swapformer.results.costs import CostedArm, Counted, read_costs, write_counted
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.store import Store
from swapformer.study.config.compose import task_of
from swapformer.study.config.cost import measure
from swapformer.study.launch.machine import alone
from swapformer.study.launch.provenance import current_provenance
from swapformer.tools.cost.cost_pass import Pass, cost_key, unmeasured
from swapformer.tools.cost.ratio import loaded, require_quiet_machine
from swapformer.tools.cost.tables import Arm, plain, tables
from swapformer.tools.lookup import store_of, study_folder


def run(options: argparse.Namespace, name: str, overrides: Sequence[str]) -> int:
    """Count, measure what was asked for, build the report again, and print; returns the exit status."""
    store = store_of(overrides)
    folder = study_folder(store, name)
    manifest = read_manifest(folder)
    arms, wrong = _arms(manifest, store)
    if options.measure:
        wrong |= _measured(options, arms, store)
    write_counted(folder, [CostedArm(a.arm, a.condition, a.trial, a.key, _counted(a.config)) for a in arms])
    built = build(folder, store.runs_dir)
    costs = read_costs(manifest, folder, store.runs_dir, [])
    if options.json:
        print(json.dumps({"study": manifest.name, **plain(arms, costs), "wrong": wrong}, indent=1))
    else:
        print("\n\n".join(tables(arms, costs)))
        print(built.directory / "report.html")
    if wrong:
        raise Failed("; ".join(f"{arm} was not costed: {reason}" for arm, reason in wrong.items()))
    return 0


def _arms(manifest: Manifest, store: Store) -> tuple[list[Arm], dict[str, str]]:
    """The arms that have a trial with settings, and what is wrong with others."""
    found: list[Arm] = []
    wrong: dict[str, str] = {}
    for arm, condition in dict.fromkeys((cell.arm, cell.condition) for cell in manifest.cells):
        name = arm_name(arm, condition)
        trials = [cell.trial for cell in manifest.cells if (cell.arm, cell.condition) == (arm, condition)]
        trial, config = next(((t, c) for t in trials if (c := read_config(store.directory(t)))), ("", {}))
        if not config:
            wrong[name] = "none of its trials has begun"
            continue
        try:
            found.append(Arm(arm, condition, trial, config, cost_key(config)))
        except (KeyError, TypeError) as error:
            wrong[name] = f"the settings of trial {trial} are another version's ({error}); run the study again"
    return found, wrong


def _measured(options: argparse.Namespace, arms: Sequence[Arm], store: Store) -> dict[str, str]:
    """Measure what was not measured on this hardware yet, or all; why some could not be, by arm."""
    rounds, warm_up, steps = options.rounds or 5, options.warm_up or 10, options.steps or 40
    several = {arm.name: arm.config["trainer"]["devices"] for arm in arms if arm.config["trainer"]["devices"] != 1}
    wrong = {name: f"it trains on {devices} devices, and one is measured" for name, devices in several.items()}
    configs = {arm.key: arm.config for arm in arms if arm.name not in several}
    todo = configs if options.again else unmeasured(configs, store.runs_dir)
    print(f"swapformer: {len(todo)} of {len(configs)} costs to measure", file=sys.stderr)
    if not todo:
        return wrong
    require_quiet_machine(options.force)

    def say(line: str) -> None:
        print(f"swapformer: {line}", file=sys.stderr, flush=True)

    with alone():
        measuring = Pass(todo, rounds, warm_up, steps, loaded(), say)
        measuring.run()
    measuring.keep(store.runs_dir, current_provenance())
    return wrong | {arm.name: measuring.wrong[arm.key] for arm in arms if arm.key in measuring.wrong}


def _counted(config: dict[str, Any]) -> Counted:
    """A training step: its whole batch; the cache is that of one sequence."""
    task = task_of(config)
    rows = task.train_batch(config["data_seed"], 0).inputs.shape[0]
    try:
        again = config["trainer"]["gradient_checkpointing"]
        counted = measure(config, task.interface, rows, [task.train_length], "float32", checkpointed=again)
        found = counted["lengths"][0]
    except UsageError:  # what the model does depends on the data
        return Counted(None, None, None)
    cache = None if found["kv_cache"] is None else found["kv_cache"] // rows
    return Counted(found["forward"] + found["backward"], found["activations"], cache)
