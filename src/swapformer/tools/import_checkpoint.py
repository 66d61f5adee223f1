"""`swapformer import`: makes a Hugging Face checkpoint a file that trials start from."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from swapformer.console import CommandLine
from swapformer.errors import UsageError
from swapformer.interop import FORMATS, load
from swapformer.interop.tokeniser import FILE, read_tokeniser
from swapformer.tools.command_line import add_common
from swapformer.training.weights import write_weights


def main(arguments: Sequence[str]) -> int:
    """Read the checkpoint, write its weights under our names, and print the overrides of its model."""
    options = parser().parse_args(arguments)
    out = options.out or Path(f"{options.directory.absolute().name}.safetensors")
    if out.suffix != ".safetensors":
        raise UsageError(f"`--out` must end in .safetensors, but it is {out}")
    if out.exists():
        raise UsageError(f"{out} is there already; remove it, or choose another file with --out")
    found = load(options.directory)
    weights, tokens, notes = found.weights, None, [*found.notes]
    overrides = [*found.overrides, f"init_from={out}"]
    if (options.directory / FILE).is_file():
        try:
            vocabulary = read_tokeniser(options.directory / FILE, found.interface.vocab_size)
        except UsageError as error:
            notes.append(f"symbols keep their numbers and have no tokeniser here: {error}")
        else:
            beside, tokens, weights = out.with_suffix(".json"), vocabulary.tokens, vocabulary.numbered(weights)
            write_text(beside, vocabulary.text)
            overrides += ["task/tokeniser=trained", f"task.tokeniser.path={beside}"]
    write_weights(out, weights, found.readout, tokens, found.heads)
    if options.json:
        summary = {
            "file": str(out),
            "architecture": found.architecture,
            "vocab_size": found.interface.vocab_size,
            "overrides": overrides,
            "notes": notes,
        }
        print(json.dumps(summary, indent=1))
        return 0
    print(f"{found.architecture}: {len(found.weights)} tensors, {found.interface.vocab_size} symbols, in {out}")
    for note in notes:
        print(f"note: {note}")
    print("to start from them, give a task with these symbols and" if tokens is None else "to start from them:")
    print(shlex.join(overrides))
    return 0


def write_text(path: Path, text: str) -> None:
    """Write a new file. Raises UsageError if it is there already or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} must be a new file that can be written, but: {error.strerror}") from error


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer import",
        description="Make a checkpoint of Hugging Face transformers a file that trials start from, and print the "
        f"overrides of its model. Families: {', '.join(FORMATS)}.",
    )
    made.add_argument("directory", type=Path, help="holds config.json and model.safetensors, or shards with an index")
    made.add_argument("--out", type=Path, help="file to write; default: the directory's name, here")
    return add_common(made)
