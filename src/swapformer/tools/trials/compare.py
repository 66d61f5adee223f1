"""`swapformer trials compare`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.config import config_path, differences, read_config
from swapformer.tools.lookup import apart, store_of
from swapformer.tools.trials.listing import add_common

NOT_COMPARED = ("runs_dir", "logger")
"""Keys of a config that say where a trial is kept and shown, not what it is."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="swapformer trials compare", description="What two trials differ in: leaves of their configs, and metrics."
    )
    made.add_argument(
        "arguments", nargs="*", metavar="TRIAL TRIAL | runs_dir=…", help="the beginnings of two trials' ids"
    )
    add_common(made)
    return made


def main(arguments: Sequence[str]) -> int:
    """Print what two trials differ in; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    ids, overrides = apart(options.arguments)
    if len(ids) != 2:
        raise UsageError(f"two trials are compared, but {len(ids)} {'was' if len(ids) == 1 else 'were'} named")
    store = store_of(overrides)
    one, other = (store.find(prefix) for prefix in ids)
    configs = [
        {key: value for key, value in read_config(store.directory(record.id)).items() if key not in NOT_COMPARED}
        for record in (one, other)
    ]
    for record, config in zip((one, other), configs, strict=True):
        if not config:
            name = config_path(store.directory(record.id)).name
            raise UsageError(f"trial {record.id} has no {name} that can be read, so there is nothing to compare")
    config = differences(configs[0], configs[1])
    metrics = {name: (one.metrics[name], other.metrics[name]) for name in one.metrics if name in other.metrics}
    if options.json:
        print(json.dumps({"trials": [one.id, other.id], "config": config, "metrics": metrics}, indent=1))
        return 0
    rows = [("", one.id, other.id), ("status", one.status, other.status)]
    rows += [(name, _written(pair[0]), _written(pair[1])) for name, pair in config.items()]
    _columns(rows)
    print(f"{len(config)} leaves of the configs differ" if config else "the configs are the same")
    if metrics:
        print()
        _columns([(name, f"{a:.6g}", f"{b:.6g}", f"{b - a:+.4g}") for name, (a, b) in metrics.items()])
    return 0


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
