"""What probes leave: written whole, read with the settings that were asked, and refused where damaged or newer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.results.artifacts import (
    Artifact,
    artifact_times,
    has_artifact,
    probe_keys,
    read_artifacts,
    settings_key,
    write_artifact,
)
from swapformer.results.config import write_config
from swapformer.results.shapes import Curve


def asked(**settings: int) -> dict[str, str]:
    return probe_keys({"probes": {"x": settings}})


def older(folder: Path, text: str) -> None:
    """An artifact as the first versions wrote it."""
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "artifacts" / "x.json").write_text(text)


def test_an_artifact_comes_back_as_it_was_written(tmp_path: Path) -> None:
    artifact = Artifact({"batches": 2}, {"probe/x": 0.25}, {"curve": Curve("t", "c", "x", "y", [1.0], {"": [2.0]})})
    write_artifact(tmp_path, "x", artifact)
    problems: list[str] = []
    assert read_artifacts(tmp_path, problems) == {"x": artifact} and problems == []
    assert [name for name, _ in artifact_times(tmp_path)] == [f"x.{settings_key({'batches': 2})}.json"]


def test_each_settings_of_a_probe_have_an_artifact_of_their_own(tmp_path: Path) -> None:
    one, four = (Artifact({"batches": n}, {"probe/x": n}) for n in (1, 4))
    write_artifact(tmp_path, "x", one)
    assert has_artifact(tmp_path, "x", {"batches": 1}) and not has_artifact(tmp_path, "x", {"batches": 4})
    write_artifact(tmp_path, "x", four)
    assert read_artifacts(tmp_path, [], asked(batches=1)) == {"x": one}
    assert read_artifacts(tmp_path, [], asked(batches=4)) == {"x": four}
    assert read_artifacts(tmp_path, [], asked(batches=2)) == read_artifacts(tmp_path, [], {}) == {}


class TestAnOlderArtifact:
    def test_that_says_its_settings_is_that_of_whoever_asks_with_them(self, tmp_path: Path) -> None:
        older(tmp_path, '{"settings": {"n": 1}, "metrics": {"probe/x": 1}, "data": [2]}')
        held = {"x": Artifact({"n": 1}, {"probe/x": 1}, older=True)}
        assert has_artifact(tmp_path, "x", {"n": 1}) and not has_artifact(tmp_path, "x", {"n": 2})
        assert read_artifacts(tmp_path, []) == read_artifacts(tmp_path, [], asked(n=1)) == held
        assert read_artifacts(tmp_path, [], asked(n=2)) == {}
        write_artifact(tmp_path, "x", Artifact({"n": 2}, {"probe/x": 2}))
        assert read_artifacts(tmp_path, [], asked(n=1)) == held, "it stays beside the new one"

    def test_that_says_none_has_those_of_its_trial(self, tmp_path: Path) -> None:
        older(tmp_path, '{"metrics": {"probe/x": 1}}')
        assert not has_artifact(tmp_path, "x", {"n": 1}), "nobody knows, so it is made again"
        write_config(tmp_path, {"probes": {"x": {"n": 1}}})
        assert has_artifact(tmp_path, "x", {"n": 1}) and not has_artifact(tmp_path, "x", {"n": 2})

    def test_that_is_damaged_goes_when_its_probe_is_replayed(self, tmp_path: Path) -> None:
        older(tmp_path, "{")
        write_artifact(tmp_path, "x", Artifact({"n": 2}))
        problems: list[str] = []
        assert list(read_artifacts(tmp_path, problems)) == ["x"] and problems == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "it is not a mapping"),
        ('{"schema_version": 4, "settings": {}}', "schema_version is 4, but this swapformer reads 1 to 3"),
        ('{"settings": {}, "metrics": 3}', "`metrics` must be a mapping, but is 3"),
    ],
)
def test_a_damaged_or_newer_artifact_is_named_and_its_probe_is_replayed(
    tmp_path: Path, text: str, problem: str
) -> None:
    write_artifact(tmp_path, "sound", Artifact({}))
    write_artifact(tmp_path, "x", Artifact({}))
    path = tmp_path / "artifacts" / f"x.{settings_key({})}.json"
    path.write_text(text)
    problems: list[str] = []
    assert list(read_artifacts(tmp_path, problems)) == ["sound"]
    assert len(problems) == 1 and problem in problems[0] and path.name in problems[0]
    assert not has_artifact(tmp_path, "x", {})
    unasked: list[str] = []
    assert read_artifacts(tmp_path, unasked, asked(n=1)) == {} and unasked == []


def test_what_a_killed_writer_left_goes_with_the_next_artifact(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / ".tmp-x.json.0123").write_text("{")
    write_artifact(tmp_path, "x", Artifact({}))
    (path,) = (tmp_path / "artifacts").iterdir()
    assert json.loads(path.read_text())["schema_version"] == 3
