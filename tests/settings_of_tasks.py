"""What the tests must know of each task's settings: how it is made small, and what each may be changed to."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIBRARY = Path(inspect.getfile(inspect)).parent
ROWS = Path(__file__).parent / "task" / "rows.jsonl"

_FEW_FILES = [
    *("task/source=files", f"task.source.path={LIBRARY}/asyncio/*.py"),
    *("task.split=[0.5,0.25,0.25]", "task.tokeniser.vocab_size=500"),
]
_ROWS_FILE = [f"task.source.path={ROWS}"]
_FEW_PACKAGES = ["task.source.packages=[json,wsgiref]", "task.split=[0.6,0.15,0.25]"]

SMALL: dict[str, list[str]] = {
    **dict.fromkeys(("masked", "masked_nsp", "spans"), _FEW_FILES),
    **dict.fromkeys(("roles", "source_code"), _FEW_PACKAGES),
    **dict.fromkeys(("classification", "regression", "sequence_to_sequence"), _ROWS_FILE),
    "packages": ["task.source.packages=[asyncio,email]"],
    "function_names": ["task.source.packages=[concurrent,json,wsgiref,zoneinfo]", "task.split=[0.6,0.15,0.25]"],
}
"""Overrides by task: what it lacks, or what makes it quick."""

NEEDED: dict[str, dict[str, Any]] = {"reset_positions": {"packing": "documents"}}
"""What must be set for a setting to be read."""

NOTHING_TO_CHANGE = {
    ("elnino", "across"), ("sunspots", "across"), ("co2", "across"), ("packages", "label"), ("packages", "second"),
    ("function_names", "target"),
}  # fmt: skip
"""El Niño's 61 rows are too few to be cut otherwise; of one column no other can follow; a source of one column."""

CHANGES: dict[str, Any] = {
    "back": 2,
    "symbols": 77, "distinct": 3, "eval_lengths": ["3x"], "batch_size": 5,
    "eval_batch_size": 1, "digits": 2, "eval_digits": [6],
    "train_samples": 50, "split": [0.8, 0.1, 0.1], "block": 48, "stride": 16, "packing": "documents", "modulus": 89,
    "fraction": 0.4, "kinds": 4, "depth": 5, "opening": 0.7, "periods": [2, 5], "strides": 3, "distractors": 5,
    "keys": 50, "values": 50, "queries": 2, "spread": 5, "power": 0.5, "names": 70, "features": 3, "words": 9,
    "order": "shuffled",
    "noise": 9, "speakers": 4, "topics": 3, "entities": 50, "relations": 3, "forms": 3, "table": 1, "arguments": 5,
    "rate": 0.3, "masked": 0.5, "random": 0.05, "mean_length": 2.0, "sentinels": 50, "label": "kind",
    "length": 9000, "persistence": 0.5, "event_every": 20, "delay": 9, "level": 0.5, "series": 1,
    "second": "second", "target": "second", "answer": 9,
    "source": {"_target_": "swapformer.task.source.Files", "path": inspect.getfile(inspect)},
    "tokeniser": {"_target_": "swapformer.task.tokeniser.Bytes"},
}  # fmt: skip
"""What a setting may be changed to; what is true or false is changed to the other."""

_SERIES = {"columns": None, "block": 54, "eval_lengths": [60], "season": 7, "split": [0.5, 0.3, 0.2]}

_OTHER_FILES = {"_target_": "swapformer.task.source.Files", "path": f"{LIBRARY}/email/*.py"}
_TEXT = {"split": [0.4, 0.3, 0.3], "source": _OTHER_FILES}
_ROWS = {
    "split": [0.6, 0.2, 0.2],
    "source": {"_target_": "swapformer.task.source.Files", "path": str(ROWS), "column": "second"},
}
_PACKAGES = {
    "split": [0.5, 0.2, 0.3],
    "source": {"_target_": "swapformer.task.source.Library", "packages": ["json", "wsgiref", "dbm"]},
}
_FUNCTIONS = {"_target_": "swapformer.task.source.Functions", "packages": ["concurrent", "wsgiref", "json"]}
_SNIPPETS = {"_target_": "swapformer.task.source.Snippets", "packages": ["asyncio", "email"], "lines": 3}

OTHER_CHANGES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("elnino", "sunspots", "co2"), _SERIES),
    **dict.fromkeys(("masked", "masked_nsp", "spans"), _TEXT),
    **dict.fromkeys(("roles", "source_code"), _PACKAGES),
    **dict.fromkeys(("classification", "sequence_to_sequence"), _ROWS),
    "regression": _ROWS | {"values": ["value", "other"]},
    "packages": {"source": _SNIPPETS},
    "seasons": {"periods": [10, 60], "noise": 0.5, "eval_lengths": [300]},
    "function_names": {"split": [0.5, 0.2, 0.3], "source": _FUNCTIONS},
}
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
    if name == "lengths":
        return [defaults[name][0], defaults[name][1] - 1]
    return not defaults[name] if isinstance(defaults[name], bool) else CHANGES[name]


def series(path: Path, columns: Sequence[str]) -> str:
    """A CSV file with these columns of numbers."""
    lines = [",".join(columns)] + [",".join([str(n * n % 17)] * len(columns)) for n in range(900)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)
