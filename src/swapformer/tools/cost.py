"""`swapformer cost`: counts what a configuration costs before training, or what the arms of a study cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from swapformer.console import CommandLine, at_least
from swapformer.errors import UsageError, quote
from swapformer.report import number_format as f
from swapformer.results.arms import arm_name
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.cost import measure
from swapformer.tools.command_line import add_common, columns, names_and_overrides
from swapformer.training.operations import DTYPES

_DTYPES = {"bf16-mixed": "bfloat16", "bf16-true": "bfloat16", "16-mixed": "float16", "64-true": "float64"}
"""The type in which a precision computes."""


def main(arguments: Sequence[str]) -> int:
    """Print parameters by role and, for each length, operations and bytes; or those of a study's arms."""
    options = parser().parse_intermixed_args(arguments)
    names, overrides = names_and_overrides(options.overrides)
    if len(names) == 1:
        if given := [name for name in ("lengths", "batch", "dtype") if getattr(options, name) is not None]:
            raise UsageError(f"--{given[0]} does nothing here: the arms of a study are counted as they train")
        rows = _arms(names[0], overrides)
        print(json.dumps({"study": names[0], "arms": rows}, indent=1) if options.json else _table(rows))
        return 0
    config = compose(options.overrides)
    check(config)
    batch, dtype = 1 if options.batch is None else options.batch, options.dtype or "float32"
    lengths = _lengths(options.lengths or "") or [task_of(config).train_length]
    again = config["trainer"]["gradient_checkpointing"]
    report = measure(config, task_of(config).interface, batch, lengths, dtype, checkpointed=again)
    print(json.dumps(report, indent=1) if options.json else _text(report))
    return 0


def _arms(name: str, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """A training step of each arm of a study, as it trains, and the cache of one sequence; None if unknown.

    Operations are those of the whole batch, activations those of the part of it that is computed at a time.
    """
    from swapformer.study.config import overrides as texts
    from swapformer.study.expand import expand
    from swapformer.study.spec import load

    spec = load(name, texts.value(overrides, "scale"))
    plan = expand(spec, [each for each in overrides if texts.key(each) not in ("scale", "seeds")])
    rows = []
    for (arm, condition), template in {each.arm_condition: each for each in reversed(plan.templates)}.items():
        config = template.config
        task = task_of(config)
        trainer, count = config["trainer"], task.train_batch(0, 0).inputs.shape[0]
        rows_at_a_time = -(-count // int(trainer["accumulate_grad_batches"]))
        dtype = _DTYPES.get(str(trainer["precision"]), "float32")
        row: dict[str, Any] = {"arm": arm, "condition": condition, "flops": None, "activations": None, "kv_cache": None}
        try:
            report = measure(
                config, task.interface, rows_at_a_time, [task.train_length], dtype,
                checkpointed=trainer["gradient_checkpointing"],
            )  # fmt: skip
            (found,) = report["lengths"]
            row["flops"] = (found["forward"] + found["backward"]) * count // rows_at_a_time
            row["activations"] = found["activations"]
            row["kv_cache"] = found["kv_cache"] and found["kv_cache"] // rows_at_a_time
        except UsageError:
            pass  # the model's operations depend on the data
        rows.append(row)
    return rows[::-1]


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The arms of a study, a line each."""
    lines = [("arm", "FLOP a step", "activations a step", "KV cache a sequence")]
    for row in rows:
        numbers = ((row["flops"], f.scaled), (row["activations"], f.size), (row["kv_cache"], f.size))
        flops, kept, cache = (f.DASH if value is None else text(value) for value, text in numbers)
        lines.append((arm_name(row["arm"], row["condition"]), flops, kept, cache))
    return columns(lines, right=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer cost",
        description="What a configuration costs, counted before training; with the name of a study, what its arms do.",
    )
    made.add_argument("overrides", nargs="*", metavar="STUDY | OVERRIDE", help="as for swapformer train, or a study")
    made.add_argument("--lengths", help="tokens of a sequence, such as 128,1024; default: the task's")
    made.add_argument("--batch", type=at_least(1), help="sequences (default 1)")
    made.add_argument("--dtype", choices=DTYPES, help="of activations and cache (default float32)")
    return add_common(made)


def _lengths(text: str) -> list[int]:
    words = [word for word in text.split(",") if word]
    if not all(word.isdecimal() and len(word) < 13 and int(word) > 0 for word in words):
        raise UsageError(f"`--lengths` must be whole numbers from 1 to 10^12 between commas, but it is {quote(text)}.")
    return [int(word) for word in words]


def _text(report: dict[str, Any]) -> str:
    lines = [f"{'parameters':18} {report['parameters']['total']:>14,}"]
    lines += [f"  {role:16} {number:>14,}" for role, number in report["by_role"].items()]
    lines += ["", f"one batch of {report['batch']} in {report['dtype']}"]
    lines += [f"{'length':>8} {'forward':>12} {'backward':>12} {'activations':>14} {'kv cache':>12}"]
    for cost in report["lengths"]:
        cache = f.DASH if cost["kv_cache"] is None else f.size(cost["kv_cache"])
        lines.append(
            f"{cost['length']:>8} {f.scaled(cost['forward']):>8}FLOP {f.scaled(cost['backward']):>8}FLOP "
            f"{f.size(cost['activations']):>14} {cache:>12}"
        )
    return "\n".join(lines)
