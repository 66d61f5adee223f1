"""Shared by the commands: common options, the store and study that a command line names, columns of text."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from swapformer.catalogue import default_runs_dir
from swapformer.errors import UsageError, suggest
from swapformer.results.store import Store
from swapformer.study.config import overrides as texts

log = logging.getLogger(__name__)


def add_common(parser: argparse.ArgumentParser, *, json: bool = True) -> argparse.ArgumentParser:
    """Add --json, where the command has it, and --debug to a parser."""
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def store_of(overrides: Sequence[str]) -> Store:
    """The store at `runs_dir=…`, or at its default path.

    Raises UsageError if anything else is overridden, or nothing was ever run there: an empty list would say that there
    is a store without trials.
    """
    for override in overrides:
        if texts.key(override) != "runs_dir":
            raise UsageError(f"only runs_dir=… can be given here, not {override!r}")
    store = Store(Path(texts.value(overrides, "runs_dir") or default_runs_dir()))
    if not store.exists:
        raise UsageError(
            f"there is no store in {store.runs_dir}: nothing was run there yet; runs_dir=… names another path"
        )
    return store


def names_and_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without an equals sign, and those with one."""
    return [text for text in arguments if "=" not in text], [text for text in arguments if "=" in text]


def studies(store: Store) -> list[str]:
    """The names of the studies that were run in a store."""
    return [store.study_name(folder) for folder in store.study_folders()]


def study_folder(store: Store, name: str) -> Path:
    """The folder of the study whose name starts with `name`. Raises UsageError unless exactly one does."""
    known = studies(store)
    matches = [name] if name in known else [other for other in known if other.startswith(name)]
    if len(matches) != 1:
        why = f"fits {', '.join(matches)}" if matches else f"is not in {store.studies}{suggest(name, known)}"
        raise UsageError(f"the study must be one that was run here, but {name!r} {why}")
    if matches[0] != name:
        log.warning("%s is short for %s, the only study here whose name begins with it", name, matches[0])
    return store.studies / matches[0]


def columns(rows: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Rows of text with aligned columns; with `right`, all but the first column are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [f"{cell:{'>' if right and index else '<'}{width}}" for index, (cell, width) in enumerate(cells)]
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join("  ".join(row).rstrip() for row in aligned)
