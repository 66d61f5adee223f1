"""`swapformer show`: draws a part to a file, or prints some items of a task."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from swapformer.console import CommandLine
from swapformer.errors import UsageError, suggest
from swapformer.report.figures.svg import settings
from swapformer.study.config.compose import compose, task_of
from swapformer.tools.command_line import add_common
from swapformer.tools.drawings import DRAWINGS, OVERLAYS
from swapformer.tools.task_items import describe

SIZES = ["task=copy", "model.num_layers=8", "model.d_model=64", "model.num_heads=8", "model.max_len=256"]


def main(arguments: Sequence[str]) -> int:
    """Draw the part and print the file's path, or describe a task."""
    options = parser().parse_intermixed_args(arguments)
    if options.part.startswith("task="):
        if options.out is not None:
            raise UsageError("a task is shown in words, without a file; leave `--out` away.")
        print(text_of_task(options.part, options.overrides))
        return 0
    path = Path(options.out or f"{options.part.removeprefix('model/').replace('=', '_')}.svg")
    if path.suffix not in (".svg", ".png"):
        raise UsageError(f"`--out` must end in .svg or .png, but it is {path}.")
    figure = figure_of_part(options.part, options.overrides)
    with settings():
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise UsageError(f"`--out` must be a file that can be written, but {path} cannot: {error}") from error
    print(path)
    return 0


def figure_of_part(part: str, overrides: Sequence[str] = ()) -> Figure:
    """The picture of a part, given as `model/SLOT=OPTION` or several options, in a model of 8 layers of width 64.

    Raises:
        UsageError: if the slot has no picture, or the part refuses its settings.
    """
    slot = part.partition("=")[0].removeprefix("model/")
    if slot not in DRAWINGS or not part.startswith("model/") or "=" not in part:
        raise UsageError(
            "what can be shown is task=… or a part as model/SLOT=OPTION, but "
            f"{part!r} is neither{suggest(slot, DRAWINGS)}"
        )
    names = part.partition("=")[2].split(",")
    if len(names) > 1 and slot not in OVERLAYS:
        raise UsageError(
            f"several parts can be drawn together only of {', '.join(OVERLAYS)}; name one of model/{slot}."
        )
    configs = {name: compose([*SIZES, f"model/{slot}={name}", *overrides]) for name in names}
    with settings():
        try:
            figure = DRAWINGS[slot](configs[names[0]]) if len(names) == 1 else OVERLAYS[slot](configs)
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from error
        figure.suptitle(f"{part} {' '.join(overrides)}".strip(), fontsize=11, x=0.02, ha="left")
    return figure


def text_of_task(task: str, overrides: Sequence[str] = ()) -> str:
    """Some items of a task, given as `task=OPTION`, as lines of text."""
    return "\n".join(describe(task_of(compose([task, *overrides]))))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(prog="swapformer show", description="A part draws itself, to a file; a task shows its items.")
    made.add_argument(
        "part",
        help="model/position=alibi; also pattern, activation (several: relu,gelu), normaliser, init; or task=copy",
    )
    made.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="as for swapformer train, such as model.position.decay=4"
    )
    made.add_argument("--out", help="file.svg or file.png; default: the part's name, here")
    return add_common(made, json=False)
