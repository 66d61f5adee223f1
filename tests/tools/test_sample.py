"""`swapformer sample`: what a trial writes, as a user sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.cli import main
from swapformer.model.generate import Prompt
from swapformer.tools import sample as sample_command
from swapformer.training.data import draw_positions

TINY = ["model.num_layers=1", "model.d_model=16", "model.num_heads=2", "eval.final_batches=1", "budget.steps=2"]
TINY += ["schedule.warmup_steps=0"]
COPY = ["task=copy", "task.lengths=[3,4]", "task.symbols=6", "task.batch_size=4", *TINY]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one trial that learned next to nothing."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", *COPY, f"runs_dir={folder}"]) == 0
    return folder


def trial(runs: Path) -> str:
    return next((runs / "trials").iterdir()).name


def sample(runs: Path, *arguments: str) -> int:
    return main(["sample", trial(runs), f"runs_dir={runs}", *arguments])


def test_goes_on_from_the_prompt_and_repeats_itself_for_a_seed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = []
    for seed, more in ((0, []), (0, ["--no-cache"]), (1, [])):
        capsys.readouterr()
        assert sample(runs, "--prompt", "1 2 3 |", "--tokens", "12", "--seed", str(seed), *more) == 0
        written.append(capsys.readouterr().out)
    assert all(text.startswith("1 2 3 | ") for text in written)
    assert written[0] == written[1] != written[2]


def test_a_source_has_drawn_positions_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training and in evaluation, where it never stood at 0, 1, 2 …"""
    seen: list[Prompt] = []
    drawn = ["model/topology=encoder_decoder", "model/position=randomized", "model.position.drawn_from=200"]
    sort = ["+preset=sorting", "task.batch_size=4", *TINY, "eval.every=2"]
    assert main(["train", *sort, *drawn, f"runs_dir={tmp_path}"]) == 0
    real = sample_command.generate
    monkeypatch.setattr(
        sample_command,
        "generate",
        lambda model, prompt, *rest, **more: seen.append(prompt) or real(model, prompt, *rest, **more),
    )
    assert sample(tmp_path, "--prompt", "1 2 3", "--tokens", "4") == 0
    (prompt,) = seen
    assert prompt.source_tokens is not None and prompt.positions is not None
    places = prompt.source_tokens.position[0].tolist()
    length = prompt.source.shape[1]  # type: ignore[union-attr]
    assert places == draw_positions(length, 200, "source", "sample", 0).tolist() != list(range(length))


def test_beams_and_greedy_choice_write_whole_symbols(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert sample(runs, "--prompt", "1 2 3 |", "--temperature", "0", "--tokens", "3") == 0
    assert sample(runs, "--prompt", "1 2 3 |", "--beams", "2", "--tokens", "3") == 0
    known = {*map(str, range(6)), "|", "<pad>"}
    assert all(set(line.split()) <= known for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--prompt", "1 x |"], "'x'"),
        (["--prompt", ""], "at least one symbol"),
        (["--prompt", "1 |", "--tokens", "0"], "--tokens"),
        (["--prompt", "1 |", "--top-p", "0"], "top_p"),
        (["--prompt", "1 |", "--beams", "2", "--top-k", "1"], "--top-k does nothing with --beams"),
        (["--prompt", "1 |", "--length-penalty", "1"], "--length-penalty does nothing without --beams"),
    ],
)
def test_wrong_use_is_one_line(
    runs: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample(runs, *arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and complaint in lines[0]


def test_an_unknown_trial_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "zzzz", "--prompt", "1", f"runs_dir={runs}"]) == 2
    assert "no trial 'zzzz'" in capsys.readouterr().err
