"""`python -m benchmarks`: one table of measurements, each with its options and the function that makes it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.measurement import Figure, Ratio, Slope, require_quiet_machine
from benchmarks.reliability import DISTURBANCES
from benchmarks.statistics import TABLES
from swapformer.console import OneOf, at_least, guarded
from swapformer.errors import suggest

if TYPE_CHECKING:
    from benchmarks.statistics import Simulated

GROUPS = ("kernels", "bias", "blocked", "memory", "linear", "decoder", "decode", "norms", "bf16")
"""The groups of parts that `parts` measures."""
TOKENISERS = ("characters", "bytes", "bpe", "wordpiece")
"""The tokenisers that `corpus` measures; `shards` are ids that need none."""


@dataclass(frozen=True)
class _Benchmark:
    """A row of the table.

    Attributes:
        text: one line about it.
        function: `module:name` of what makes the measurements; it takes the arguments, and `rounds`, by name.
        arguments: argparse's keywords for each argument, by its name.
        rounds: how often each side is measured by default; None where there are no rounds.
        timed: whether it needs a quiet machine.
    """

    text: str
    function: str
    arguments: Mapping[str, Mapping[str, Any]]
    rounds: int | None = 5
    timed: bool = True

    def load(self) -> Callable[..., Iterable[Ratio | Slope | Figure | Simulated]]:
        """The function, imported; torch takes seconds."""
        module, _, name = self.function.partition(":")
        found: Callable[..., Iterable[Ratio | Slope | Figure | Simulated]] = getattr(import_module(module), name)
        return found


def _overrides(*default: str, text: str = "the trial to train") -> Mapping[str, Any]:
    return {"nargs": "*", "metavar": "OVERRIDE", "default": [*default], "help": text}


def _words(what: str, words: tuple[str, ...]) -> Mapping[str, Any]:
    return {"nargs": "*", "type": OneOf(what, words), "metavar": what.upper(), "help": f"some of {', '.join(words)}"}


def _count(default: int, text: str, least: int = 1) -> Mapping[str, Any]:
    return {"type": at_least(least), "default": default, "help": f"{text} (default {default})"}


BENCHMARKS: Mapping[str, _Benchmark] = {
    "step": _Benchmark(
        "a training step against a bare PyTorch loop",
        "benchmarks.step:step_overhead",
        {"overrides": _overrides("+preset=nanogpt_cpu", "task/source=python")},
    ),
    "parts": _Benchmark(
        "kernels, biases, linear attention, the decoder, generation, norms, bfloat16",
        "benchmarks.parts:measure",
        {
            "groups": _words("group", GROUPS),
            "--device": {"choices": ("cpu", "cuda"), "help": "default: the CPU, and a CUDA device where there is one"},
        },
    ),
    "data": _Benchmark(
        "the wait of a training step for its batch, for every task",
        "benchmarks.step:data_time",
        {"overrides": _overrides(text="task=NAME for one task alone, and any other override")},
        rounds=3,
    ),
    "mirror": _Benchmark(
        "a training step mirrored offline to W&B against one not",
        "benchmarks.step:mirror_overhead",
        {
            "overrides": _overrides("model/size=nano", "task=text"),
            "--steps": _count(600, "optimiser steps of each measurement"),
        },
    ),
    "traffic": _Benchmark(
        "launches and bytes of a step of 124 M parameters, counted, and the least time that a device needs for them",
        "benchmarks.traffic:bounds",
        {"--device": {"choices": ("A100", "H100", "H200"), "default": "H100", "help": "default H100"}},
        rounds=None,
        timed=False,
    ),
    "corpus": _Benchmark(
        "speed and memory of tokenising a generated text",
        "benchmarks.corpus:costs",
        {
            "tokenisers": {**_words("tokeniser", (*TOKENISERS, "shards")), "default": TOKENISERS},
            "--megabytes": _count(100, "size of the text"),
        },
        rounds=None,
    ),
    "statistics": _Benchmark(
        "errors of verdicts, coverage and power, simulated for laws that seeds may follow",
        "benchmarks.statistics:measure",
        {
            "tables": _words("table", TABLES),
            "--studies": _count(10_000, "simulated studies of each law and number of seeds"),
            "--seed": _count(0, "seed of the simulation", least=0),
        },
        rounds=None,
        timed=False,
    ),
    "reliability": _Benchmark(
        "kills, full disks, cut files, clocks, large stores",
        "benchmarks.reliability:measure",
        {
            "names": _words("disturbance", DISTURBANCES),
            "--kills": _count(200, "SIGKILLs"),
            "--offsets": _count(50, "offsets at which files are cut, and sizes of the room on the disk"),
            "--listed": _count(10_000, "trials in the store that is listed"),
            "--reported": _count(1000, "trials in the study that is reported"),
            "--seed": _count(0, "seed of random choices", least=0),
        },
        rounds=3,
        timed=False,
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return 0: a target that is missed is a number, not a failure."""
    options = vars(parser().parse_args(arguments))
    chosen = BENCHMARKS[options.pop("benchmark")]
    force, as_json, _ = (options.pop(name) for name in ("force", "json", "debug"))
    if chosen.timed:
        require_quiet_machine(force)
    found = chosen.load()(**options)
    if as_json:
        print(json.dumps([asdict(measured) for measured in found], indent=1))
        return 0
    for measured in found:
        print(measured.line(), flush=True)
    return 0


class _Parser(argparse.ArgumentParser):
    """argparse whose error for an unknown benchmark suggests a known one."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in BENCHMARKS:
            self.error(f"no benchmark {value!r}{suggest(str(value), BENCHMARKS)}")
        super()._check_value(action, value)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser(
        prog="python -m benchmarks",
        description="Measures swapformer. A speed is a ratio within one run: two sides take turns.",
    )
    verbs = made.add_subparsers(dest="benchmark", metavar="BENCHMARK", required=True)
    for name, benchmark in BENCHMARKS.items():
        own = verbs.add_parser(name, help=benchmark.text, description=benchmark.text)
        for argument, keywords in benchmark.arguments.items():
            own.add_argument(argument, **keywords)
        if benchmark.rounds is not None:
            own.add_argument("--rounds", **_count(benchmark.rounds, "times that each side is measured"))
        own.add_argument("--force", action="store_true", help="measure on a loaded machine too")
        own.add_argument("--json", action="store_true", help="print JSON for scripts")
        own.add_argument("--debug", action="store_true", help="show tracebacks")
    return made


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(sys.argv[1:]), "--debug" in sys.argv))
