"""Every committed study, judged again from its folder alone, gives the table and the verdicts that stand there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.exercises import shipped
from swapformer.report.build import rebuild
from swapformer.report.page import wording
from swapformer.study.published_results import published_results

STUDIES = {name: path.parent for name, path in shipped().items()}
PUBLISHED = [
    (name, None if path.parent.name == "results" else path.parent.name)
    for name, folder in STUDIES.items()
    for path in sorted(folder.glob("results/**/results.csv"))
]
"""Every study that was published, with its scale where it is not the default one."""


@pytest.mark.parametrize(("name", "scale"), PUBLISHED)
def test_a_committed_study_is_judged_and_drawn_again_from_its_folder(
    name: str, scale: str | None, tmp_path: Path
) -> None:
    """table.md holds the verdicts with their limits too. Figures are compared by name: their style may change."""
    records, place = published_results(STUDIES[name], scale)
    report = rebuild(records, tmp_path, publish=True)
    assert (tmp_path / "table.md").read_text() == (place / "table.md").read_text()
    assert {path.name for path in report.files} <= {path.name for path in place.iterdir()}
    readme = STUDIES[name] / ("../README.md" if "/" in name else "README.md")
    said = claims_said(readme.read_text(encoding="utf-8"), f"{name}.{scale}" if scale else name)
    assert [outcome for outcome, _ in said] == [verdict.outcome for verdict in report.verdicts]
    for (_, difference), verdict in zip(said, report.verdicts, strict=True):
        if "[" in difference:
            shown = re.findall(r"[-+−]?[\d.]+(?:e[-+−]?\d+)? \[[^]]+\]", difference)
            assert shown == [wording.difference_text(contrast) for contrast in verdict.contrasts]


def claims_said(readme: str, study: str) -> list[tuple[str, str]]:
    """Verdict and difference of each row `| claim | verdict | difference |` about a study.

    They stand under headings that name it in backticks; where no heading names any, all are about the only one.
    """
    sections = re.split(r"^(?=#)", readme, flags=re.MULTILINE)
    own = [section for section in sections if f"`{study}`" in section.partition("\n")[0]]
    rows = r"^\|[^|]+\| \W*(supported|refuted|undecided|depends)\W* \| (.*) \|$"
    return re.findall(rows, "".join(own or sections), flags=re.MULTILINE)


def test_the_verdicts_of_the_engine_before_it_used_all_of_its_error_are_kept() -> None:
    """What 04 and 07 decided at their margins then; one claim is decided since."""
    before = {"04_head_count/width": "uuusus", "07_position_encodings/copy": "uuruusss"}
    since = {"04_head_count/width": "uuusus", "07_position_encodings/copy": "uurrusss"}
    for name, outcomes in before.items():
        found = "".join(verdict.outcome[0] for verdict in rebuild(*published_results(STUDIES[name])).verdicts)
        assert found == since[name]
        assert all(old in ("u", new) for old, new in zip(outcomes, found, strict=True))


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
