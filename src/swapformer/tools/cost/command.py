"""`swapformer cost`: counts what a configuration costs before training, or what the arms of a study cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from swapformer.console import at_least
from swapformer.errors import UsageError, quote
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.cost import measure
from swapformer.study.config.hydra_errors import explained
from swapformer.tools.command_line import add_common, names_and_overrides
from swapformer.training.operations import DTYPES

OF_STUDY = ("measure", "again", "rounds", "warm_up", "steps", "force")
OF_CONFIGURATION = ("lengths", "batch", "dtype")
"""Options that only one of the two uses understands."""


def main(arguments: Sequence[str]) -> int:
    """Print parameters by role and, for each length, operations and bytes; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    names, overrides = names_and_overrides(options.overrides)
    if len(names) == 1 and all(override.startswith("runs_dir=") for override in overrides):
        from swapformer.tools.cost.study_cost import run

        if given := _given(options, OF_CONFIGURATION) or (not options.measure and _given(options, OF_STUDY)):
            raise UsageError(
                f"{given} does nothing here: --measure takes --rounds, --warm-up, --steps, --again and --force, and a "
                "study is costed as it trains"
            )
        return run(options, names[0], overrides)
    if given := _given(options, OF_STUDY):
        raise UsageError(f"{given} is for the arms of a study that was run here: swapformer cost STUDY --measure")
    with explained(options.overrides):
        config = compose(options.overrides)
    check(config)
    batch, dtype = 1 if options.batch is None else options.batch, options.dtype or "float32"
    lengths = _lengths(options.lengths or "") or [task_of(config).train_length]
    again = config["trainer"]["gradient_checkpointing"]
    report = measure(config, task_of(config).interface, batch, lengths, dtype, checkpointed=again)
    print(json.dumps(report, indent=1) if options.json else _text(report))
    return 0


def _given(options: argparse.Namespace, names: Sequence[str]) -> str:
    """The first of these options that was given, as typed; empty if none was."""
    given = (name for name in names if getattr(options, name) is not None and getattr(options, name) is not False)
    return next((f"--{name.replace('_', '-')}" for name in given), "")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="swapformer cost",
        description="What a configuration costs, before training. With the name of a study: what its arms cost, "
        "counted, and once it was run here, with --measure, timed one at a time with the machine to itself.",
    )
    made.add_argument("overrides", nargs="*", metavar="STUDY | OVERRIDE", help="as for swapformer train, or a study")
    made.add_argument("--measure", action="store_true", help="of a study: measure what was not on this hardware")
    made.add_argument("--again", action="store_true", help="with --measure: measure all anew")
    made.add_argument("--rounds", type=at_least(1), help="with --measure: processes of each arm (default 5)")
    made.add_argument("--warm-up", type=at_least(1), help="with --measure: steps that do not count (default 10)")
    made.add_argument("--steps", type=at_least(1), help="with --measure: steps that count (default 40)")
    made.add_argument("--force", action="store_true", help="with --measure: on a loaded machine too; it is recorded")
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
        cache = "–" if cost["kv_cache"] is None else f"{_scaled(cost['kv_cache'])}B"
        lines.append(
            f"{cost['length']:>8} {_scaled(cost['forward']):>7} FLOP {_scaled(cost['backward']):>7} FLOP "
            f"{_scaled(cost['activations']) + 'B':>14} {cache:>12}"
        )
    return "\n".join(lines)


def _scaled(value: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} P"
