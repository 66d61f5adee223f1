"""What probes leave of a trial: `artifacts/<probe>.<key>.json` for each probe and each settings that it was asked with.

Studies that share a trial may ask one probe with other settings: each reads what was measured with its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swapformer.errors import quote
from swapformer.results.config import read_config
from swapformer.results.files import CorruptFile, clear_temporaries, write_atomic
from swapformer.results.schema import from_json, read_json

MEASURED = "measure"
"""The name under which a measurement leaves what it found, beside those of probes."""
SCHEMA_VERSION = 2
"""Files of version 1, or without one, are `artifacts/<probe>.json`: of the last settings that were asked."""


@dataclass(frozen=True)
class Artifact:
    """What one probe measured of one trial.

    `settings`: what the probe was asked with; None where nobody knows. `metrics`: numbers by name, such as
    `probe/head_similarity`. `data`: whatever figures are drawn from.
    """

    settings: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None


def settings_key(settings: object) -> str:
    """12 hexadecimal digits of a probe's settings, by which its artifact is known beside the trial and the probe."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def probe_keys(config: Mapping[str, Any]) -> dict[str, str]:
    """Probe → the key of its settings, for the probes and the measurement that a configuration asks for."""
    asked = dict(config.get("probes") or {})
    if measurement := config.get("measure"):
        asked[MEASURED] = measurement
    return {str(probe): settings_key(settings) for probe, settings in asked.items()}


def write_artifact(folder: Path, probe: str, artifact: Artifact) -> None:
    """Store what a probe measured of the trial in `folder`, replaced whole; only the trial's holder may call this."""
    path = _folder(folder) / f"{probe}.{settings_key(artifact.settings)}.json"
    path.parent.mkdir(exist_ok=True)
    clear_temporaries(path.parent)
    content = {"settings": artifact.settings, "metrics": artifact.metrics, "data": artifact.data}
    write_atomic(path, json.dumps({"schema_version": SCHEMA_VERSION, **content}))
    older = path.with_name(f"{probe}.json")
    if older.exists() and not _is_sound(older):
        older.unlink()  # damaged: what it held has just been measured again


def has_artifact(folder: Path, probe: str, settings: object) -> bool:
    """Whether a probe of the trial in `folder` was replayed with these settings, and what it left can be read."""
    return any(_is_of(path, settings) for path in _paths(folder) if _probe_of(path) == probe)


def read_artifacts(folder: Path, problems: list[str], asked: Mapping[str, str] | None = None) -> dict[str, Artifact]:
    """What probes left of the trial in `folder`, by name; what cannot be read is added to `problems`.

    `asked`: probe → the key of its settings; None takes the newest of each probe, whatever its settings.
    """
    found: dict[str, Artifact] = {}
    for path in sorted(_paths(folder), key=_age):
        probe = _probe_of(path)
        if asked is not None and (probe not in asked or path.name not in _names(probe, asked[probe])):
            continue
        try:
            artifact = _read(path)
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {error}")
            continue
        if asked is None or settings_key(artifact.settings) == asked[probe]:
            found[probe] = artifact
    return dict(sorted(found.items()))


def artifact_times(folder: Path) -> list[tuple[str, int]]:
    """The artifacts of the trial in `folder`, each with the nanosecond in which it was written."""
    found = []
    for path in _paths(folder):
        with suppress(OSError):  # a link to itself
            found.append((path.name, path.stat().st_mtime_ns))
    return found


def _folder(trial: Path) -> Path:
    return trial / "artifacts"


def _paths(trial: Path) -> Iterator[Path]:
    yield from sorted(_folder(trial).glob("*.json"))


def _names(probe: str, key: str) -> tuple[str, str]:
    """The files in which an artifact may lie: its own, and the one of version 1."""
    return f"{probe}.{key}.json", f"{probe}.json"


def _probe_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _age(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _is_of(path: Path, settings: object) -> bool:
    """Whether a file can be read and holds what was measured with these settings."""
    with suppress(OSError, ValueError):
        return settings_key(_read(path).settings) == settings_key(settings)
    return False


def _is_sound(path: Path) -> bool:
    with suppress(OSError, ValueError):
        _read(path)
        return True
    return False


def _read(path: Path) -> Artifact:
    """Raises CorruptFile for what is no artifact, or one of a newer version, and as `read_file` does."""
    raw = read_json(path)
    version = raw.get("schema_version", 1) if isinstance(raw, dict) else 1
    if version not in range(1, SCHEMA_VERSION + 1):
        raise CorruptFile(f"schema_version is {quote(version)}, but this swapformer reads 1 to {SCHEMA_VERSION}")
    found = from_json(Artifact, raw)
    if found.settings is None:  # the first files did not say: a trial had the probes of its own configuration alone
        probes = read_config(path.parent.parent).get("probes")
        found = replace(found, settings=probes.get(_probe_of(path)) if isinstance(probes, dict) else None)
    return found
