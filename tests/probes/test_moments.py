"""Probes look at a trial before, within and after its training, which goes on as if nobody had looked."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from swapformer.probes import fit_watched, moments, replay
from swapformer.probes.base import Finding, Probe
from swapformer.probes.moments import MomentProbes
from swapformer.results.artifacts import read_artifacts
from swapformer.results.history import SECONDS, TOKENS
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import execute, is_complete
from swapformer.study.plan import make_trial
from swapformer.training.callbacks import Checkpoints
from swapformer.training.fit import Outcome

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8"),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.dropout=0.1", "model/norm=batchnorm"),
    *("budget.steps=23", "eval.every=6", "eval.batches=2", "eval.final_batches=3", "checkpoint_every=4", "log_every=5"),
]
NOSY = {"_target_": "test_moments.Nosy"}
AT = ["init", 1, 6, 13, 16, "end"]


class Nosy(Probe):
    """A probe with bad manners: it draws numbers and changes modes, weights, statistics and gradients of its model."""

    gradients = True

    def measure(self, model: Any, task: Any) -> Finding:
        weights = sum(float(parameter.double().abs().sum()) for parameter in model.parameters())
        norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None))
        torch.rand(5)
        torch.manual_seed(3)
        model.train()
        for parameter in model.parameters():
            parameter.mul_(2)
            parameter.grad = torch.ones_like(parameter)
        for buffer in model.buffers():
            buffer.zero_()
        return Finding({"probe/weights": weights, "probe/gradient": norm})


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "test_moments")
    monkeypatch.syspath_prepend(Path(__file__).parent)


def tiny(*overrides: str, at: list[Any] | None = None) -> dict[str, Any]:
    config = compose([*TINY, *overrides])
    return {**config, "probes": {"nosy": {**NOSY, "at": at}}} if at else config


def state(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)
    return found


def rows(directory: Path) -> list[list[str]]:
    """All rows but the axes: a step at which a probe looks has them too, and no two trainings share seconds."""
    with (directory / "metrics.csv").open(newline="") as file:
        return [row for row in csv.reader(file) if row[1] not in (TOKENS, SECONDS)]


def same(one: Any, other: Any) -> bool:
    """Whether two nested structures hold the same, tensors bit by bit."""
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, Path, Outcome]:
    """An uninterrupted run that nobody watches, and one that is watched, with what was replayed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWAPFORMER_PACKAGES", "test_moments")
        patch.syspath_prepend(Path(__file__).parent)
        plain, watched = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("watched")
        alone = fit_watched(tiny(), plain)
        config = tiny(at=AT)
        outcome = fit_watched(config, watched)
        assert replay(config, watched) == []
        return plain, alone, watched, outcome


def test_losses_and_weights_are_bit_equal_with_and_without_moments(whole: tuple[Path, Outcome, Path, Outcome]) -> None:
    plain, alone, watched, outcome = whole
    assert outcome == alone
    one, other = state(plain), state(watched)
    assert same(one["state_dict"], other["state_dict"]) and same(one["optimizer_states"], other["optimizer_states"])
    assert any("running_mean" in name for name in one["state_dict"]), "there are statistics that could be moved"
    assert [row for row in rows(watched) if not row[1].startswith("probe/")] == rows(plain)


def test_moments_within_training_are_in_the_history_and_all_of_them_are_artifacts(
    whole: tuple[Path, Outcome, Path, Outcome],
) -> None:
    _, _, watched, _ = whole
    found = read_artifacts(watched, [])
    assert sorted(found) == ["nosy", "nosy:1", "nosy:13", "nosy:16", "nosy:6", "nosy:init"]
    history = {(int(step), name): float(value) for step, name, value in rows(watched)[1:] if name.startswith("probe/")}
    assert history == {
        (step, f"probe/{name}"): found[f"nosy:{step}"].metrics[f"probe/{name}:{step}"]
        for step in (1, 6, 13, 16)
        for name in ("weights", "gradient")
    }
    assert len({value for (_, name), value in history.items() if name == "probe/weights"}) == 4
    weights = state(watched)["state_dict"]
    total = sum(
        float(w.double().abs().sum()) for name, w in weights.items() if "running" not in name and "num_" not in name
    )
    assert found["nosy"].metrics["probe/weights"] == pytest.approx(total, rel=1e-12)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may run after it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int, owner: type) -> None:
    original: Callable[..., None] = owner.on_train_batch_end  # type: ignore[attr-defined]

    def dying(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if owner is MomentProbes:
            original(self, trainer, *args, **kwargs)
        if trainer.global_step == step:
            raise Killed
        if owner is not MomentProbes:
            original(self, trainer, *args, **kwargs)

    monkeypatch.setattr(owner, "on_train_batch_end", dying)


@pytest.mark.parametrize(("step", "owner"), [(13, MomentProbes), (16, Checkpoints), (18, Checkpoints)])
def test_a_resumed_training_loses_no_moment_and_has_none_twice(
    step: int, owner: type, whole: tuple[Path, Outcome, Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after a moment that no checkpoint has seen, at a moment whose checkpoint is due, and long after one."""
    _, _, watched, outcome = whole
    config = tiny(at=AT)
    with monkeypatch.context() as patch:
        kill_at(patch, step, owner)
        with pytest.raises(Killed):
            fit_watched(config, tmp_path)
    torch.rand(7)
    assert fit_watched(config, tmp_path) == outcome
    assert rows(tmp_path) == rows(watched)
    assert same(state(tmp_path)["state_dict"], state(watched)["state_dict"])
    replay(config, tmp_path)
    assert read_artifacts(tmp_path, []) == read_artifacts(watched, [])


def test_what_a_checkpoint_has_not_seen_is_forgotten_before_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed training that diverges earlier must not show the moments of the one before."""
    config = tiny(at=AT)
    with monkeypatch.context() as patch:
        kill_at(patch, 18, Checkpoints)
        with pytest.raises(Killed):
            fit_watched(config, tmp_path)
    (tmp_path / "checkpoints" / "last.ckpt").unlink()
    with monkeypatch.context() as patch:
        kill_at(patch, 5, Checkpoints)
        with pytest.raises(Killed):
            fit_watched(config, tmp_path)
    assert sorted(read_artifacts(tmp_path, [])) == ["nosy:1"]


def test_a_trial_that_diverged_has_its_beginning_and_the_moments_that_it_reached(tmp_path: Path) -> None:
    exploding = ["optim.lr=1000", "schedule.warmup_steps=1", "trainer.gradient_clip_val=0", "log_every=1"]
    config = {**tiny(*exploding, at=["init", 1, 22, "end"]), "divergence": 1.5, "runs_dir": str(tmp_path)}
    trial, store = make_trial(config), Store(tmp_path)
    store.prepare()
    record = execute(trial, store, Provenance("test", "", False))
    assert record is not None and record.status == "diverged" and record.steps < 22
    folder = store.directory(trial.id)
    assert sorted(read_artifacts(folder, [])) == ["nosy:1", "nosy:init"]
    assert is_complete(trial, store, record), "what it lacks cannot be measured"
    assert replay(config, folder) == [
        f"the probe nosy cannot look {moment}: the trial diverged" for moment in ("after 22 steps", "at end")
    ]
    (folder / "artifacts").joinpath(next(path.name for path in (folder / "artifacts").glob("nosy@init*"))).unlink()
    assert not is_complete(trial, store, record), "init is rebuilt for a trial that is there"
    assert execute(trial, store, Provenance("test", "", False)) == record
    assert sorted(read_artifacts(folder, [])) == ["nosy:1", "nosy:init"]


def test_a_probe_that_fails_within_a_training_is_noted_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Path, Outcome, Path, Outcome]
) -> None:
    def broken(*_: Any) -> Finding:
        raise RuntimeError("no such place")

    monkeypatch.setattr(moments, "measure", broken)
    outcome = fit_watched(tiny(at=[2, 6]), tmp_path)
    assert outcome.metrics == whole[1].metrics
    assert [note for note in outcome.notes if "nosy" in note] == [
        f"the probe nosy failed after {steps} steps: RuntimeError: no such place" for steps in (2, 6)
    ]
    assert replay(tiny(at=[2, 6]), tmp_path) == [
        f"the probe nosy cannot look after {steps} steps: its training is over" for steps in (2, 6)
    ]
