"""Files that are written aside until they are complete."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError

_ABANDONED = 24 * 3600
"""Seconds after which a folder that was written in is nobody's any more."""
UNFINISHED = ".swapformer-unfinished-"

Make = Callable[[Path], Mapping[str, Any]]
"""Writes `<name>.npy` for every name into a folder, and returns the header: JSON that belongs to them."""


def written_aside(make: Make, places: Sequence[Path]) -> tuple[Path, dict[str, Any]]:
    """The folder in which `make` has written its arrays, in the first of `places` where it can; and the header."""
    failure = None
    for place in places:
        folder = None
        try:
            place.mkdir(parents=True, exist_ok=True)
            _sweep(place)
            folder = Path(tempfile.mkdtemp(dir=place, prefix=UNFINISHED))
            return folder, json.loads(json.dumps(make(folder)))
        except BaseException as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            failure = error
    raise UsageError(
        f"a tokenised text must be written somewhere, but that failed: {failure}; make room, or set SWAPFORMER_CACHE "
        "to a folder that has some"
    )


def _sweep(place: Path) -> None:
    """Remove what processes left behind that were killed."""
    for path in place.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
