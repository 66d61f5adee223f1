"""`swapformer baseline`: measures predictors that only count tokens and their neighbours, on a task on a text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swapformer.console import CommandLine
from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.study.config.compose import compose, task_of
from swapformer.task import TextTask
from swapformer.task.ngram_baselines import measure
from swapformer.task.text_task import BlockTask
from swapformer.tools.command_line import add_common, columns


def main(arguments: Sequence[str]) -> int:
    """Print the task's metrics of each baseline; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    config = compose(options.overrides)
    task = task_of(config)
    asked = isinstance(task, TextTask) and task.interface.readouts[MAIN].kind == "symbols"
    if not isinstance(task, TextTask) or not asked or task.start_token is not None:  # answers to a source are no text
        raise UsageError(
            f"what is asked must be symbols of the text that is counted, but those of {type(task).__name__} are not; "
            "use task=text, masked or masked_nsp"
        )
    if not task.evaluation(options.split):
        raise UsageError(f"the {options.split} split must have text, but it has none; use another --split")
    found = measure(task, options.split, config["eval"]["final_batches"], _seen(task, config) if options.seen else None)
    print(json.dumps(found, indent=1) if options.json else _table(found, options.split))
    return 0


def _seen(task: TextTask, config: Mapping[str, Any]) -> NDArray[np.bool_]:
    """The tokens of the training text that a trial with this configuration is trained on."""
    if not isinstance(task, BlockTask):
        raise UsageError(f"--seen counts blocks of a text, which {type(task).__name__} has none of; leave it out")
    steps = config["budget"]["steps"]
    if not steps:
        raise UsageError("--seen needs the steps that are trained, such as budget.steps=1000; state them")
    return task.seen(config["data_seed"], steps)


def _table(found: Mapping[str, Mapping[str, float]], split: str) -> str:
    names = [name for name in next(iter(found.values())) if not name.endswith("_se")]
    rows = [[kind, *(f"{values[name]:.4f}" for name in names)] for kind, values in found.items()]
    return columns([[split, *names], *rows], right=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer baseline",
        description="What counting achieves: the commonest token, the one behind the last one, two, three or four, "
        "the one between two. "
        "Measured on the batches that a trial with these overrides is evaluated on after training.",
    )
    made.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="the task, as for `swapformer train`: task=masked task.block=128",
    )
    made.add_argument("--split", choices=("val", "test"), default="val")
    made.add_argument(
        "--seen",
        action="store_true",
        help="count only what a trial with these overrides is trained on, within its budget",
    )
    return add_common(made)
