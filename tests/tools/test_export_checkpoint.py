"""`swapformer export` and `swapformer import`: a trained model leaves, comes back, and trials start from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.cli import main
from swapformer.training.weights import summarise_weights

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[]", "task.batch_size=4", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=1", "model/position=learned", "eval.final_batches=1"),
    "schedule.warmup_steps=0",
]


def ids() -> set[str]:
    return {path.name for path in Path("runs/trials").iterdir()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained trial, its checkpoint of GPT-2 in `out`, and what was imported from there."""
    folder = tmp_path_factory.mktemp("exchange")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *TINY, "budget.steps=3"]) == 0
        (trial,) = ids()
        assert main(["export", trial[:6], "out", "--format", "gpt2", "--json"]) == 0
        assert main(["import", "out"]) == 0
    return folder


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def test_a_trained_model_leaves_comes_back_and_is_the_same_start(capsys: pytest.CaptureFixture[str]) -> None:
    before = ids()
    trial = min(before, key=lambda each: Path("runs/trials", each).stat().st_mtime_ns)
    assert main(["import", "out", "--out", "back.safetensors"]) == 0
    *_, hint, overrides = capsys.readouterr().out.splitlines()
    assert hint == "to start from them, give a task with these symbols and"
    assert "model/position=learned" in overrides and overrides.endswith("init_from=back.safetensors")

    assert main(["train", *TINY, "budget.steps=2", f"init_from={trial}"]) == 0
    assert main(["train", *TINY, "budget.steps=2", "init_from=out.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "(from the store)" in out and f"note: init_from={trial}: 20 tensors were loaded" in out
    assert len(ids() - before) == 1


def test_json_is_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "out", "--out", "again.safetensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["architecture"] == "GPT2LMHeadModel" and found["vocab_size"] == 29 and found["notes"] == []
    assert found["overrides"][-1] == "init_from=again.safetensors"
    heads = next(each for each in found["overrides"] if each.startswith("model.num_heads="))
    assert heads == f"model.num_heads={summarise_weights(Path('again.safetensors')).heads}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "out"], "out.safetensors is there already"),
        (["import", "out", "--out", "weights.pt"], "`--out` must end in .safetensors"),
        (["import", "nowhere", "--out", "x.safetensors"], "must hold config.json, but there is no nowhere/config.json"),
        (["export", "ffff", "y", "--format", "gpt2"], "no trial 'ffff'"),
        (["export", "ffff", "y", "seed=1", "--format", "gpt2"], "only runs_dir=… can be given here"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_the_format_cannot_express_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    trial = next(iter(ids()))
    assert main(["export", trial, "elsewhere", "--format", "llama"]) == 2
    assert "cannot express this model: model.position is Learned, not Rotary" in capsys.readouterr().err
    assert not Path("elsewhere").exists()
