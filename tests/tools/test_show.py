"""`swapformer show`: every part of a drawable slot draws itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs import every_part
from swapformer.errors import UsageError
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model/position=rope", "--out", "rope.gif"], r"must end in \.svg or \.png"),
        (["model/position=rope", "--out", "no/such/folder/rope.svg"], "can be written"),
        (["model/norm=layernorm"], "what can be shown is task=… or named by its slot"),
    ],
    ids=["suffix", "folder", "slot"],
)
def test_wrong_use_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        main(arguments)
