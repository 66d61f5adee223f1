"""Training in this process: resume, accumulation, divergence, interruption, history."""

from __future__ import annotations

import csv
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.errors import UsageError
from swapformer.results.history import SECONDS
from swapformer.study.config.compose import compose, trial_id
from swapformer.training import fit as fit_module
from swapformer.training.assemble import build_task
from swapformer.training.callbacks import Checkpoints, Diverged, TrainingMonitor
from swapformer.training.fit import CorruptCheckpoint, Outcome, fit
from swapformer.training.module import TrialModule

TINY = [
    "task=copy",
    "task.lengths=[2,5]",
    "task.eval_lengths=[8]",
    "task.batch_size=8",
    "model.d_model=16",
    "model.num_heads=2",
    "model.num_layers=1",
    "model.dropout=0.1",
    "budget.steps=23",
    "eval.every=6",
    "eval.batches=2",
    "eval.final_batches=3",
    "checkpoint_every=4",
    "log_every=5",
]


def tiny(*overrides: str) -> dict[str, Any]:
    return compose([*TINY, *overrides])


def weights(directory: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)[
        "state_dict"
    ]
    return state


def history(directory: Path) -> list[list[str]]:
    """All rows but the seconds, which no two trainings share."""
    with (directory / "metrics.csv").open(newline="") as file:
        return [row for row in csv.reader(file) if row[1] != SECONDS]


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """An uninterrupted run."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, fit(tiny(), directory)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may run after it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int, hook: str) -> None:
    original: Callable[..., None] = getattr(Checkpoints, hook)

    def dying(self: Checkpoints, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == step:
            raise Killed
        original(self, trainer, *args, **kwargs)

    monkeypatch.setattr(Checkpoints, hook, dying)


@pytest.mark.parametrize(
    ("step", "hook"),
    [
        pytest.param(3, "on_train_batch_end", marks=pytest.mark.evidence),
        pytest.param(5, "on_train_batch_end", marks=pytest.mark.evidence),
        (12, "on_validation_end"),
        (13, "on_train_batch_end"),
        pytest.param(18, "on_validation_end", marks=pytest.mark.evidence),
        pytest.param(22, "on_train_batch_end", marks=pytest.mark.evidence),
        pytest.param(23, "on_train_batch_end", marks=pytest.mark.evidence),
        (23, "on_validation_batch_end"),
    ],
)
def test_a_killed_run_that_is_started_again_ends_bit_equal(
    step: int, hook: str, whole: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, step, hook)
        with pytest.raises(Killed):
            fit(tiny(), tmp_path)
    torch.rand(7)  # the resumed run must not depend on the global random state
    outcome = fit(tiny(), tmp_path)
    directory, expected = whole
    assert equal(weights(tmp_path), weights(directory))
    assert history(tmp_path) == history(directory)
    assert outcome == expected


def test_a_run_that_is_killed_between_the_parts_of_a_batch_ends_bit_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint within a batch would lose the gradients of the parts that were done, or count them twice."""
    config = tiny("trainer.accumulate_grad_batches=2", "checkpoint_every=3", "eval.every=100")
    expected = fit(config, tmp_path / "whole")
    for step in (4, 11):
        with monkeypatch.context() as patch:
            kill_at(patch, step, "on_train_batch_end")
            with pytest.raises(Killed):
                fit(config, tmp_path / "killed")
    assert fit(config, tmp_path / "killed") == expected
    assert equal(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


def test_a_whole_model_of_the_users_own_resumes_bit_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "own_models")
    config = tiny("model.dropout=0", "model=own", "model.module._target_=own_models.GPT")  # which has dropout
    expected = fit(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, 13, "on_train_batch_end")
        with pytest.raises(Killed):
            fit(config, tmp_path / "killed")
    assert fit(config, tmp_path / "killed") == expected
    assert equal(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    assert any("drawn by the constructor of GPT" in note for note in expected.notes)


def test_sigkill_of_a_real_process_costs_nothing_but_time(whole: tuple[Path, Outcome], tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from swapformer.study.config.compose import compose
        from swapformer.training.callbacks import TrainingMonitor
        from swapformer.training.fit import fit
        old = TrainingMonitor.on_train_batch_end
        def dying(self, trainer, *args):
            if trainer.global_step == 15:
                os.kill(os.getpid(), signal.SIGKILL)
            old(self, trainer, *args)
        TrainingMonitor.on_train_batch_end = dying
        fit(compose({TINY!r}), Path({str(tmp_path)!r}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert fit(tiny(), tmp_path) == whole[1]
    assert equal(weights(tmp_path), weights(whole[0]))


@pytest.mark.parametrize("parts", [pytest.param(2, marks=pytest.mark.evidence), 3])
def test_cutting_the_batch_changes_nothing_but_rounding(parts: int, tmp_path: Path) -> None:
    """Lengths vary within a batch, so a mean of the parts' means is another loss: transformers had it so until 2024."""
    plain = ["model.dropout=0", "trainer.precision=64-true"]
    one, many = tmp_path / "one", tmp_path / "many"
    fit(tiny(*plain), one)
    fit(tiny(*plain, f"trainer.accumulate_grad_batches={parts}"), many)
    assert all(torch.allclose(a, weights(many)[name], atol=1e-9) for name, a in weights(one).items())
    assert [row[:2] for row in history(one)] == [row[:2] for row in history(many)]


def test_arms_with_the_same_seed_see_the_same_batches_and_others_do_not(tmp_path: Path) -> None:
    first = {}
    for name, overrides in {"a": [], "b": ["model/norm=rmsnorm"], "c": ["seed=1"]}.items():
        module_task = build_task(tiny(*overrides))
        first[name] = module_task.train_batch(tiny(*overrides)["data_seed"], 3).inputs
    assert torch.equal(first["a"], first["b"])
    assert first["a"].shape != first["c"].shape or not torch.equal(first["a"], first["c"])


def test_an_exploding_loss_is_a_result(tmp_path: Path) -> None:
    outcome = fit(tiny("optim.lr=1", "schedule=constant", "schedule.warmup_steps=0", "divergence=1.5"), tmp_path)
    assert outcome.status == "diverged"
    assert outcome.reason is not None
    assert "exceeds 1.5 ×" in outcome.reason
    assert outcome.metrics == {}


def judged(losses: list[float], guessing: float = 4.0) -> int | None:
    """The step at which a training with these losses diverges, at 2 times the loss of guessing; None if it does not."""
    monitor = TrainingMonitor(None, 1, 2.0, 1, guessing)
    for step, loss in enumerate(losses, 1):
        monitor.first = monitor.first or loss
        try:
            monitor._require_sane(loss, step, step == len(losses))
        except Diverged:
            return step
    return None


@pytest.mark.parametrize(
    ("losses", "guessing", "step"),
    [
        ([4.1, 3.0, 7.9, 3.0], 4.0, None),
        ([4.1, 3.0, 8.1, 3.0], 4.0, 3),
        ([50.0, 90.0, 9.0, 7.0], 4.0, None),  # an absurd start that comes down
        ([50.0, 40.0, 7.0, 9.0, 7.0], 4.0, 4),  # and must stay there
        ([50.0, 101.0, 7.0], 4.0, 2),  # twice the first loss
        ([50.0, 45.0, 40.0], 4.0, 3),  # it never came down; by the first loss nothing had happened
        ([1.0, 7.0, 3.0], 4.0, None),  # a start that is better than guessing is no yardstick
        ([1.0, 2.5], math.nan, 2),  # values have no loss of guessing
    ],
)
def test_a_training_is_judged_by_the_loss_of_guessing(losses: list[float], guessing: float, step: int | None) -> None:
    assert judged(losses, guessing) == step


def test_a_trial_keeps_the_losses_of_guessing_and_counting(tmp_path: Path) -> None:
    outcome = fit(tiny("budget.steps=2"), tmp_path)
    size = build_task(tiny()).vocab_size
    assert {name for name in outcome.metrics if name.partition("@")[0].endswith("/loss")} == outcome.baselines.keys()
    for found in outcome.baselines.values():
        assert found["guessing"] == pytest.approx(math.log(size)) and 0 < found["counting"] < 1.1 * found["guessing"]


def test_a_loss_that_is_not_a_number_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = fit_module.build_in_precision

    def broken(*args: Any) -> torch.nn.Module:
        model = build(*args)
        with torch.no_grad():
            next(model.parameters()).fill_(math.nan)
        return model

    monkeypatch.setattr(fit_module, "build_in_precision", broken)
    outcome = fit(tiny(), tmp_path)
    assert outcome.status == "diverged"
    assert "the training loss is nan at step 1" in str(outcome.reason)


@pytest.mark.parametrize("step", [pytest.param(21, marks=pytest.mark.evidence), 23])
def test_a_loss_that_breaks_in_the_last_steps_is_not_a_finished_trial(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """23 steps and a row of history every 5: the last full row is at 20."""
    original = Checkpoints.on_train_batch_end

    def breaking(self: Checkpoints, trainer: Any, *args: Any) -> None:
        if trainer.global_step == step:
            with torch.no_grad():
                next(iter(trainer.lightning_module.parameters())).fill_(math.nan)
        original(self, trainer, *args)

    monkeypatch.setattr(Checkpoints, "on_train_batch_end", breaking)
    outcome = fit(tiny(), tmp_path)
    assert outcome.status == "diverged"
    assert outcome.metrics == {}


def test_a_metric_that_is_not_finite_is_named_in_the_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss above 709 overflows exp: the trial has finished, and its perplexity is infinite."""
    original = TrialModule.on_validation_epoch_end

    def overflowing(self: TrialModule) -> None:
        original(self)
        self.results["val/perplexity"] = math.inf

    monkeypatch.setattr(TrialModule, "on_validation_epoch_end", overflowing)
    outcome = fit(tiny(), tmp_path)
    assert outcome.status == "finished"
    assert outcome.notes == ("val/perplexity is inf: it counts as lost",)


@pytest.mark.parametrize(("number", "prefetch"), [(signal.SIGINT, "false"), (signal.SIGTERM, "true")])
def test_a_signal_ends_the_trial_as_interrupted_and_it_resumes(
    number: signal.Signals, prefetch: str, whole: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a process of its own makes the batches ahead, which are the same and do not change the trial's id."""
    config = tiny(f"trainer.prefetch={prefetch}")
    assert trial_id(config) == trial_id(tiny())
    original, working = Checkpoints.on_train_batch_end, []

    def signalled(self: Checkpoints, trainer: Any, *args: Any) -> None:
        if trainer.global_step == 9:
            working.extend(multiprocessing.active_children())
            os.kill(os.getpid(), number)
        original(self, trainer, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", signalled)
        outcome = fit(config, tmp_path)
    assert outcome.status == "interrupted"
    assert outcome.reason == f"stopped by {number.name}"
    assert outcome.steps == 9 and len(working) == (prefetch == "true")
    assert fit(config, tmp_path) == whole[1]
    assert equal(weights(tmp_path), weights(whole[0])) and not multiprocessing.active_children()


def test_checkpoints_need_no_room_but_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no such folder"))
    assert fit(tiny(), tmp_path).status == "finished"
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()


def test_a_truncated_checkpoint_is_named(whole: tuple[Path, Outcome], tmp_path: Path) -> None:
    good = (whole[0] / "checkpoints" / "last.ckpt").read_bytes()
    (tmp_path / "checkpoints").mkdir()
    for size in (0, 1, 100, len(good) // 2, len(good) - 1):
        (tmp_path / "checkpoints" / "last.ckpt").write_bytes(good[:size])
        with pytest.raises(CorruptCheckpoint, match=r"last\.ckpt cannot be read"):
            fit(tiny(), tmp_path)


def test_the_record_has_every_evaluation_at_every_length(whole: tuple[Path, Outcome]) -> None:
    outcome = whole[1]
    assert {"val/loss", "val/exact_match@8", "val/accuracy@8", "test/loss", "test/exact_match@8"} <= set(
        outcome.metrics
    )
    assert outcome.standard_errors["val/loss@8"] > 0
    assert outcome.directions["val/loss"] == "lower"
    assert outcome.directions["val/exact_match@8"] == "higher"
    assert outcome.steps == 23


def test_the_record_says_what_the_lengths_come_to(whole: tuple[Path, Outcome]) -> None:
    """Trained up to 5 and measured at 8: the area between is the mean of both."""
    metrics = whole[1].metrics
    for split in ("val", "test"):
        ends = metrics[f"{split}/exact_match"], metrics[f"{split}/exact_match@8"]
        assert metrics[f"{split}/extrapolation_area"] == pytest.approx(sum(ends) / 2)
        assert metrics[f"{split}/longest_90"] in (0.0, 5.0, 8.0)
        assert whole[1].directions[f"{split}/longest_90"] == "higher"
    assert "val/extrapolation_area" in {row[1] for row in history(whole[0])}


def test_the_history_holds_training_and_validation_in_order(whole: tuple[Path, Outcome]) -> None:
    rows = history(whole[0])
    assert rows[0] == ["step", "name", "value"]
    assert [row[0] for row in rows if row[1] == "train/loss"] == ["5", "10", "15", "20"]
    assert [row[0] for row in rows if row[1] == "val/loss"] == ["6", "12", "18"]


def test_the_history_holds_the_rate_that_the_step_used(whole: tuple[Path, Outcome]) -> None:
    """Warm-up over 50 steps to 1e-3: step n, counted from 1, has n/51 of it."""
    rates = {int(row[0]): float(row[2]) for row in history(whole[0]) if row[1] == "train/lr"}
    assert rates == pytest.approx({n: 1e-3 * n / 51 for n in (5, 10, 15, 20)})


def test_bf16_trains(tmp_path: Path) -> None:
    outcome = fit(tiny("trainer=cpu_bf16", "allow=[bf16]"), tmp_path)
    assert outcome.status == "finished"
    assert math.isfinite(outcome.metrics["val/loss"])


class TestLightningsOwnDoors:
    """Callbacks of a user's own package, profilers and the like, through the trial's configuration."""

    OWN = """
        import torch
        from lightning import Callback


        class Halve(Callback):
            '''Halves the first weight every `every` steps, and counts how often: its state is in the checkpoint.'''

            def __init__(self, *, every: int) -> None:
                self.every, self.count = every, 0

            def on_train_batch_end(self, trainer, module, *rest):
                if trainer.global_step % self.every == 0:
                    self.count += 1
                    with torch.no_grad():
                        next(iter(module.parameters())).mul_(0.5 if self.count % 2 else 2.0)

            def state_dict(self):
                return {"count": self.count}

            def load_state_dict(self, state):
                self.count = state["count"]
    """

    @pytest.fixture
    def own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A package with a callback, a YAML that names it, and the overrides that find it."""
        (tmp_path / "my_callbacks.py").write_text(textwrap.dedent(self.OWN))
        (tmp_path / "conf" / "callbacks").mkdir(parents=True)
        (tmp_path / "conf" / "callbacks" / "halve.yaml").write_text(
            "# @package callbacks.halve\n_target_: my_callbacks.Halve\nevery: 3\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("SWAPFORMER_PACKAGES", "my_callbacks")
        return [f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "callbacks=halve"]

    def test_a_callback_acts_is_part_of_the_id_and_resumes(
        self, own: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = tiny(*own)
        other = tiny(*own, "callbacks.halve.every=5")
        assert len({trial_id(tiny()), trial_id(config), trial_id(other)}) == 3
        plain, whole = tmp_path / "plain", tmp_path / "whole"
        fit(tiny(), plain)
        fit(config, whole)
        assert any(not torch.equal(a, b) for a, b in zip(weights(plain).values(), weights(whole).values(), strict=True))
        cut = tmp_path / "cut"
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_at(patch, 13, "on_train_batch_end")
            fit(config, cut)
        fit(config, cut)
        assert all(torch.equal(value, weights(cut)[name]) for name, value in weights(whole).items())

    def test_a_package_that_nobody_allowed_is_refused(self, own: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SWAPFORMER_PACKAGES")
        with pytest.raises(UsageError, match="my_callbacks"):
            compose([*TINY, *own])
            fit(tiny(*own), Path("unused"))

    @pytest.mark.evidence
    def test_a_profiler_writes_to_the_trials_folder_and_changes_nothing(self, tmp_path: Path) -> None:
        fit(tiny(), tmp_path / "plain")
        fit(tiny("trainer.profiler=simple", "trainer.detect_anomaly=true"), tmp_path / "watched")
        assert "run_training_batch" in "".join(
            path.read_text() for path in (tmp_path / "watched" / "profile").iterdir()
        )
        assert all(
            torch.equal(value, weights(tmp_path / "watched")[name])
            for name, value in weights(tmp_path / "plain").items()
        )

    def test_a_batch_that_cannot_be_made_ahead_is_refused_in_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"^every one of 1 devices × 9 parts must have a sequence, but a batch"):
            fit(tiny("trainer.prefetch=true", "trainer.accumulate_grad_batches=9"), tmp_path)

    def test_clipping_by_value_is_not_clipping_by_norm(self, tmp_path: Path) -> None:
        fit(tiny("trainer.gradient_clip_val=0.01"), tmp_path / "norm")
        fit(tiny("trainer.gradient_clip_val=0.01", "trainer.gradient_clip_algorithm=value"), tmp_path / "value")
        assert any(
            not torch.equal(value, weights(tmp_path / "value")[name])
            for name, value in weights(tmp_path / "norm").items()
        )
