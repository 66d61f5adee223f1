"""`swapformer trials`: the trials of a store listed, shown, compared and pruned."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from swapformer.results.trial_index import members
from swapformer.tools.lookup import apart, store_of
from swapformer.tools.trials import compare, prune
from swapformer.tools.trials.listing import add_filters, chosen, filtered, line

_VERBS = {"compare": compare, "prune": prune}


def main(arguments: Sequence[str]) -> int:
    """List trials, or compare or prune them when the first word says so; returns the exit status."""
    if arguments and arguments[0] in _VERBS:
        return _VERBS[arguments[0]].main(arguments[1:])
    options = parser().parse_intermixed_args(arguments)
    ids, overrides = apart(options.arguments)
    store = store_of(overrides)
    places = members(store)
    found = chosen(store, ids, options, places)
    if not found:
        print(f"swapformer: no trial {'matches' if filtered(options) else f'in {store.trials}'}", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(record) for record in found], indent=1))
    elif ids:
        for record in found:
            print(record.to_json(), end="")
            print(f"in {store.directory(record.id)}")
            for place in places.get(record.id, ()):
                print(f"of {place}")
    else:
        sys.stdout.writelines(f"{line(record, places.get(record.id, ()))}\n" for record in found)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line without a first word of its own."""
    made = argparse.ArgumentParser(
        prog="swapformer trials",
        description="The trials in the store, or those whose ids begin with TRIAL.",
        epilog="Also: swapformer trials compare A B, and swapformer trials prune; each has its --help.",
    )
    made.add_argument("arguments", nargs="*", metavar="TRIAL | runs_dir=…", help="the beginning of a trial's id")
    add_filters(made)
    return made


def parsers() -> Mapping[str, argparse.ArgumentParser]:
    """All command lines by their first word."""
    return {"": parser()} | {verb: module.parser() for verb, module in _VERBS.items()}
