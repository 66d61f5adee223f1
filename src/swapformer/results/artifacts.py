"""What probes leave of a trial: one file `artifacts/<probe>.json` for each, with its settings, metrics and data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer.errors import quote
from swapformer.results.files import CorruptFile, clear_temporaries, write_atomic
from swapformer.results.schema import from_json, read_json

SCHEMA_VERSION = 1
"""Files without a version, as they were written at first, are of version 1."""


@dataclass(frozen=True)
class Artifact:
    """What one probe measured of one trial.

    `settings`: what the probe was asked with; None where the file does not say. `metrics`: numbers by name, such as
    `probe/head_similarity`. `data`: whatever figures are drawn from.
    """

    settings: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None


def write_artifact(folder: Path, probe: str, artifact: Artifact) -> None:
    """Store what a probe measured of the trial in `folder`, replaced whole; only the trial's holder may call this."""
    path = _path(folder, probe)
    path.parent.mkdir(exist_ok=True)
    clear_temporaries(path.parent)
    content = {"settings": artifact.settings, "metrics": artifact.metrics, "data": artifact.data}
    write_atomic(path, json.dumps({"schema_version": SCHEMA_VERSION, **content}))


def probe_settings(folder: Path, probe: str) -> Any:
    """The settings that a probe of the trial in `folder` was replayed with; None when it was not, or is damaged."""
    try:
        return _read(_path(folder, probe)).settings
    except (OSError, ValueError):
        return None


def read_artifacts(folder: Path, problems: list[str]) -> dict[str, Artifact]:
    """What probes left of the trial in `folder`, by name; what cannot be read is added to `problems`."""
    found: dict[str, Artifact] = {}
    for path in _paths(folder):
        try:
            found[path.stem] = _read(path)
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {error}")
    return found


def artifact_times(folder: Path) -> list[tuple[str, int]]:
    """The artifacts of the trial in `folder`, each with the nanosecond in which it was written."""
    found = []
    for path in _paths(folder):
        with suppress(OSError):  # a link to itself
            found.append((path.name, path.stat().st_mtime_ns))
    return found


def _path(folder: Path, probe: str) -> Path:
    return folder / "artifacts" / f"{probe}.json"


def _paths(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / "artifacts").glob("*.json"))


def _read(path: Path) -> Artifact:
    """Raises CorruptFile for what is no artifact, or one of a newer version, and as `read_file` does."""
    raw = read_json(path)
    version = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise CorruptFile(f"schema_version is {quote(version)}, but this swapformer reads {SCHEMA_VERSION}")
    return from_json(Artifact, raw)
