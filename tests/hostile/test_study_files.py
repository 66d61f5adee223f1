"""Hostile study files: each is refused in one line with status 2, and nothing is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.fuzz.judge import CLEAR, FAULTS, TRACEBACK, WORKED, Ending, dry, run
from evidence.fuzz.study_files import BYTES, NAMES, TEXTS, mutations
from evidence.fuzz.template import STUDY
from swapformer.study import spec


def studied(folder: Path, content: str | bytes, name: str = "study_file.yaml") -> Ending:
    """How `swapformer study` takes a file, up to the first training."""
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with dry():
        return run(["study", name], folder)


def test_a_good_file_is_accepted(tmp_path: Path) -> None:
    import yaml

    assert studied(tmp_path, yaml.safe_dump(STUDY)).kind == WORKED


@pytest.mark.parametrize("what", TEXTS)
def test_a_hostile_text_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    found = studied(tmp_path, TEXTS[what])
    assert found.kind == CLEAR, found
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("what", BYTES)
def test_bytes_that_are_no_text_are_refused_in_one_line(what: str, tmp_path: Path) -> None:
    assert studied(tmp_path, BYTES[what]).kind == CLEAR


@pytest.mark.parametrize("name", NAMES)
def test_a_file_whose_name_is_none_for_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    import yaml

    assert studied(tmp_path, yaml.safe_dump(STUDY), name).kind == CLEAR


def test_no_field_of_a_wrong_type_gets_through_with_a_traceback(tmp_path: Path) -> None:
    """Each field of a study file with each value in its place; some, such as no claims at all, are fine."""
    tried, wrong = 0, []
    for what, text in mutations():
        tried += 1
        if (found := studied(tmp_path, text)).kind in FAULTS:
            wrong.append((what, found))
    assert wrong == []
    assert tried > 250


def test_a_reader_that_raises_what_it_likes_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(name: str, scale: str | None = None) -> spec.Spec:
        return spec.parse(None, name) if Path(name).read_text() else spec.parse([][0], name)

    monkeypatch.setattr(spec, "load", careless)
    assert studied(tmp_path, "").kind == TRACEBACK
