"""`swapformer bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence

from swapformer.bench.ratio import Ratio, require_quiet_machine

Measurement = Callable[[argparse.Namespace], list[Ratio]]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return 0: a target that is missed is a number, not a failure."""
    options = _parser().parse_args(arguments)
    require_quiet_machine(options.force)
    found = options.measure(options)
    if options.json:
        print(json.dumps([ratio.as_dict() for ratio in found], indent=1))
        return 0
    for ratio in found:
        print(ratio.line())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="swapformer bench", description="Speed, as ratios within one run.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--rounds", type=int, help="times that each side is measured; default 5, launcher 1, data 3")
    common.add_argument("--force", action="store_true", help="measure on a loaded machine too")
    common.add_argument("--json", action="store_true", help="print JSON for scripts")
    common.add_argument("--debug", action="store_true", help="show tracebacks")
    verbs = parser.add_subparsers(metavar="WHAT", required=True)

    step = verbs.add_parser("step", parents=[common], help="a training step against a bare PyTorch loop")
    step.add_argument("overrides", nargs="*", default=["+preset=nanogpt_cpu"], help="what is trained")
    step.set_defaults(measure=_step)

    launcher = verbs.add_parser("launcher", parents=[common], help="the local launcher against one cold start a trial")
    launcher.add_argument("--trials", type=int, default=20)
    launcher.add_argument("--steps", type=int, default=600, help="optimiser steps of a trial, which set its length")
    launcher.set_defaults(measure=_launcher)

    data = verbs.add_parser("data", parents=[common], help="what a step waits for its batch, for every task")
    data.add_argument("overrides", nargs="*", help="task=NAME for one task alone, and any other override")
    data.set_defaults(measure=_data)

    start = verbs.add_parser("start", parents=[common], help="the fixed cost of a trial, and of the command itself")
    start.set_defaults(measure=_start)
    return parser


def _step(options: argparse.Namespace) -> list[Ratio]:
    from swapformer.bench.step import overhead

    return [overhead(options.overrides, options.rounds or 5)]


def _launcher(options: argparse.Namespace) -> list[Ratio]:
    from swapformer.bench.launcher import throughput

    return [throughput(options.trials, options.steps, options.rounds or 1)]


def _data(options: argparse.Namespace) -> list[Ratio]:
    from swapformer.bench.data import waiting

    chosen = [override.removeprefix("task=") for override in options.overrides if override.startswith("task=")]
    others = [override for override in options.overrides if not override.startswith("task=")]
    return list(waiting(chosen, others, options.rounds or 3))


def _start(options: argparse.Namespace) -> list[Ratio]:
    from swapformer.bench.launcher import fixed_cost, help_time

    return [fixed_cost(options.rounds or 5), help_time(options.rounds or 5)]
