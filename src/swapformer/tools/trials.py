"""`swapformer trials`: lists, shows, compares and prunes the trials of a store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from swapformer.console import CommandLine, OneOf
from swapformer.errors import UsageError, suggest
from swapformer.report import number_format
from swapformer.results.config import differences, matches, require_config
from swapformer.results.prune import Waste, find_waste, remove
from swapformer.results.record import CORRUPT, FINAL, MISSING, STATUSES, Record
from swapformer.results.store import Store
from swapformer.results.trial_index import Member, members
from swapformer.tools.command_line import add_common, columns, names_and_overrides, store_of

SHOWN = ("val/loss", "val/accuracy", "val/exact_match")
"""Metrics that a list shows."""
LISTED = (*STATUSES, CORRUPT, MISSING)
"""The statuses that a list may show: without a record, or with a damaged one, a trial is there all the same."""
NOT_COMPARED = ("runs_dir", "logger")
"""Keys of a config that say where a trial is stored and shown, not what it is."""

Members = Mapping[str, Sequence[Member]]
"""Trial id → the cells of studies that have it."""


def main(arguments: Sequence[str]) -> int:
    """List trials, or compare or prune them if that is the first word; returns the exit status."""
    verb = arguments[0] if arguments and arguments[0] in ("compare", "prune") else ""
    options = parsers()[verb].parse_intermixed_args(arguments[bool(verb) :])
    ids, overrides = names_and_overrides(options.arguments)
    if verb == "compare" and len(ids) != 2:
        raise UsageError(f"two trials are compared, but {len(ids)} {'was' if len(ids) == 1 else 'were'} named")
    store = store_of(overrides)
    if verb == "compare":
        return _compare(store, ids[0], ids[1], options.json)
    index = members(store)
    records = _selected(store, ids, options, index)
    if verb == "prune":
        return _prune(store, records, options, index)
    return _list(store, records, options, index, whole=bool(ids))


def parsers() -> Mapping[str, argparse.ArgumentParser]:
    """All command lines by their first word."""
    listing = CommandLine(
        prog="swapformer trials",
        description="The trials in the store, or those whose ids begin with TRIAL.",
        epilog="Also: swapformer trials compare A B, and swapformer trials prune; each has its --help.",
    )
    comparing = CommandLine(
        prog="swapformer trials compare", description="What two trials differ in: leaves of their configs, and metrics."
    )
    comparing.add_argument(
        "arguments", nargs="*", metavar="TRIAL TRIAL | runs_dir=…", help="the beginnings of two trials' ids"
    )
    pruning = CommandLine(
        prog="swapformer trials prune",
        description="Make room: show what would go and how many bytes; with --remove, remove it. The checkpoints of "
        "trials that have their result go; the numbers stay. A trial that is running is never touched.",
    )
    for made in (listing, pruning):
        made.add_argument("arguments", nargs="*", metavar="TRIAL | runs_dir=…", help="the beginning of a trial's id")
        made.add_argument(
            "--status", type=OneOf("status", LISTED), help=f"only trials with this status: {', '.join(LISTED)}"
        )
        made.add_argument("--study", help="only trials of this study, or of those whose names begin so")
        made.add_argument("--arm", help="only trials of this arm of a study")
        made.add_argument(
            "--config", metavar="TEXT", help="only trials whose config holds TEXT, or has the leaf KEY=VALUE"
        )
    pruning.add_argument("--whole", action="store_true", help="whole trials, numbers and all: studies train them anew")
    pruning.add_argument("--orphans", action="store_true", help="only trials that no study of the store has")
    pruning.add_argument("--remove", action="store_true", help="remove, after asking, what is only shown otherwise")
    pruning.add_argument("--yes", action="store_true", help="do not ask")
    return {"": add_common(listing), "compare": add_common(comparing), "prune": add_common(pruning)}


def _selected(store: Store, ids: Sequence[str], options: argparse.Namespace, index: Members) -> list[Record]:
    """The records that the filters let through.

    Raises UsageError for a study or an arm that no manifest names: an empty list would say that it has no trials.
    """
    known = {member for several in index.values() for member in several}
    names, prefix = {member.study for member in known}, options.study or ""
    studies = {prefix} & names or {name for name in names if name.startswith(prefix)}
    if prefix and not studies:
        raise UsageError(f"no study {prefix!r} in this store{suggest(prefix, names)}")
    arms = {member.arm for member in known if member.study in studies}
    if options.arm is not None and options.arm not in arms:
        raise UsageError(f"no arm {options.arm!r}{suggest(options.arm, arms)}")

    def fits(record: Record) -> bool:
        if options.status not in (None, record.status):
            return False
        if (options.study is not None or options.arm is not None) and not any(
            member.study in studies and options.arm in (None, member.arm) for member in index.get(record.id, ())
        ):
            return False
        return options.config is None or matches(store.directory(record.id), options.config)

    found = [store.look(store.resolve(prefix)) for prefix in ids] if ids else store.records()
    return [record for record in found if fits(record)]


def _list(store: Store, records: Sequence[Record], options: argparse.Namespace, index: Members, *, whole: bool) -> int:
    """Print a line for each trial, or with `whole` its record and where it belongs."""
    if not records:
        filtered = any(getattr(options, name) is not None for name in ("status", "study", "arm", "config"))
        print(f"swapformer: no trial {'matches' if filtered else f'in {store.trials}'}", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(record) for record in records], indent=1))
    elif whole:
        for record in records:
            print(record.to_json(), end="")
            print(f"in {store.directory(record.id)}")
            for member in index.get(record.id, ()):
                print(f"of {member}")
    else:
        sys.stdout.writelines(f"{_line(record, index)}\n" for record in records)
    return 0


def _line(record: Record, index: Members) -> str:
    parts = [record.id, f"{record.status:11}", f"seed {record.seed}", record.started[:19]]
    parts += ["  ".join(f"{name} {record.metrics[name]:.4g}" for name in SHOWN if name in record.metrics)]
    parts += map(str, index.get(record.id, ()))
    if record.attempts > 1:
        parts.append(f"attempt {record.attempts}")
    if record.reason:
        parts.append(next(iter(record.reason.splitlines()), ""))
    return "  ".join(parts).rstrip()


def _compare(store: Store, first: str, second: str, as_json: bool) -> int:
    """Print the leaves of their configs, and the metrics, in which two trials differ."""
    one, other = store.find(first), store.find(second)
    configs = [
        {key: value for key, value in require_config(store.directory(record.id)).items() if key not in NOT_COMPARED}
        for record in (one, other)
    ]
    config = differences(configs[0], configs[1])
    metrics = {name: (one.metrics[name], other.metrics[name]) for name in one.metrics if name in other.metrics}
    if as_json:
        print(json.dumps({"trials": [one.id, other.id], "config": config, "metrics": metrics}, indent=1))
        return 0
    rows = [("", one.id, other.id), ("status", one.status, other.status)]
    for name, pair in config.items():
        first, second = (value if isinstance(value, str) else json.dumps(value) for value in pair)
        rows.append((name, first, second))
    print(columns(rows))
    print(f"{len(config)} leaves of the configs differ" if config else "the configs are the same")
    if metrics:
        print()
        print(columns([(name, f"{a:.6g}", f"{b:.6g}", f"{b - a:+.4g}") for name, (a, b) in metrics.items()]))
    return 0


def _prune(store: Store, records: Sequence[Record], options: argparse.Namespace, index: Members) -> int:
    """Show what would go, or remove it."""
    if options.status is None:  # without its checkpoint a trial that has no result would have to begin again
        records = [record for record in records if options.whole or record.status in FINAL]
    if options.orphans:
        records = [record for record in records if record.id not in index]
    found = list(find_waste(store, records, options.whole))
    sure = options.remove and bool(found) and (options.yes or _confirmed(found, options.whole))
    gone = [waste for waste in found if remove(store, waste)] if sure else []
    if options.json:
        plain = [{"trial": w.record.id, "status": w.record.status, "bytes": w.bytes} for w in found]
        print(json.dumps({"found": plain, "removed": [waste.record.id for waste in gone]}, indent=1))
    elif sure:
        print(f"removed {_summary(gone, options.whole)}")
    else:
        for waste in found:
            print(f"{number_format.size(waste.bytes):>8}  {_line(waste.record, index)}")
        print(f"{_summary(found, options.whole)}{'; nothing was removed' if found else ''}")
        if found and not options.remove:
            print("add --remove to remove them")
    return 0


def _confirmed(found: Sequence[Waste], whole: bool) -> bool:
    """Whether the user agrees. Raises UsageError where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UsageError("whether to remove has to be asked, but this is no terminal; give --yes too")
    return input(f"remove {_summary(found, whole)}? [y/N] ").strip().lower() in ("y", "yes")


def _summary(found: Sequence[Waste], whole: bool) -> str:
    what = "whole trials" if whole else "trials' checkpoints"
    return f"{len(found)} {what}, {number_format.size(sum(waste.bytes for waste in found))}"
