"""The walks of docs/guides/bring_your_own.md, and the example of a LightningModule: written, typed, and held to."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.nn import functional

import walks
from swapformer.cli import main
from swapformer.model.layers import Origin, Role
from swapformer.results.config import require_config
from swapformer.study.command import with_command
from swapformer.study.config.compose import compose
from swapformer.training.assemble import build_model, build_task
from swapformer.training.inputs import model_inputs, task_losses

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guides" / "bring_your_own.md"
SEARCH = "hydra.searchpath=[file://conf]"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    walks.write(tmp_path, walks.files(GUIDE.read_text(encoding="utf-8")))
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "mine")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


def typed(heading: str) -> dict[str, Any]:
    """Type the commands of a walk in this process; the record of each trial by its id."""
    for program, command, *words in walks.commands(walks.section(GUIDE, heading)):
        assert program == "swapformer"
        assert main([command, *words, *(["hydra/launcher=basic"] if command == "study" else [])]) == 0
    return {path.parent.name: json.loads(path.read_text()) for path in Path("runs").glob("trials/*/record.json")}


@pytest.mark.evidence
def test_a_whole_model_stands_beside_one_of_slots(capsys: pytest.CaptureFixture[str]) -> None:
    found = typed("A whole model")
    assert [record["status"] for record in found.values()] == ["finished"] * 6
    printed = capsys.readouterr().out
    assert "15 hold, 0 broken" in printed and "my GPT is as good as the decoder" in printed
    noted = [any("drawn by the constructor of GPT" in note for note in record["notes"]) for record in found.values()]
    assert sum(noted) == 4
    page = Path("runs/studies/gpt_study/report/report.html").read_text()
    assert "do not share their start" in page and "began with the same values" not in page


def test_a_task_of_ones_own_brings_its_loss() -> None:
    """Held to the formula, summed target by target."""
    (record,) = typed("A loss").values()
    assert record["status"] == "finished"
    config = compose([SEARCH, "task=smooth_copy", "task.smoothing=0.2"])
    task = build_task(config)
    model, batch = build_model(config, task.interface), task.train_batch(0, 0)
    answers = model.answers(*model_inputs(batch))
    (found,) = task_losses(task, answers, batch).values()
    logits, expected = answers[""].detach().double(), 0.0
    for row, column in (batch.targets >= 0).nonzero().tolist():
        logs = logits[row, column].log_softmax(-1)
        expected -= 0.8 * float(logs[batch.targets[row, column]]) + 0.2 * float(logs.mean())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_loss_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = build_task(compose(["task=copy"]))
    monkeypatch.setattr(type(task), "loss", lambda self, answers, batch: {"": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"Copy\.loss must give one number for each of the answers"):
        task_losses(task, {}, task.train_batch(0, 0))


def test_an_attention_of_ones_own_obeys_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = typed("An attention").values()
    assert record["status"] == "finished" and "✗" not in capsys.readouterr().out
    config = compose(
        [SEARCH, "task=copy", "model/attention=cosine", "model/position=none", "model.attention.start=3.0"]
    )
    part: Any = build_model(config, 11).stack.layers[0].attention
    x = torch.randn(1, 5, 64)
    q, k, v = ((each(x)).reshape(5, 4, 16).transpose(0, 1) for each in (part.query, part.key, part.value))
    weights = (3.0 * functional.cosine_similarity(q[:, :, None], k[:, None], dim=-1)).masked_fill(
        torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf
    )
    expected = part.out((weights.softmax(-1) @ v).transpose(0, 1).reshape(1, 5, 64))
    from swapformer.model.context import Context
    from swapformer.model.position import Position
    from swapformer.model.tokens import Tokens

    tokens = Tokens.of(5)
    found = part(x, Context(tokens, tokens, torch.float32), Position(None))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_an_initialisation_of_ones_own_goes_by_roles() -> None:
    (record,) = typed("An initialisation").values()
    assert record["status"] == "finished"
    from mine.spiky import Spiky  # type: ignore[import-not-found]

    scheme = Spiky(None, gain=2.0, last=0.5)
    assert scheme.std(Origin(Role.FFN_OUT, 256, 64)) == 2.0 * 0.5 / 16
    assert scheme.std(Origin(Role.QUERY, 64, 64)) == 2.0 / 8
    assert scheme.std(Origin(Role.TOKEN_EMBEDDING, 10, 64)) == 0.02


@pytest.mark.evidence
def test_a_command_is_studied(capsys: pytest.CaptureFixture[str]) -> None:
    found = typed("A command")
    assert len(found) == 6 and all(record["steps"] == 20 for record in found.values())
    assert "✓ the higher rate comes nearer" in capsys.readouterr().out
    page = Path("runs/studies/walk_study/report/report.html").read_text(encoding="utf-8")
    assert "that they share data, budget and tuning is not known" in page and "Nothing was trained" not in page


def test_the_study_of_nanogpt_reads_what_its_script_prints() -> None:
    text = walks.section(GUIDE, "A command")
    (study,) = (yaml.safe_load(block) for block in re.findall(r"^```yaml\n(question.*?)^```$", text, re.M | re.S)[1:])
    printed = "iter 90: loss 2.7, time 31.11ms\nstep 50: train loss 3.0512, val loss 3.0871\n"
    printed += "step 100: train loss 2.6, val loss 2.6305\n"
    pattern = re.compile(study["reads"]["val/loss"], re.M)
    assert [(line["step"], line[2]) for line in pattern.finditer(printed)] == [("50", "3.0871"), ("100", "2.6305")]
    read = with_command(study)
    assert read["arms"]["lr4"] == ["measure.settings.lr=4e-3"]


@pytest.mark.evidence
def test_a_lightning_module_is_studied(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # as in an activated environment
    for path in (ROOT / "examples" / "lightning_module").iterdir():
        shutil.copy(path, place)
    assert main(["study", "study.yaml", "seeds=2", "measure.settings.epochs=2"]) == 0
    configs = [require_config(folder) for folder in Path("runs/trials").iterdir()]
    assert sorted(config["measure"]["settings"]["width"] for config in configs) == [8, 8, 32, 32]
