"""What a training writes into its history beside losses: the norm of its gradient, and the axes of its curves."""

from __future__ import annotations

import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import Callback
from torch import nn

from swapformer.probes import moments
from swapformer.results.history import SECONDS, TOKENS
from swapformer.study.config.compose import compose
from swapformer.training import callbacks, fit
from swapformer.training.callbacks import Checkpoints, Stopwatch, TrainingMonitor
from swapformer.training.module import TrialModule

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=1", "model.dropout=0.1", "budget.steps=20", "eval.every=6"),
    *("eval.batches=2", "eval.final_batches=2", "checkpoint_every=4", "log_every=5"),
]
STEPS = [5, 10, 15, 20]


def trained(folder: Path, *overrides: str, watchers: tuple[Callback, ...] = ()) -> fit.Outcome:
    folder.mkdir(exist_ok=True)
    return fit.fit(compose([*TINY, *overrides]), folder, callbacks=watchers)


def curve(folder: Path, name: str) -> dict[int, float]:
    with (folder / "metrics.csv").open(newline="") as file:
        return {int(row["step"]): float(row["value"]) for row in csv.DictReader(file) if row["name"] == name}


class Norms(Callback):
    """The definition: the root of the sum of all squares in float64, before anything is clipped."""

    def __init__(self) -> None:
        self.found: dict[int, float] = {}

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        squares = 0.0
        for parameter in pl_module.model.parameters():
            if parameter.grad is not None:
                for value in parameter.grad.double().flatten().tolist():
                    squares += value * value
        self.found[trainer.global_step + 1] = math.sqrt(squares)


CLIPPINGS = {
    "by norm": ["trainer.gradient_clip_val=0.05"],
    "by value": ["trainer.gradient_clip_val=0.001", "trainer.gradient_clip_algorithm=value"],
    "none": ["trainer.gradient_clip_val=0"],
    "in two parts": ["trainer.gradient_clip_val=0.05", "trainer.accumulate_grad_batches=2"],
}


def agrees(folder: Path, norms: Norms) -> bool:
    expected = {step: norms.found[step] for step in STEPS}
    return curve(folder, "train/grad_norm") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_the_history_has_the_norm_of_the_whole_gradient_before_clipping(clipping: str, tmp_path: Path) -> None:
    """The limits are far below the norm, so that a norm after clipping would be another."""
    norms = Norms()
    trained(tmp_path, *CLIPPINGS[clipping], watchers=(norms,))
    assert agrees(tmp_path, norms) and min(norms.found.values()) > 0.06


def test_a_norm_after_clipping_or_of_one_weight_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted faults."""
    clip = nn.utils.clip_grad_norm_

    def after(parameters: Any, limit: float) -> torch.Tensor:
        held = list(parameters)
        clip(held, limit)
        return nn.utils.get_total_norm([each.grad for each in held if each.grad is not None])

    def of_the_first(parameters: Any, limit: float) -> torch.Tensor:
        held = list(parameters)
        norm = torch.as_tensor(held[0].grad).norm()
        clip(held, limit)
        return norm

    for number, fault in enumerate((after, of_the_first)):
        norms = Norms()
        monkeypatch.setattr(nn.utils, "clip_grad_norm_", fault)
        trained(tmp_path / str(number), *CLIPPINGS["by norm"], watchers=(norms,))
        assert not agrees(tmp_path / str(number), norms)


def test_a_step_reads_the_device_once_where_the_history_has_a_row_and_an_evaluation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CUDA each read waits for the device: loss and norm go together, and so do all metrics of an evaluation."""
    read: list[tuple[str, str]] = []
    for name in ("tolist", "item", "__float__", "__int__", "__bool__"):

        def noted(tensor: torch.Tensor, name: str, inner: Callable[[torch.Tensor], Any]) -> Any:
            if (file := Path(sys._getframe(1).f_code.co_filename)).name in ("callbacks.py", "module.py"):
                read.append((file.stem, name))
            return inner(tensor)

        whole = partialmethod(noted, name=name, inner=getattr(torch.Tensor, name))
        monkeypatch.setattr(torch.Tensor, name, whole)
    trained(tmp_path, "checkpoint_every=100")
    rows, evaluations = 1 + len(STEPS), 4  # the first loss beside them; steps 6, 12, 18 and the last
    assert Counter(read) == {("callbacks", "tolist"): rows, ("module", "tolist"): evaluations}


@pytest.mark.parametrize(("clipping", "passes"), [("by norm", 0), ("none", len(STEPS)), ("by value", len(STEPS))])
def test_a_norm_costs_a_pass_of_its_own_at_rows_alone_and_none_where_clipping_has_it(
    clipping: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = nn.utils.get_total_norm

    def counted(gradients: Any) -> torch.Tensor:
        asked.append(len(gradients))
        return original(gradients)

    monkeypatch.setattr(nn.utils, "get_total_norm", counted)
    trained(tmp_path, *CLIPPINGS[clipping])
    assert len(asked) == passes and list(curve(tmp_path, "train/grad_norm")) == STEPS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that goes by one second a training step and a thousand an evaluated batch; what it is, is its only item."""
    now = [50.0]

    def passing(method: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return method(*args, **kwargs)

        return call

    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(TrialModule, "training_step", passing(TrialModule.training_step, 1.0))
    monkeypatch.setattr(TrialModule, "validation_step", passing(TrialModule.validation_step, 1000.0))
    return now


class Seen(Callback):
    """The definition of tokens: the places of the sequences in every batch until then."""

    def __init__(self) -> None:
        self.tokens, self.found = 0, dict[int, float]()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.tokens += batch.batch.inputs.numel()
        self.found[trainer.global_step] = self.tokens


def test_every_step_with_rows_has_the_tokens_and_the_seconds_of_training(tmp_path: Path, clock: list[float]) -> None:
    """Evaluations, which are at steps without a loss too, take none of the seconds."""
    seen = Seen()
    outcome = trained(tmp_path, watchers=(seen,))
    steps = sorted({*STEPS, *curve(tmp_path, "val/loss")})
    assert steps == [5, 6, 10, 12, 15, 18, 20]
    assert curve(tmp_path, TOKENS) == {step: seen.found[step] for step in steps}
    assert curve(tmp_path, TOKENS)[20] == outcome.tokens
    assert curve(tmp_path, SECONDS) == {step: float(step) for step in steps}
    assert clock[0] > 4000, "evaluations took their time"


def test_probes_within_training_take_none_of_its_seconds(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = moments.measure

    def slow(*given: Any) -> Any:
        clock[0] += 1000.0
        return measure(*given)

    monkeypatch.setattr(moments, "measure", slow)
    asked = ["probes=gradient_norms", "probes.gradient_norms.at=[7,10]"]
    trained(tmp_path, *asked, watchers=(moments.MomentProbes(compose([*TINY, *asked]), tmp_path),))
    assert {step: seconds for step, seconds in curve(tmp_path, SECONDS).items() if step in (5, 7, 10, 20)} == {
        5: 5.0, 7: 7.0, 10: 10.0, 20: 20.0
    }  # fmt: skip


def test_a_resumed_trial_goes_on_counting_where_its_checkpoint_was(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at step 14 it goes on from step 12: neither what it did since nor the time between counts."""

    class Killed(BaseException):
        """Nothing of ours may run after it."""

    def dying(self: Checkpoints, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == 14:
            raise Killed
        original(self, trainer, *args, **kwargs)

    original = Checkpoints.on_train_batch_end
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", dying)
        with pytest.raises(Killed):
            trained(tmp_path / "killed")
    clock[0] += 1e6
    trained(tmp_path / "killed")
    trained(tmp_path / "whole")
    for name in (TOKENS, SECONDS, "train/grad_norm"):
        assert curve(tmp_path / "killed", name) == curve(tmp_path / "whole", name)


def test_a_trial_that_an_older_version_began_has_no_seconds(tmp_path: Path) -> None:
    """Its checkpoint does not say how long it had trained: too few would be a wrong axis."""
    monitor = TrainingMonitor(tmp_path, 1, 2.0, 1)
    monitor.load_state_dict({"first": 1.0, "total": 0.0})
    model: Any = SimpleNamespace(tokens_seen=7, device=torch.device("cpu"))
    monitor.on_train_start(SimpleNamespace(global_step=0), model)  # type: ignore[arg-type]
    monitor.write(3, {"train/loss": 1.0})
    assert curve(tmp_path, TOKENS) == {3: 7.0} and curve(tmp_path, SECONDS) == {}


def test_a_stopwatch_adds_what_went_by_while_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [3.0]
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = Stopwatch(10.0)
    for running, moved in ((False, 5.0), (True, 2.0), (False, 7.0), (True, 0.5)):
        watch.start() if running else watch.stop()
        now[0] += moved
    assert watch.seconds == 12.5


def test_checkpoints_go_by_the_clock_and_wait_fifty_times_as_long_as_one_takes(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps take 5 s here: one is written at 20 s, and where writing takes 2 s, the next 100 s later."""
    monkeypatch.setattr(TrialModule, "validation_step", lambda *arguments: None)
    monkeypatch.setattr(TrialModule, "on_validation_epoch_end", lambda self: None)
    taken = 2.0
    written: list[int] = []

    def write(trainer: Any, path: Path, ranks: Any) -> None:
        clock[0] += taken
        written.append(trainer.global_step)

    original = TrialModule.training_step

    def slow(self: TrialModule, *arguments: Any) -> Any:
        clock[0] += 4.0  # one more is the fixture's
        return original(self, *arguments)

    monkeypatch.setattr(TrialModule, "training_step", slow)
    monkeypatch.setattr(callbacks, "write_checkpoint", write)
    steps = ["budget.steps=60", "eval.every=60", "checkpoint_every=null"]
    fit.fit(compose([*TINY, *steps]), tmp_path / "slow", final=False)
    assert written == [4, 24, 44, 60]
    written.clear()
    taken = 0.0
    fit.fit(compose([*TINY, *steps]), tmp_path / "quick", final=False)
    assert written == list(range(4, 61, 4))


def test_a_log_has_a_line_each_half_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "short")
    assert not capsys.readouterr().err
    monkeypatch.setattr(callbacks.ProgressLines, "SECONDS", 0.0)
    trained(tmp_path / "long")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2 and all(line.startswith("swapformer: step ") for line in lines)
    assert re.fullmatch(r"swapformer: step (\d+) of \1, train/loss [\d.]+, val/loss [\d.]+, about 0 s left", lines[-1])
