"""The scorecard of the exercises, and the table of items that every README of one has."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.scorecard import COMMAND, PICTURE, ExerciseScore, read_asked, read_items, scorecard_svg, scores
from docs.scorecard import main as command
from docs.scorecard import scorecard as card
from swapformer.errors import UsageError
from swapformer.exercises import exercises, studies_of
from swapformer.paths import experiments_dir


def scorecard(root: Path) -> str:
    return card(scores(root))


HEAD = "| item | grade | answer | verdict or number | figure | study |\n|---|---|---|---|---|---|\n"
FIRST = "| 1 the first | measured | flat | 0.2 \\| nats | [it](a.svg) | `width`, `width.gpu` |\n"
SECOND = "| 2 the second | not run | | `depth` would tell | – | – |\n"


def items(folder: Path, text: str) -> list[tuple[int, str, str]]:
    """Number, verdict and grade of each item of a README with this text, of an exercise that asks two."""
    (folder / "a.svg").touch()
    (folder / "README.md").write_text(text)
    found = read_items(folder / "README.md", ["one", "two"], ["04_x/width", "04_x/tasks"])
    return [(item.number, item.verdict, item.grade) for item in found]


def test_a_table_of_items_is_read_to_its_end(tmp_path: Path) -> None:
    found = items(tmp_path, f"# x\n\n| a | b |\n|---|---|\n\n{HEAD}{FIRST}{SECOND}\n| 3 | x | y | – | – |\n")
    assert found == [(1, "0.2 \\| nats", "measured"), (2, "`depth` would tell", "not run")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# x\n", r"README\.md must have one table \| item \| grade \| answer .*, but it has 0"),
        (HEAD + FIRST + SECOND + "\n" + HEAD, "but it has 2"),
        (HEAD + FIRST, "must answer the 2 items that the exercise asks, but its table has 1"),
        (HEAD + FIRST + FIRST, "line 4: items are numbered from 1, so item 2 must stand here, not '1 the first'"),
        (HEAD + FIRST + "| 2 x | measured | y | z | – |\n", "line 4: an item has 6 cells, but there are 5"),
        (HEAD + FIRST + "| 2 x | derived | | 3 | – | – |\n", "item 2 needs a verdict or number, and an"),
        (HEAD + FIRST + "| 2 x | outside | y | | – | – |\n", "item 2 needs a verdict or number"),
        (HEAD + FIRST + "| 2 x | known | y | 3 | – | – |\n", "grade of item 2 must be one of .*, not 'known'"),
        (HEAD + FIRST + "| 2 x | measured | y | – | – | – |\n", "item 2 is measured, so it must"),
        (HEAD + FIRST + "| 2 x | measured | y | z | [b](b.svg) | – |\n", "links 'b.svg', which does not exist"),
        (HEAD + FIRST + "| 2 x | measured | y | z | b.svg | – |\n", "must be a link or –, not 'b.svg'"),
        (HEAD + FIRST + "| 2 x | measured | y | z | – | `depth` |\n", "study 'depth', but there is tasks, width"),
    ],
)
def test_what_is_wrong_with_a_table_of_items_is_named(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint) as error:
        items(tmp_path, text)
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def committed() -> list[ExerciseScore]:
    return scores(experiments_dir())


def test_the_committed_scorecard_is_what_the_command_makes(
    committed: list[ExerciseScore], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs.scorecard.scores", lambda root: committed if root == experiments_dir() else [])
    assert command([]) == 0
    page = capsys.readouterr().out
    assert (experiments_dir() / "README.md").read_text(encoding="utf-8") == page, f"{COMMAND} writes it again"
    drawn = scorecard_svg(committed)
    assert (experiments_dir() / PICTURE).read_text(encoding="utf-8") == drawn, f"{COMMAND} draws it again"


def test_the_picture_holds_every_exercises_counts(committed: list[ExerciseScore]) -> None:
    """Its bars are as long as the counts say: the longest row of claims takes all of its room."""
    found = committed
    text = "".join(ElementTree.fromstring(scorecard_svg(found)).itertext())
    counts = [each.claims.get("", {}) for each in found]
    for each, verdicts in zip(found, counts, strict=True):
        assert f"{each.number}  {each.title}" in text and f"{each.answered} of {each.asked}" in text
        assert not verdicts or f"{verdicts['supported']}\u2009✓ {verdicts['refuted']}\u2009✗" in text
    bars = [
        float(bar.get("width", "nan"))
        for bar in ElementTree.fromstring(scorecard_svg(found)).iter("{http://www.w3.org/2000/svg}rect")
    ][1:]
    rows = [sum(bars[5 * row + 2 : 5 * row + 5]) for row in range(len(found))]
    assert max(rows) == pytest.approx(180, abs=0.1)
    told = [sum(each.get(verdict, 0) for verdict in ("supported", "refuted", "undecided")) for each in counts]
    assert rows == pytest.approx([180 * each / max(told) for each in told], abs=0.1)
    assert any(each.get("withdrawn") for each in counts), "claims that were taken back have no bar"


def test_the_fourteen_exercises_ask_124_things_and_the_chapter_leaves_24_open() -> None:
    *exercises, hints = [len(each.asks) for each in read_asked(experiments_dir()).values()][:15]  # others are our own
    assert exercises == [6, 8, 7, 13, 7, 5, 10, 10, 6, 8, 8, 13, 15, 8]
    assert (sum(exercises), hints) == (124, 24)


def test_a_verdict_that_a_study_does_not_give_is_not_counted(tmp_path: Path) -> None:
    """The planted fault: without the published results, nothing is supported."""
    (tmp_path / "exercises.yaml").write_text("04_head_count: {title: T, asks: [a, b]}\n05_x: {title: X, asks: [a]}\n")
    folder = tmp_path / "04_head_count" / "width"
    (folder / "results").mkdir(parents=True)
    shipped = studies_of(exercises()["04_head_count"])["04_head_count/width"]
    (folder / "study.yaml").write_text(shipped.read_text())
    (folder.parent / "README.md").write_text(
        f"![p](width/results/a.svg)\n\n{HEAD}{FIRST.replace('a.svg', 'width')}{SECOND}"
    )
    with pytest.raises(UsageError, match="links 'width'"):
        scorecard(tmp_path)
    (folder.parent / "README.md").write_text(f"![p](width/results/a.svg)\n\n{HEAD}{SECOND.replace('2', '1')}{SECOND}")
    rows = scorecard(tmp_path).splitlines()
    assert "| 1.4 | [T](04_head_count/README.md) | 0 of 2 (2 not run) | no results yet | [<img " in rows[-2]
    assert rows[-1] == "| 1.5 | X | 0 of 1 | not begun |  |"
    (folder / "results" / "results.csv").write_bytes((shipped.parent / "results" / "results.csv").read_bytes())
    assert "| 0 of 2 (2 not run) | 4 / 1 / 1 (2 withdrawn) |" in scorecard(tmp_path)
    shutil.copytree(folder / "results", folder / "results" / "gpu")
    assert "| 0 of 2 (2 not run) | 4 / 1 / 1 (2 withdrawn)<br>gpu: 2 / 0 / 1 |" in scorecard(tmp_path), (
        "each scale is judged by itself, by its own three claims"
    )
    (tmp_path / "06_strange").mkdir()
    with pytest.raises(UsageError, match="must name every exercise, but '06_strange' is missing"):
        scorecard(tmp_path)


@pytest.mark.parametrize("name", exercises())
def test_a_cell_of_an_exercise_is_a_phrase(name: str) -> None:
    """Of at most 25 words, where no report made it."""
    text = (experiments_dir() / name / "README.md").read_text(encoding="utf-8")
    own = re.sub(r"<!-- \S+: made by.*?<!-- end of what is made -->", "", text, flags=re.DOTALL)
    cells = [cell.split() for line in own.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert [" ".join(cell) for cell in cells if len(cell) > 25] == []


def test_the_projects_readme_answers_each_exercise_in_30_words() -> None:
    rows = re.findall(
        r"^\| \[`\d\d_.*$", (experiments_dir().parent / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    cells = [cell.split() for row in rows for cell in row.split("|")]
    assert len(rows) == len(exercises()) and [" ".join(cell) for cell in cells if len(cell) > 30] == []
