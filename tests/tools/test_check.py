"""`swapformer check`: laws held against parts of ours and of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.conformance import LAWS
from swapformer.errors import UsageError
from swapformer.tools.check import main

OWN = """
from swapformer.model.position import Position


class Decay(Position):
    has_bias = {fact}

    def __init__(self, dims, *, rate: float) -> None:
        super().__init__(dims)
        self.rate, self.heads = rate, dims.num_heads

    def bias(self, context):
        return -self.rate * context.distance.abs()[:, None].to(context.dtype).expand(-1, self.heads, -1, -1)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python imports from."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_part_of_ours_holds_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model/position=alibi", "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert [verdict["law"] for verdict in verdicts] == list(LAWS)
    assert all(verdict["holds"] is not False for verdict in verdicts)


def test_a_class_of_the_users_own_is_checked_in_its_slot(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "right_decay.py").write_text(OWN.format(fact=True))
    assert main(["right_decay.Decay", "--slot", "position", "rate=0.5"]) == 0
    assert "✗" not in capsys.readouterr().out


def test_a_broken_class_ends_with_1_and_the_laws_name(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "false_decay.py").write_text(OWN.format(fact=False))
    assert main(["false_decay.Decay", "--slot", "position", "rate=0.5"]) == 1
    broken = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert any("facts_hold" in line and "has_bias" in line for line in broken)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model/positon=alibi"], "did you mean"),
        (["no_such_module.Part", "--slot", "position"], "must be importable"),
        (["swapformer.model.position.ALiBi"], "needs its slot"),
        (["swapformer.model.position.ALiBi", "--slot", "position"], "decay"),
    ],
    ids=["slot-misspelt", "not-importable", "without-slot", "without-setting"],
)
def test_wrong_use_is_refused_with_what_to_do(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main(arguments)
