"""`swapformer cost`: what a composed configuration costs, before any training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from swapformer.errors import UsageError
from swapformer.study.complaint import explained
from swapformer.study.config import check, compose, task_of
from swapformer.study.costs import DTYPES, measure


def main(arguments: Sequence[str]) -> int:
    """Print parameters by role and, for each length, operations and bytes; returns the exit status."""
    options = _parser().parse_intermixed_args(arguments)
    with explained(options.overrides):
        config = compose(options.overrides)
    check(config)
    if options.batch < 1:
        raise UsageError(f"`--batch` must be at least 1, but it is {options.batch}.")
    lengths = _lengths(options.lengths) or [task_of(config).train_length]
    report = measure(config, task_of(config).interface, options.batch, lengths, options.dtype)
    print(json.dumps(report, indent=1) if options.json else _text(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="swapformer cost", description="What a configuration costs, before training.")
    parser.add_argument("overrides", nargs="*", help="as for swapformer train")
    parser.add_argument("--lengths", default="", help="places of a sequence, such as 128,1024; default: the task's")
    parser.add_argument("--batch", type=int, default=1, help="sequences")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of activations and cache")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _lengths(text: str) -> list[int]:
    words = [word for word in text.split(",") if word]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"`--lengths` must be whole numbers of at least 1 between commas, but it is {text!r}.")
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
