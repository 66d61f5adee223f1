"""`swapformer check`: laws held against parts of ours and of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.conformance import LAWS
from swapformer.conformance.laws import OF_ANY_MODEL
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


WRONG = """
from swapformer.model.ffn import FFN
from swapformer.model.layers import Linear, Role


class Unfinished(FFN):
    def __init__(self, dims, *, activation) -> None:
        super().__init__()


class Refuses(FFN):
    def __init__(self, dims, *, activation, factor: float = 2.0) -> None:
        super().__init__()
        raise ValueError("`factor` must be …")

    def forward(self, x, padding=None):
        return x


class Deaf(FFN):
    def __init__(self, dims, *, activation, factor: float = 2.0) -> None:
        super().__init__()
        self.out, self.activation = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=True), activation

    def forward(self, x, padding=None):
        return self.out(self.activation(x))
"""


@pytest.mark.parametrize(
    ("name", "law", "words"),
    [
        ("Unfinished", "is_a_part", "Unfinished does not define forward"),
        ("Refuses", "runs", "ValueError where nothing should be raised (wrong_parts.py, line 14): `factor` must be …"),
        ("Deaf", "no_dead_knob", "`factor` must change something, but no value other than 2.0"),
    ],
)
def test_each_kind_of_wrong_class_is_told_once_and_what_is_wrong(
    own: Path, capsys: pytest.CaptureFixture[str], name: str, law: str, words: str
) -> None:
    """A setting that has a default counts as a setting, and what cannot run is not asked for more."""
    (own / "wrong_parts.py").write_text(WRONG)
    assert main([f"wrong_parts.{name}", "--slot", "ffn"]) == 1
    broken = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert len(broken) == 1
    assert law in broken[0] and words in broken[0]


def test_a_class_made_of_options_takes_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swapformer.model.position.Sum", "--slot", "position", "first=alibi", "second=none"]) == 0
    assert "✓ holds   no_dead_knob" in capsys.readouterr().out


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


def test_a_whole_model_is_held_to_the_laws_of_any_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["own_models.GPT", "width=16", "--json"]) == 0
    verdicts = {verdict["law"]: verdict["holds"] for verdict in json.loads(capsys.readouterr().out)}
    asked = {law for law, holds in verdicts.items() if holds is not None}
    assert asked == {*OF_ANY_MODEL}


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("Ahead", "causality"),
        ("Unsaved", "saved_weights_are_whole"),
        ("OnePlace", "runs"),
        ("Waiting", "deterministic_on_cuda"),
    ],
)
def test_a_faulty_model_breaks_its_law(name: str, law: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"own_models.{name}", "--json"]) == 1
    verdicts = {verdict["law"]: verdict for verdict in json.loads(capsys.readouterr().out)}
    assert verdicts[law]["holds"] is False, verdicts[law]
