"""What a command line names: the store, and a study that was run in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swapformer.catalogue import default_runs_dir
from swapformer.errors import UsageError, suggest
from swapformer.results.store import Store
from swapformer.study.config import overrides as texts


def store_of(overrides: Sequence[str]) -> Store:
    """The store at `runs_dir=…`, or at its default place.

    Raises:
        UsageError: if anything else is overridden, or nothing was ever run there: an empty list would say that there is
            a store without trials.
    """
    for override in overrides:
        if texts.key(override) != "runs_dir":
            raise UsageError(f"only runs_dir=… can be given here, not {override!r}")
    store = Store(Path(texts.value(overrides, "runs_dir") or default_runs_dir()))
    if not store.exists:
        raise UsageError(
            f"there is no store in {store.runs_dir}: nothing was run there yet; runs_dir=… names another place"
        )
    return store


def apart(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names among a command's arguments, and its overrides."""
    return [text for text in arguments if "=" not in text], [text for text in arguments if "=" in text]


def studies(store: Store) -> list[str]:
    """The names of the studies that were run in a store."""
    return [folder.name for folder in store.study_folders()]


def study_folder(store: Store, name: str) -> Path:
    """The folder of the study whose name starts with `name`.

    Raises:
        UsageError: unless exactly one does.
    """
    known = studies(store)
    matches = [name] if name in known else [other for other in known if other.startswith(name)]
    if len(matches) != 1:
        why = f"fits {', '.join(matches)}" if matches else f"is not in {store.studies}{suggest(name, known)}"
        raise UsageError(f"the study must be one that was run here, but {name!r} {why}")
    return store.studies / matches[0]
