"""The findings of probes on a trial: `artifacts/<probe>.<key>.json` for each probe and each of its settings.

What a probe found at another moment than the end lies beside it, as `artifacts/<probe>@<moment>.<key>.json`.

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

from swapformer.errors import cut, quote
from swapformer.results.config import read_config
from swapformer.results.files import CorruptFile, clear_temporaries, sync, write_atomic
from swapformer.results.moments import asked_findings, split_moment
from swapformer.results.schema import from_json, read_json
from swapformer.results.shapes import Shape, to_json
from swapformer.results.shapes import from_json as shape_from_json

MEASURED = "measure"
"""The name under which a measurement leaves what it found, beside those of probes."""
SCHEMA_VERSION = 3
"""Files of version 1, or without one, are `artifacts/<probe>.json`: of the last settings that were asked. Before
version 3 what figures need had a form of each probe's own."""


@dataclass(frozen=True)
class Artifact:
    """The measurements of one probe on one trial.

    `settings`: what the probe was asked with; None where nobody knows. `metrics`: numbers by name, such as
    `probe/head_similarity`. `shapes`: what figures are drawn from, by name. `older`: whether it held figures' data in
    the form of an older version, which is not read. `exact`: the metrics that no seed changes.
    """

    settings: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    older: bool = False
    exact: tuple[str, ...] = ()


@dataclass(frozen=True)
class _File:
    """An artifact as it is written; `data` is that of older versions."""

    settings: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None
    exact: tuple[str, ...] = ()


def settings_key(settings: object) -> str:
    """12 hexadecimal digits of a probe's settings, by which its artifact is known beside the trial and the probe."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def probe_keys(config: Mapping[str, Any]) -> dict[str, str]:
    """Probe, with its moment, → the key of its settings, for the probes and the measurement that a trial is asked."""
    asked = dict(asked_findings(config.get("probes") or {}))
    if measurement := config.get("measure"):
        asked[MEASURED] = measurement
    return {name: settings_key(settings) for name, settings in asked.items()}


def write_artifact(folder: Path, probe: str, artifact: Artifact) -> None:
    """Store what a probe measured of the trial in `folder`, replaced whole; only the trial's holder may call this.

    `probe`: its name, with its moment where that is not the end.
    """
    path = _folder(folder) / _names(probe, settings_key(artifact.settings))[0]
    path.parent.mkdir(exist_ok=True)
    clear_temporaries(path.parent)
    shapes = {name: to_json(shape) for name, shape in artifact.shapes.items()}
    content: dict[str, Any] = {"settings": artifact.settings, "metrics": artifact.metrics, "shapes": shapes}
    content |= {"exact": list(artifact.exact)} if artifact.exact else {}
    write_atomic(path, json.dumps({"schema_version": SCHEMA_VERSION, **content}))
    if isinstance(split_moment(probe)[1], int):  # it cannot be measured again once a checkpoint has gone past it
        sync(path)
        sync(path.parent)
    older = path.with_name(_names(probe, "")[1])
    if older.exists() and not _is_sound(older):
        older.unlink()  # damaged: what it held has just been measured again


def has_artifact(folder: Path, probe: str, settings: object) -> bool:
    """Whether a probe of the trial in `folder` was replayed with these settings, and what it left can be read."""
    return any(_is_of(path, settings) for path in _paths(folder) if _probe_of(path) == probe)


def read_artifacts(folder: Path, problems: list[str], asked: Mapping[str, str] | None = None) -> dict[str, Artifact]:
    """The findings of probes on the trial in `folder`, by name; what cannot be read is added to `problems`.

    A damaged or unknown shape leaves the artifact's metrics and other shapes as they are.
    `asked`: probe, with its moment, → the key of its settings; None takes the newest of each, whatever its settings.
    """
    found: dict[str, Artifact] = {}
    times = dict(artifact_times(folder))
    for path in sorted(_paths(folder), key=lambda path: times.get(path.name, 0)):
        probe = _probe_of(path)
        if asked is not None and (probe not in asked or path.name not in _names(probe, asked[probe])):
            continue
        try:
            file = _read(path)
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {error}")
            continue
        if asked is None or settings_key(file.settings) == asked[probe]:
            found[probe] = Artifact(
                file.settings, file.metrics, _shapes(file, path, problems), bool(file.data), file.exact
            )
    return dict(sorted(found.items()))


def discard_later_moments(folder: Path, step: int) -> None:
    """Forget what probes found after more than `step` steps: a resumed training measures it again."""
    for path in _paths(folder):
        moment = split_moment(_probe_of(path))[1]
        if isinstance(moment, int) and moment > step:
            path.unlink(missing_ok=True)


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
    name = probe.replace(":", "@")  # a colon in a file's name is refused by some systems
    return f"{name}.{key}.json", f"{name}.json"


def _probe_of(path: Path) -> str:
    return path.name.partition(".")[0].replace("@", ":")


def _is_of(path: Path, settings: object) -> bool:
    """Whether a file can be read, all of it, and holds what was measured with these settings."""
    with suppress(OSError, ValueError):
        file, damage = _read(path), list[str]()
        if settings_key(file.settings) == settings_key(settings):
            _shapes(file, path, damage)
            return not damage
    return False


def _is_sound(path: Path) -> bool:
    with suppress(OSError, ValueError):
        _read(path)
        return True
    return False


def _shapes(file: _File, path: Path, problems: list[str]) -> dict[str, Shape]:
    """The shapes that can be read, by name; what cannot is added to `problems`."""
    found = {}
    for name, value in file.shapes.items():
        try:
            found[name] = shape_from_json(value, f"shapes.{cut(name, 60)}")
        except CorruptFile as error:
            problems.append(f"{path}: {error}")
    return found


def _read(path: Path) -> _File:
    """Raises CorruptFile for what is no artifact, or one of a newer version, and as `read_file` does."""
    raw = read_json(path)
    version = raw.get("schema_version", 1) if isinstance(raw, dict) else 1
    if version not in range(1, SCHEMA_VERSION + 1):
        raise CorruptFile(f"schema_version is {quote(version)}, but this swapformer reads 1 to {SCHEMA_VERSION}")
    found = from_json(_File, raw)
    if found.settings is None:  # the first files did not say: a trial had the probes of its own configuration alone
        probes = read_config(path.parent.parent).get("probes")
        found = replace(found, settings=probes.get(_probe_of(path)) if isinstance(probes, dict) else None)
    return found
