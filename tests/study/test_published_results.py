"""A study judged from its folder, without a store. Every committed one is judged again in tests/test_studies.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.exercises import shipped
from swapformer.report.build import rebuild
from swapformer.study.published_results import published_results

STUDIES = {name: path.parent for name, path in shipped().items()}


def test_what_the_first_studies_decided_stays_decided() -> None:
    """What 04 and 07 decided at their margins with all seeds; a rule that changes shows here, and in CHANGELOG.md."""
    for name, outcomes in {"04_head_count/width": "ssuussur", "07_position_encodings/copy": "uurussss"}.items():
        found = "".join(verdict.outcome[0] for verdict in rebuild(*published_results(STUDIES[name])).verdicts)
        assert found == outcomes


def test_a_study_that_was_judged_from_its_folder_left_nothing_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "04_head_count"
    shutil.copytree(STUDIES["04_head_count/width"], folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    main(["report", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["files"] == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "results" / "table.md").write_text("old")
    main(["report", str(folder), "--publish"])
    assert (folder / "results" / "table.md").read_bytes() == before[folder / "results" / "table.md"]
    assert (folder / "results" / "results.csv").read_bytes() == before[folder / "results" / "results.csv"]
    assert str(folder / "results" / "table.md") in capsys.readouterr().out.replace("\n", "")


def test_a_study_without_published_results_says_what_writes_them(tmp_path: Path) -> None:
    shutil.copy(STUDIES["04_head_count/width"] / "study.yaml", tmp_path)
    with pytest.raises(UsageError, match=r"does not exist; `swapformer study .* --publish` writes it"):
        published_results(tmp_path)
