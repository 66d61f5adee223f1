"""Which trials are meant, and one line about each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from swapformer.console import OneOf
from swapformer.errors import UsageError, suggest
from swapformer.results.config import matches
from swapformer.results.record import STATUSES, Record
from swapformer.results.store import Store
from swapformer.results.trial_index import Member

SHOWN = ("val/loss", "val/accuracy", "val/exact_match")
Places = Mapping[str, Sequence[Member]]


def add_filters(parser: argparse.ArgumentParser) -> None:
    """The options that choose trials."""
    parser.add_argument(
        "--status", type=OneOf("status", STATUSES), help=f"only trials with this status: {', '.join(STATUSES)}"
    )
    parser.add_argument("--study", help="only trials of studies whose names begin so")
    parser.add_argument("--arm", help="only trials of this arm of a study")
    parser.add_argument(
        "--config", metavar="TEXT", help="only trials whose config holds TEXT, or has the leaf KEY=VALUE"
    )
    add_common(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options of every command."""
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def chosen(store: Store, ids: Sequence[str], options: argparse.Namespace, places: Places) -> list[Record]:
    """The records that the filters let through.

    Raises:
        UsageError: for a study or an arm that there is not.
    """
    _require_known(options, places)

    def fits(record: Record) -> bool:
        if options.status not in (None, record.status):
            return False
        of = [
            place
            for place in places.get(record.id, ())
            if place.study.startswith(options.study or "") and options.arm in (None, place.arm)
        ]
        if (options.study is not None or options.arm is not None) and not of:
            return False
        return options.config is None or matches(store.directory(record.id), options.config)

    found = [store.find(prefix) for prefix in ids] if ids else store.records()
    return [record for record in found if fits(record)]


def filtered(options: argparse.Namespace) -> bool:
    """Whether any of the options that choose trials was given."""
    return any(getattr(options, name) is not None for name in ("status", "study", "arm", "config"))


def _require_known(options: argparse.Namespace, places: Places) -> None:
    """Refuse a study or an arm that no manifest names: an empty list would say that it has no trials."""
    known = {place for several in places.values() for place in several}
    if options.study is not None and not any(place.study.startswith(options.study) for place in known):
        raise UsageError(f"no study {options.study!r} in this store{suggest(options.study, {p.study for p in known})}")
    arms = {place.arm for place in known if place.study.startswith(options.study or "")}
    if options.arm is not None and options.arm not in arms:
        raise UsageError(f"no arm {options.arm!r}{suggest(options.arm, arms)}")


def line(record: Record, places: Sequence[Member]) -> str:
    """What a list shows of a trial."""
    parts = [record.id, f"{record.status:11}", f"seed {record.seed}", record.started[:19]]
    parts += ["  ".join(f"{name} {record.metrics[name]:.4g}" for name in SHOWN if name in record.metrics)]
    parts += [*map(str, places)]
    if record.attempts > 1:
        parts.append(f"attempt {record.attempts}")
    if record.reason:
        parts.append(record.reason.splitlines()[0])
    return "  ".join(parts).rstrip()
