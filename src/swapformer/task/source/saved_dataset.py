"""Recognises folders that Hugging Face's `save_to_disk` has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError


def saved_splits(folder: Path) -> list[str]:
    """The names of the splits where a folder is a saved `DatasetDict`; else none."""
    described = _described(folder / "dataset_dict.json")
    if described is None:
        return []
    splits = described.get("splits")
    if not isinstance(splits, list) or not splits or not all(isinstance(split, str) for split in splits):
        raise _damaged(folder / "dataset_dict.json", "`splits` is no list of names")
    return splits


def saved_files(folder: Path) -> list[Path] | None:
    """The files of the rows where a folder is a saved `Dataset`; None if it is not."""
    if not (folder / "dataset_info.json").is_file():
        return None
    described = _described(folder / "state.json")
    if described is None:  # a folder of the library's cache, whose files of intermediate results begin with cache-
        return sorted(path for path in folder.glob("*.arrow") if not path.name.startswith("cache-")) or None
    try:
        names = [entry["filename"] for entry in described["_data_files"]]
    except (KeyError, TypeError):
        raise _damaged(folder / "state.json", "`_data_files` is no list of files") from None
    missing = [name for name in names if not isinstance(name, str) or not (folder / name).is_file()]
    if missing:
        raise _damaged(folder / "state.json", f"its file {missing[0]!r:.60} is not there")
    return [folder / name for name in names]


def _described(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(described, dict):
        raise _damaged(path, "it is no JSON object")
    return described


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{str(path)!r} must describe a saved data set, but {why}; save the data set again")
