"""What probes leave: written whole, read with the settings that were asked, and refused where damaged or newer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.results.artifacts import Artifact, artifact_times, probe_settings, read_artifacts, write_artifact


def test_an_artifact_comes_back_as_it_was_written(tmp_path: Path) -> None:
    artifact = Artifact({"batches": 2}, {"probe/x": 0.25}, {"curve": [1.0, 2.0]})
    write_artifact(tmp_path, "x", artifact)
    problems: list[str] = []
    assert read_artifacts(tmp_path, problems) == {"x": artifact} and problems == []
    assert probe_settings(tmp_path, "x") == {"batches": 2} and probe_settings(tmp_path, "y") is None
    assert [name for name, _ in artifact_times(tmp_path)] == ["x.json"]


def test_an_artifact_from_before_there_were_versions_is_read(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "x.json").write_text('{"settings": {"n": 1}, "metrics": {"probe/x": 1}, "data": [2]}')
    assert read_artifacts(tmp_path, []) == {"x": Artifact({"n": 1}, {"probe/x": 1}, [2])}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "it is not a mapping"),
        ('{"schema_version": 2, "settings": {}}', "schema_version is 2, but this swapformer reads 1"),
        ('{"settings": {}, "metrics": 3}', "`metrics` must be a mapping, but is 3"),
    ],
)
def test_a_damaged_or_newer_artifact_is_named_and_its_probe_is_replayed(
    tmp_path: Path, text: str, problem: str
) -> None:
    write_artifact(tmp_path, "sound", Artifact({}))
    (tmp_path / "artifacts" / "x.json").write_text(text)
    problems: list[str] = []
    assert list(read_artifacts(tmp_path, problems)) == ["sound"]
    assert len(problems) == 1 and problem in problems[0] and "x.json" in problems[0]
    assert probe_settings(tmp_path, "x") is None


def test_what_a_killed_writer_left_goes_with_the_next_artifact(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / ".tmp-x.json.0123").write_text("{")
    write_artifact(tmp_path, "x", Artifact({}))
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == ["x.json"]
    assert json.loads((tmp_path / "artifacts" / "x.json").read_text())["schema_version"] == 1
