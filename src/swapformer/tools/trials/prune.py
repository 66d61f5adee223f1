"""`swapformer trials prune`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from swapformer.errors import UsageError
from swapformer.results.prune import Waste, find_waste, remove
from swapformer.results.record import FINAL
from swapformer.results.trial_index import members
from swapformer.tools.lookup import apart, store_of
from swapformer.tools.trials.listing import add_filters, chosen, line


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="swapformer trials prune",
        description="Make room: show what would go and how many bytes; with --remove, remove it. The checkpoints of "
        "trials that have their result go; the numbers stay. A trial that is running is never touched.",
    )
    made.add_argument("arguments", nargs="*", metavar="TRIAL | runs_dir=…", help="the beginning of a trial's id")
    add_filters(made)
    made.add_argument("--whole", action="store_true", help="whole trials, numbers and all: studies train them anew")
    made.add_argument("--orphans", action="store_true", help="only trials that no study of the store has")
    made.add_argument("--remove", action="store_true", help="remove, after asking, what is only shown otherwise")
    made.add_argument("--yes", action="store_true", help="do not ask")
    return made


def main(arguments: Sequence[str]) -> int:
    """Show what would go, or remove it; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    ids, overrides = apart(options.arguments)
    store = store_of(overrides)
    places = members(store)
    records = chosen(store, ids, options, places)
    if options.status is None:  # without its checkpoint a trial that has no result would have to begin again
        records = [record for record in records if options.whole or record.status in FINAL]
    if options.orphans:
        records = [record for record in records if record.id not in places]
    found = list(find_waste(store, records, options.whole))
    sure = options.remove and bool(found) and (options.yes or _asked(found, options.whole))
    gone = [waste for waste in found if remove(store, waste)] if sure else []
    if options.json:
        plain = [{"trial": w.record.id, "status": w.record.status, "bytes": w.bytes} for w in found]
        print(json.dumps({"found": plain, "removed": [waste.record.id for waste in gone]}, indent=1))
    elif not sure:
        for waste in found:
            print(f"{_size(waste.bytes):>8}  {line(waste.record, places.get(waste.record.id, ()))}")
        print(f"{_summary(found, options.whole)}{'; nothing was removed' if found else ''}")
        if found and not options.remove:
            print("add --remove to remove them")
    else:
        print(f"removed {_summary(gone, options.whole)}")
    return 0


def _asked(found: Sequence[Waste], whole: bool) -> bool:
    """Whether the user agrees.

    Raises:
        UsageError: where nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise UsageError("whether to remove has to be asked, but this is no terminal; give --yes too")
    return input(f"remove {_summary(found, whole)}? [y/N] ").strip().lower() in ("y", "yes")


def _summary(found: Sequence[Waste], whole: bool) -> str:
    what = "whole trials" if whole else "trials' checkpoints"
    return f"{len(found)} {what}, {_size(sum(waste.bytes for waste in found))}"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
