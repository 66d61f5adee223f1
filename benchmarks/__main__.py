"""`python -m benchmarks`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence

from benchmarks.figure import Figure
from benchmarks.reliability import DISTURBANCES, measure
from benchmarks.slope import Slope
from swapformer.console import OneOf, at_least, guarded
from swapformer.tools.cost.ratio import Ratio, require_quiet_machine

GROUPS = ("kernels", "blocked", "memory", "linear", "decoder", "norms", "bf16")
"""What `parts` measures."""
TOKENISERS = ("characters", "bytes", "bpe", "wordpiece")
"""What `corpus` measures."""

Measurement = Callable[[argparse.Namespace], Iterable[Ratio | Slope | Figure]]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return 0: a target that is missed is a number, not a failure."""
    options = parser().parse_args(arguments)
    if options.timed:
        require_quiet_machine(options.force)
    found = options.measure(options)
    if options.json:
        print(json.dumps([finding.as_dict() for finding in found], indent=1))
        return 0
    for finding in found:
        print(finding.line(), flush=True)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, as ratios within one run.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--rounds", type=at_least(1), help="times that each side is measured; default 5, launcher 1, data 3"
    )
    common.add_argument("--force", action="store_true", help="measure on a loaded machine too")
    common.add_argument("--json", action="store_true", help="print JSON for scripts")
    common.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(timed=True)
    verbs = parser.add_subparsers(metavar="WHAT", required=True)

    step = verbs.add_parser("step", parents=[common], help="a training step against a bare PyTorch loop")
    step.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        default=["+preset=nanogpt_cpu", "task/source=python"],
        help="what is trained",
    )
    step.set_defaults(measure=_step)

    parts = verbs.add_parser("parts", parents=[common], help="kernels, linear attention, the decoder, norms, bfloat16")
    parts.add_argument(
        "groups", nargs="*", type=OneOf("group", GROUPS), metavar="GROUP", help=f"only these of {', '.join(GROUPS)}"
    )
    parts.add_argument(
        "--device", choices=("cpu", "cuda"), help="default: the CPU, and a CUDA device where there is one"
    )
    parts.set_defaults(measure=_parts)

    launcher = verbs.add_parser("launcher", parents=[common], help="the local launcher against one cold start a trial")
    launcher.add_argument("--trials", type=at_least(1), default=20)
    launcher.add_argument(
        "--steps", type=at_least(1), default=600, help="optimiser steps of a trial, which set its length"
    )
    launcher.set_defaults(measure=_launcher)

    data = verbs.add_parser("data", parents=[common], help="what a step waits for its batch, for every task")
    data.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="task=NAME for one task alone, and any other override"
    )
    data.set_defaults(measure=_data)

    start = verbs.add_parser("start", parents=[common], help="the fixed cost of a trial, and of the command itself")
    start.set_defaults(measure=_start)

    mirror = verbs.add_parser(
        "mirror", parents=[common], help="a training step mirrored offline to W&B against one not"
    )
    mirror.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", default=["model/size=nano", "task=text"], help="what is trained"
    )
    mirror.add_argument("--steps", type=at_least(1), default=600, help="optimiser steps of each measurement")
    mirror.set_defaults(measure=_mirror)

    kept = verbs.add_parser("records", parents=[common], help="a kept trial against a training that leaves nothing")
    kept.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        default=["model/size=nano", "task=text", "probes=head_similarity"],
        help="what is trained",
    )
    kept.add_argument("--steps", type=at_least(1), default=1000, help="optimiser steps of each measurement")
    kept.set_defaults(measure=_records)

    corpus = verbs.add_parser("corpus", parents=[common], help="speed and memory of tokenising a generated text")
    corpus.add_argument("--megabytes", type=at_least(1), default=100)
    corpus.add_argument(
        "tokenisers", nargs="*", type=OneOf("tokeniser", TOKENISERS), help=f"only these of {', '.join(TOKENISERS)}"
    )
    corpus.set_defaults(measure=_corpus)

    trust = verbs.add_parser("reliability", parents=[common], help="kills, full disks, cut files, clocks, large stores")
    trust.add_argument(
        "names",
        nargs="*",
        type=OneOf("disturbance", tuple(DISTURBANCES)),
        metavar="NAME",
        help=f"only these of {', '.join(DISTURBANCES)}",
    )
    trust.add_argument("--kills", type=at_least(1), default=200, help="how many SIGKILLs")
    trust.add_argument(
        "--offsets", type=at_least(1), default=50, help="places where files are cut, and room on the disk"
    )
    trust.add_argument("--listed", type=at_least(1), default=10_000, help="trials in the store that is listed")
    trust.add_argument("--reported", type=at_least(1), default=1000, help="trials in the study that is reported")
    trust.add_argument("--seed", type=at_least(0), default=0, help="of what is random")
    trust.set_defaults(measure=_reliability, timed=False)
    return parser


def _reliability(options: argparse.Namespace) -> Iterable[Figure]:
    return measure(options.names, {**vars(options), "rounds": options.rounds or 3})


def _step(options: argparse.Namespace) -> list[Ratio]:
    from benchmarks.step import overhead

    return [overhead(options.overrides, options.rounds or 5)]


def _parts(options: argparse.Namespace) -> Iterable[Ratio | Slope]:
    from benchmarks.parts import measure

    return measure(options.groups, options.device, options.rounds or 5)


def _launcher(options: argparse.Namespace) -> list[Ratio]:
    from benchmarks.launcher import throughput

    return [throughput(options.trials, options.steps, options.rounds or 1)]


def _mirror(options: argparse.Namespace) -> list[Ratio]:
    from benchmarks.mirror import overhead

    return [overhead(options.overrides, options.steps, options.rounds or 5)]


def _records(options: argparse.Namespace) -> list[Ratio]:
    from benchmarks.records import overhead

    return [overhead(options.overrides, options.steps, options.rounds or 5)]


def _data(options: argparse.Namespace) -> list[Ratio]:
    from benchmarks.data import waiting

    chosen = [override.removeprefix("task=") for override in options.overrides if override.startswith("task=")]
    others = [override for override in options.overrides if not override.startswith("task=")]
    return list(waiting(chosen, others, options.rounds or 3))


def _start(options: argparse.Namespace) -> list[Ratio]:
    from benchmarks.launcher import fixed_cost, help_time

    return [fixed_cost(options.rounds or 5), help_time(options.rounds or 5)]


def _corpus(options: argparse.Namespace) -> list[Figure]:
    from benchmarks.corpus import costs

    return costs(options.megabytes, tuple(options.tokenisers) or TOKENISERS)


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(sys.argv[1:]), "--debug" in sys.argv))
