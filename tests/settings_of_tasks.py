"""What the tests must know of each task's settings: how it is made small, and what each may be changed to."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SMALL: dict[str, list[str]] = {}
"""Overrides by task: what it lacks, or what makes it quick."""

NEEDED: dict[str, dict[str, Any]] = {"reset_positions": {"packing": "documents"}}
"""What must be set for a setting to be read."""

NOTHING_TO_CHANGE = {("elnino", "across"), ("sunspots", "across"), ("co2", "across")}
"""El Niño's 61 rows are too few to be cut otherwise; of one column no other can follow."""

CHANGES: dict[str, Any] = {
    "symbols": 77, "distinct": 3, "eval_lengths": ["3x"], "batch_size": 5, "digits": 2, "eval_digits": [6],
    "train_samples": 50, "split": [0.8, 0.1, 0.1], "block": 48, "stride": 16, "packing": "documents", "modulus": 89,
    "fraction": 0.4, "kinds": 4, "depth": 5, "opening": 0.7, "periods": [2, 5], "strides": 3, "distractors": 5,
    "keys": 50, "values": 50, "queries": 2, "spread": 5, "power": 0.5, "names": 70, "features": 3, "words": 9,
    "noise": 9, "speakers": 4, "topics": 3, "entities": 50, "relations": 3, "forms": 3, "table": 1, "arguments": 5,
    "source": {"_target_": "swapformer.task.source.Files", "path": inspect.getfile(inspect)},
    "tokeniser": {"_target_": "swapformer.task.tokeniser.Bytes"},
}  # fmt: skip
"""What a setting may be changed to; what is true or false is changed to the other."""

_SERIES = {"columns": None, "block": 54, "eval_lengths": [60], "season": 7, "split": [0.5, 0.3, 0.2]}

OTHER_CHANGES: dict[str, dict[str, Any]] = {"elnino": _SERIES, "sunspots": _SERIES, "co2": _SERIES}
"""Where a task's setting is another than its namesake elsewhere."""


def change_of(task: str, name: str, defaults: Mapping[str, Any], folder: Path) -> Any:
    """Another value for a setting of a task; files that it names are written into `folder`."""
    if name == "lengths":
        shortest, longest = defaults[name]
        return [shortest, longest - 1]
    if name == "path":
        return series(folder / "series.csv", defaults["columns"])
    own = OTHER_CHANGES.get(task, {})
    if name in own:
        return own[name]
    return not defaults[name] if isinstance(defaults[name], bool) else CHANGES[name]


def series(path: Path, columns: Sequence[str]) -> str:
    """A CSV file with these columns of numbers."""
    lines = [",".join(columns)] + [",".join([str(n * n % 17)] * len(columns)) for n in range(900)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)
