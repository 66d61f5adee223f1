"""Exercises: the studies that a folder or a name means, and what is wrong with a folder of parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer import exercises
from swapformer.errors import UsageError
from swapformer.exercises import find, shipped, studies_of, study_name


def place(root: Path, *files: str) -> Path:
    """A folder with these files, all empty; those that end in a slash are folders."""
    for file in files:
        path = root / file
        path.mkdir(parents=True) if file.endswith("/") else path.parent.mkdir(parents=True, exist_ok=True)
        if not file.endswith("/"):
            path.touch()
    return root


def test_an_exercise_has_one_study_or_a_study_for_each_part(tmp_path: Path) -> None:
    place(tmp_path, "01_one/study.yaml", "01_one/results/gpu/table.md", "01_one/README.md")
    place(tmp_path, "02_two/b/study.yaml", "02_two/a/study.yaml", "02_two/README.md", "02_two/runs/", "02_two/.hidden/")
    assert studies_of(tmp_path / "01_one") == {"01_one": tmp_path / "01_one/study.yaml"}
    assert list(studies_of(tmp_path / "02_two")) == ["02_two/a", "02_two/b"]
    assert list(exercises.exercises(tmp_path)) == ["01_one", "02_two"]
    assert list(find(str(tmp_path)).studies) == ["01_one", "02_two/a", "02_two/b"]
    assert find(str(tmp_path / "01_one")).one and not find(str(tmp_path / "02_two")).one


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (
            ["study.yaml", "a/study.yaml"],
            "either one study.yaml or parts, but '03_x' has study.yaml and 'a/study.yaml'",
        ),
        (["a/study.yaml", "b/results/"], "must have a study.yaml, but '03_x/b' has none"),
        (["Width/study.yaml", "width/study.yaml"], "but '03_x' has 'Width' and 'width': one folder on some machines"),
        (["a.gpu/study.yaml", "a/study.yaml"], "a part's name must be a letter, then .* has a part 'a.gpu'"),
        (["results/study.yaml"], "none of conf, report, results, runs, but '03_x' has a part 'results'"),
        (["README.md"], "no study file .*study.yaml"),
    ],
)
def test_a_folder_of_parts_that_cannot_be_told_apart_is_refused(
    files: list[str], complaint: str, tmp_path: Path
) -> None:
    """`a.gpu` would have the report of `a` at scale gpu."""
    with pytest.raises(UsageError, match=complaint):
        find(str(place(tmp_path / "03_x", *files)))


def test_a_study_has_one_name_however_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path, "02_two/a/study.yaml", "mine/heads/study.yaml", "mine/README.md", "mine/other.yaml")
    for given in ("02_two/a", "02_two/a/study.yaml", "02_two/../02_two/a"):
        monkeypatch.chdir(tmp_path)
        assert list(find(given).studies) == ["02_two/a"]
    monkeypatch.chdir(tmp_path / "02_two/a")
    assert study_name(Path("study.yaml")) == "02_two/a"
    assert list(find(str(tmp_path / "mine/heads")).studies) == ["heads"], "a folder of the user's own is no exercise"
    assert study_name(tmp_path / "mine/other.yaml") == "other"


def test_a_shipped_study_is_found_by_a_beginning_that_fits_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, "04_head_count/width/study.yaml", "04_head_count/tasks/study.yaml", "07_one/study.yaml")
    place(tmp_path, "07_two/study.yaml")
    monkeypatch.setattr(exercises, "experiments_dir", lambda: tmp_path)
    assert list(shipped()) == ["04_head_count/tasks", "04_head_count/width", "07_one", "07_two"]
    assert (list(find("04").studies), find("04").one) == (["04_head_count/tasks", "04_head_count/width"], False)
    assert (list(find("04/w").studies), find("04/w").one) == (["04_head_count/width"], True)
    assert find("07_o").one
    with pytest.raises(UsageError, match="fits 07_one, 07_two"):
        find("07")
    with pytest.raises(UsageError, match="fits 04_head_count/tasks, 04_head_count/width"):
        find("04_head_count/")
    with pytest.raises(UsageError, match="no study '04_head_count/widht'; did you mean '04_head_count/width'"):
        find("04_head_count/widht")
