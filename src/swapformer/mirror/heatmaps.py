"""Heat maps of the matrices in a trial's artifacts, and the numbers that its probes measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swapformer.results.artifacts import read_artifacts
from swapformer.results.shapes import AttentionMaps, Matrix, Shape

MAX_PICTURES = 48
"""Pictures of one trial; what is beyond is left out, the numbers are in the artifact."""
_SIDE = 160
"""Pixels that a small matrix is enlarged to."""


def draw_heatmaps(trial: Path, folder: Path, asked: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Draw the matrices that probes left in the folder of a trial as PNG files in `folder`, by name; light is large.

    `asked` as for `read_artifacts`.
    """
    drawn: dict[str, Path] = {}
    shapes = {
        f"probe/{probe}/{name}": shape
        for probe, artifact in read_artifacts(trial, [], asked).items()
        for name, shape in artifact.shapes.items()
    }
    for name, matrix in (found for key, shape in shapes.items() for found in _matrices(shape, key)):
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


def _matrices(shape: Shape, name: str) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """The matrices of a shape that have more than one row and column and no gap, by name."""
    found = {name: shape.values} if isinstance(shape, Matrix) else {}
    if isinstance(shape, AttentionMaps):
        found = {f"{name}/{head}": rows for head, rows in shape.maps.items()}
    for each, rows in found.items():
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim == 2 and min(matrix.shape) > 1 and np.isfinite(matrix).all():
            yield each, matrix
