"""Heat maps of the matrices in a trial's artifacts, and the numbers that its probes measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swapformer.results.artifacts import read_artifacts

MAX_PICTURES = 48
"""Pictures of one trial; what is beyond is left out, the numbers are in the artifact."""
_SIDE = 160
"""Pixels that a small matrix is enlarged to."""


def draw_heatmaps(trial: Path, folder: Path, asked: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Draw the matrices that probes left in the folder of a trial as PNG files in `folder`, by name; light is large.

    `asked` as for `read_artifacts`.
    """
    drawn: dict[str, Path] = {}
    data = {f"probe/{probe}": artifact.data for probe, artifact in read_artifacts(trial, [], asked).items()}
    for name, matrix in (found for probe, node in data.items() for found in _within(node, probe)):
        if len(drawn) == MAX_PICTURES:
            break
        from matplotlib.image import imsave

        path = folder / f"{len(drawn):03}.png"
        scale = max(1, _SIDE // max(matrix.shape))
        imsave(path, np.kron(matrix, np.ones((scale, scale))), cmap="viridis")
        drawn[name] = path
    return drawn


def probe_numbers(trial: Path, asked: Mapping[str, str] | None = None) -> dict[str, float]:
    """The numbers that the probes of the trial in a folder measured, by name; `asked` as for `read_artifacts`."""
    return {
        str(name): float(value)
        for artifact in read_artifacts(trial, [], asked).values()  # the report names those that cannot be read
        for name, value in artifact.metrics.items()
        if isinstance(value, int | float)
    }


def _within(node: Any, name: str) -> Iterator[tuple[str, NDArray[np.float64]]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _within(value, f"{name}/{key}")
    elif isinstance(node, list) and (matrix := _matrix(node)) is not None:
        yield name, matrix
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _within(value, f"{name}/{index}")


def _matrix(node: list[Any]) -> NDArray[np.float64] | None:
    """The rows as an array, if they are rows of finite numbers, equally long, and not just a line."""
    if len(node) < 2 or not all(isinstance(row, list) and len(row) == len(node[0]) > 1 for row in node):
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for row in node for value in row):
        return None
    found = np.asarray(node, dtype=np.float64)
    return found if np.isfinite(found).all() else None
