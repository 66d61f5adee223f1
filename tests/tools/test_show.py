"""`swapformer show`: every part of a drawable slot draws itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs import every_part
from swapformer.errors import UsageError
from swapformer.task.recall import FactRecall
from swapformer.tools.drawings import DRAWINGS
from swapformer.tools.show import main

PARTS = [(slot, option) for slot, option in every_part() if slot in DRAWINGS]


@pytest.mark.parametrize(("slot", "option"), PARTS)
def test_a_part_draws_itself_as_svg(slot: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "part.svg"
    assert main([f"model/{slot}={option}", "--out", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    text = file.read_text(encoding="utf-8")
    assert f"model/{slot}={option}" in text and text.count("<path") > 5


@pytest.mark.parametrize("slot", DRAWINGS)
def test_a_slot_draws_itself_as_png(slot: str, tmp_path: Path) -> None:
    file = tmp_path / "part.png"
    option = next(option for name, option in PARTS if name == slot)
    assert main([f"model/{slot}={option}", "--out", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size > 5000


def test_a_task_shows_what_is_asked_for_and_the_measured_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=fact_recall", "task.forms=1", "task.as_source=true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    task = FactRecall(forms=1)
    asked = next(line for line in lines if line.startswith("  source: "))
    entity, relation = (int(word[1:]) for word in asked.split()[2:])
    assert lines[lines.index(asked) + 1] == f"  = «v{int(task.facts[entity, relation])}»"
    assert "overlap: 512 of 512 val items (100.0%) are among 256 different training items" in lines
    assert "test items (100.0%)" in lines[-1]


def test_a_task_shows_its_tags_and_where_it_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=dialogue", "task.distractors=0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  s"))
    words = lines[first].replace("«", "").replace("»", "").split()
    assert words[2] == words[5] and f"«{words[2]}" in lines[first], "the second turn takes up the first one's word"
    turns = lines[first + 1].split()
    assert turns[:6] == ["turn:", "0", "0", "0", "1", "1"] and len(turns) in (len(words), len(words) + 1)
    assert "overlap: 0 of" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model/position=rope", "--out", "rope.gif"], r"must end in \.svg or \.png"),
        (["model/position=rope", "--out", "no/such/folder/rope.svg"], "can be written"),
        (["task=copy", "--out", "copy.svg"], "without a file"),
        (["task=copi"], "did you mean 'copy'"),
        (["model/norm=layernorm"], "what can be shown is task=… or named by its slot"),
    ],
    ids=["suffix", "folder", "file", "task", "slot"],
)
def test_wrong_use_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        main(arguments)
