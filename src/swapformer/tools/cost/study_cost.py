"""`swapformer cost STUDY`: the costs of a study's arms, counted, and with `--measure` timed on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swapformer.console import Failed
from swapformer.errors import UsageError
from swapformer.report import number_format as f
from swapformer.report.build import build
from swapformer.results.arms import arm_name
from swapformer.results.config import read_config
from swapformer.results.costs import CostedArm, Costs, Counted, read_costs, write_counted
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.store import Store
from swapformer.study.config.compose import task_of
from swapformer.study.config.cost import measure
from swapformer.study.expand import expand
from swapformer.study.launch.machine import alone
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.plan import with_seed
from swapformer.study.spec import load
from swapformer.tools.command_line import columns, store_of, study_folder
from swapformer.tools.cost.cost_pass import CostPass, cost_key, loaded, require_quiet_machine, unmeasured
from swapformer.training.nodes import ranks_of


@dataclass(frozen=True)
class _Arm:
    """An arm in a condition, with the configuration of one of its trials and the key of its measured costs."""

    arm: str
    condition: str
    trial: str
    config: dict[str, Any]
    key: str

    @property
    def name(self) -> str:
        return arm_name(self.arm, self.condition)


def run(options: argparse.Namespace, name: str, overrides: Sequence[str]) -> int:
    """Count, measure what was asked for, build the report again, and print; returns the exit status.

    Of a study that was not run here its arms are counted as its file says, and nothing is written.
    """
    try:
        store = store_of(overrides)
        folder = study_folder(store, name)
    except UsageError:
        if options.measure or (arms := _planned_arms(name, overrides)) is None:
            raise
        costs = Costs({(arm.arm, arm.condition): _counted(arm.config) for arm in arms})
        plain = {"study": name, **_plain(arms, costs)}
        print(json.dumps(plain, indent=1) if options.json else "\n\n".join(_tables(arms, costs)))
        return 0
    manifest = read_manifest(folder)
    arms, wrong = _costed_arms(manifest, store)
    if options.measure:
        wrong |= _measure_arms(options, arms, store)
    write_counted(folder, [CostedArm(a.arm, a.condition, a.trial, a.key, _counted(a.config)) for a in arms])
    built = build(folder, store.runs_dir)
    costs = read_costs(manifest, folder, store.runs_dir, [])
    if options.json:
        print(json.dumps({"study": manifest.name, **_plain(arms, costs), "wrong": wrong}, indent=1))
    else:
        print("\n\n".join(_tables(arms, costs)))
        print(built.directory / "report.html")
    if wrong:
        raise Failed("; ".join(f"{arm} was not costed: {reason}" for arm, reason in wrong.items()))
    return 0


def _planned_arms(name: str, overrides: Sequence[str]) -> list[_Arm] | None:
    """The arms of a study that can be composed from its file; None where the name is of no single study."""
    try:
        spec = load(name)
    except UsageError:
        return None
    templates = expand(spec, overrides).templates
    first = {each.arm_condition: each for each in reversed(templates)}
    configs = {where: with_seed(first[where].config, spec.seeds[0]) for where in reversed(first)}
    return [_Arm(*where, "", config, cost_key(config)) for where, config in configs.items()]


def _costed_arms(manifest: Manifest, store: Store) -> tuple[list[_Arm], dict[str, str]]:
    """The arms that have a trial with a configuration, and why the others have none."""
    found: list[_Arm] = []
    wrong: dict[str, str] = {}
    for arm, condition in dict.fromkeys((cell.arm, cell.condition) for cell in manifest.cells):
        name = arm_name(arm, condition)
        trials = [cell.trial for cell in manifest.cells if (cell.arm, cell.condition) == (arm, condition)]
        trial, config = next(((t, c) for t in trials if (c := read_config(store.directory(t)))), ("", {}))
        if not config:
            wrong[name] = "none of its trials has begun"
            continue
        try:
            key = cost_key(config)
            task_of(config)
            found.append(_Arm(arm, condition, trial, config, key))
        except UsageError as error:
            wrong[name] = str(error)
        except (KeyError, TypeError) as error:
            wrong[name] = f"the settings of trial {trial} are another version's ({error}); run the study again"
    return found, wrong


def _measure_arms(options: argparse.Namespace, arms: Sequence[_Arm], store: Store) -> dict[str, str]:
    """Measure the arms that were not measured on this hardware yet, or all; returns by arm why some could not be."""
    rounds, warm_up, steps = options.rounds or 5, options.warm_up or 10, options.steps or 40
    several = {arm.name: count for arm in arms if (count := ranks_of(arm.config["trainer"])) != 1}
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
        measuring = CostPass(todo, rounds, warm_up, steps, loaded(), say)
        measuring.run()
    measuring.store(store.runs_dir, current_provenance())
    return wrong | {arm.name: measuring.wrong[arm.key] for arm in arms if arm.key in measuring.wrong}


def _counted(config: dict[str, Any]) -> Counted:
    """Operations and bytes of a training step with its whole batch, and the cache of one sequence."""
    task = task_of(config)
    rows = task.train_batch(config["data_seed"], 0).inputs.shape[0]
    try:
        again = config["trainer"]["gradient_checkpointing"]
        counted = measure(config, task.interface, rows, [task.train_length], "float32", checkpointed=again)
        found = counted["lengths"][0]
    except UsageError:  # the model's operations depend on the data
        return Counted(None, None, None)
    cache = None if found["kv_cache"] is None else found["kv_cache"] // rows
    return Counted(found["forward"] + found["backward"], found["activations"], cache)


def _plain(arms: Sequence[_Arm], costs: Costs) -> dict[str, Any]:
    def one(arm: _Arm) -> dict[str, Any]:
        cell = arm.arm, arm.condition
        measured = {hardware: found[cell] for hardware, found in costs.measured.items() if cell in found}
        return {
            "arm": arm.arm, "condition": arm.condition, "key": arm.key,
            "counted": asdict(costs.counted[cell]) if cell in costs.counted else None,
            "measured": {name: {**asdict(each), "step": each.step, "speed": each.speed}
                         for name, each in measured.items()},
        }  # fmt: skip

    return {"arms": [one(arm) for arm in arms]}


def _tables(arms: Sequence[_Arm], costs: Costs) -> list[str]:
    """A table of the counted costs, then one for each machine on which costs were measured."""

    def number(value: int | None, text: Callable[[float], str]) -> str:
        return f.DASH if value is None else text(value)

    counted = [("arm", "FLOP a step", "activations a step", "KV cache a sequence")]
    for arm in arms:
        known: Mapping[tuple[str, str], Counted] = costs.counted
        each = known.get((arm.arm, arm.condition), Counted(None, None, None))
        cells = number(each.flops, f.scaled), number(each.activations, f.size), number(each.kv_cache, f.size)
        counted.append((arm.name, *cells))
    found_tables = [columns(counted, right=True)]
    for hardware, found in costs.measured.items():
        rows = [("arm", "step", "range over rounds", "tokens/s", "peak memory", "beyond libraries", "device")]
        for arm in arms:
            if (one := found.get((arm.arm, arm.condition))) is not None:
                span = f"{f.seconds(min(one.seconds))} – {f.seconds(max(one.seconds))}"
                memory = f.size(one.memory), f.size(one.memory - one.start), number(one.device, f.size)
                rows.append((arm.name, f.seconds(one.step), span, f.large(one.speed), *memory))
        found_tables.append(f"measured on {hardware}\n{columns(rows, right=True)}")
    return found_tables
