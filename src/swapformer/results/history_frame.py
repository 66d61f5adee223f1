"""A trial's `metrics.csv` (`step,name,value`, one row per measured value) as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd

COLUMNS = ["step", "metric", "value"]


def read_history(path: Path, metrics: Sequence[str], problems: list[str]) -> pd.DataFrame:
    """The history of `metrics`: columns `step`, `metric`, `value`; empty where the trial left none.

    A line torn by a kill is left out. A trial that was resumed may have measured a step twice: the later row counts.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return _empty()
    whole = content[: content.rfind(b"\n") + 1]  # without its newline, a number may have lost digits
    if not whole.strip():
        return _empty()
    frame = _parse(whole, path, problems)
    frame = frame[frame["metric"].isin(list(metrics))]
    return frame.drop_duplicates(["step", "metric"], keep="last").sort_values(["metric", "step"], kind="stable")


def _parse(content: bytes, path: Path, problems: list[str]) -> pd.DataFrame:
    try:
        return pd.read_csv(
            BytesIO(content), header=0, names=COLUMNS, dtype={"step": "int64", "metric": "str", "value": "float64"}
        )
    except ValueError:  # a damaged row somewhere: read what can be read, more slowly
        lines = [line.split(",") for line in content.decode("utf-8", "replace").splitlines()[1:]]
        rows = [line for line in lines if len(line) == len(COLUMNS)]
        frame = pd.DataFrame(rows, columns=COLUMNS)
        frame["step"] = pd.to_numeric(frame["step"], errors="coerce")
        frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
        frame = frame.dropna(subset=["step"]).astype({"step": "int64"})
        problems.append(f"{path}: {len(lines) - len(frame)} damaged lines were left out")
        return frame


def _empty() -> pd.DataFrame:
    return pd.DataFrame({"step": pd.Series(dtype="int64"), "metric": pd.Series(dtype=str), "value": []})
