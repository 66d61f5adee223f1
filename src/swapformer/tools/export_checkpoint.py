"""`swapformer export`: writes a trained model as a Hugging Face checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from swapformer.console import CommandLine
from swapformer.errors import UsageError
from swapformer.interop import FORMATS, save
from swapformer.interop.tokeniser import FILE, their_tokeniser
from swapformer.results.config import built_from, require_config
from swapformer.results.record import FINISHED
from swapformer.results.store import last_checkpoint
from swapformer.results.vocabulary import read_vocabulary
from swapformer.tools.command_line import add_common, store_of
from swapformer.training.weights import read_weights


def main(arguments: Sequence[str]) -> int:
    """Write the trial's final weights and their configuration, and print where."""
    options = parser().parse_intermixed_args(arguments)
    store = store_of(options.overrides)
    record = store.find(options.trial)
    if record.status != FINISHED:
        raise UsageError(f"only a finished trial can be exported, but {record.id} is {record.status}")
    folder = store.directory(record.id)
    config = require_config(folder)
    weights = read_weights(last_checkpoint(folder))
    with built_from(folder):
        notes = [*save(config, weights, options.directory, options.format)]
    notes.append(_with_tokeniser(read_vocabulary(folder), options.directory))
    if options.json:
        print(json.dumps({"trial": record.id, "directory": str(options.directory), "notes": notes}, indent=1))
        return 0
    print(f"trial {record.id} in {options.directory}")
    for note in notes:
        print(f"note: {note}")
    return 0


def _with_tokeniser(vocabulary: str | None, directory: Path) -> str:
    """Write the trial's tokeniser next to its weights; returns a note for its user."""
    spec = None if vocabulary is None else their_tokeniser(vocabulary)
    if spec is None:
        return "its tokeniser is not among those of the library tokenizers: symbols are numbered as in the trial's task"
    (directory / FILE).write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
    return f"its tokeniser is in {FILE}; special tokens around a text are for you to add"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer export",
        description="Write a trained model as a checkpoint of Hugging Face transformers (config.json, safetensors).",
    )
    made.add_argument("trial", help="the beginning of a trial's id")
    made.add_argument("directory", type=Path, help="where to; made if it is not there")
    made.add_argument("overrides", nargs="*", metavar="runs_dir=…", help="the store")
    made.add_argument("--format", required=True, choices=FORMATS, help="the family of models")
    return add_common(made)
