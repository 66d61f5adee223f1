"""Folded trainings against the same trainings alone: a training by itself is the definition."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from swapformer.results.history import SECONDS
from swapformer.study.config.compose import compose
from swapformer.training import fold as fold_module
from swapformer.training.callbacks import Checkpoints
from swapformer.training.fit import Outcome, fit
from swapformer.training.fold import Fold, Seat
from swapformer.training.folded_step import Step
from swapformer.training.module import TrialModule

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=4", "trainer.precision=64-true"),
    *("model.d_model=16", "model.num_heads=4", "model.num_layers=2", "model.dropout=0.1", "model/attention=gqa"),
    *("model/position=t5", "model/ffn=glu", "model/norm=rmsnorm", "budget.steps=20", "eval.every=6"),
    *("eval.batches=1", "eval.final_batches=2", "checkpoint_every=4", "log_every=5"),
]
OWN = [
    ("seed=1", "optim.lr=0.01", "trainer.gradient_clip_val=0.5"),
    ("seed=2", "optim.lr=0.02"),
    ("seed=3", "optim=muon", "schedule=linear"),
]
"""What the three trials differ in: seed, learning rate, clipping, optimiser and schedule."""

Trained = tuple[list[Path], list[Outcome]]


@pytest.fixture(scope="module")
def configs() -> list[dict[str, Any]]:
    return [compose([*TINY, *own]) for own in OWN]


@pytest.fixture(scope="module")
def alone(configs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folders = [tmp_path_factory.mktemp("alone") for _ in configs]
    return folders, [fit(config, folder) for config, folder in zip(configs, folders, strict=True)]


def folded(configs: Sequence[dict[str, Any]], folders: Sequence[Path], most: int | None = None) -> list[Outcome | None]:
    outcomes: list[Outcome | None] = [None] * len(configs)
    fold = Fold(len(configs), most=most)

    def work(number: int) -> Callable[[Seat], None]:
        def run(seat: Seat) -> None:
            with fold.training(seat):
                outcomes[number] = fit(configs[number], folders[number], seat=seat)

        return run

    fold.run([work(number) for number in range(len(configs))])
    return outcomes


def some_folders(count: int, root: Path) -> list[Path]:
    made = [root / str(number) for number in range(count)]
    for folder in made:
        folder.mkdir(exist_ok=True)
    return made


def weights(folder: Path) -> Mapping[str, Tensor]:
    held: Mapping[str, Tensor] = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return held


def gap(one: Path, other: Path) -> float:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def history(folder: Path) -> list[list[str]]:
    """All rows but the seconds, which no two trainings share."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [row for row in csv.reader(file) if row[1] != SECONDS]


def rows_agree(one: Path, other: Path) -> bool:
    pairs = zip(history(one), history(other), strict=True)
    return all(
        mine == theirs or float(mine) == pytest.approx(float(theirs), rel=1e-9)
        for first, second in pairs
        for mine, theirs in zip(first, second, strict=True)
    )


def test_folded_trials_train_as_they_do_alone_each_with_its_own_dropout(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path
) -> None:
    folders = some_folders(3, tmp_path)
    outcomes = folded(configs, folders)
    for mine, theirs, one, other in zip(folders, alone[0], outcomes, alone[1], strict=True):
        assert one is not None and one.status == "finished" and not one.notes
        assert gap(mine, theirs) < 1e-9
        assert rows_agree(mine, theirs)
        assert one.metrics == pytest.approx(other.metrics, rel=1e-9)
        assert (one.steps, one.tokens, one.parameters) == (other.steps, other.tokens, other.parameters)
        assert one.evaluation == other.evaluation
    assert torch.get_default_dtype() == torch.float32


def test_parts_of_a_batch_are_folded_too(configs: list[dict[str, Any]], tmp_path: Path) -> None:
    cut = [{**c, "trainer": {**c["trainer"], "accumulate_grad_batches": 2}} for c in configs[:2]]
    mine, theirs = some_folders(2, tmp_path), [tmp_path / "a", tmp_path / "b"]
    folded(cut, mine)
    for config, one, other in zip(cut, mine, theirs, strict=True):
        fit(config, other)
        assert gap(one, other) < 1e-9


def test_a_norm_that_is_clipped_over_all_trials_would_be_seen(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clip_over_all(self: Fold, seats: Sequence[Seat]) -> list[Step]:
        steps = original(self, seats)
        every = [g for step in steps for g in step.gradients if g is not None]
        norm = torch.stack([g.norm() for g in every]).norm()
        for g in every:
            g.mul_(1.0 / norm)
        return steps

    original = Fold._step
    monkeypatch.setattr(Fold, "_step", clip_over_all)
    folders = some_folders(3, tmp_path)
    folded(configs, folders)
    assert max(map(gap, folders, alone[0])) > 1e-6


def test_one_stream_for_all_trials_would_be_seen(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fold_module.folded_step
    monkeypatch.setattr(
        fold_module, "folded_step", lambda modules, shares, seeds: original(modules, shares, [seeds[0]] * len(seeds))
    )
    folders = some_folders(3, tmp_path)
    folded(configs, folders)
    gaps = list(map(gap, folders, alone[0]))
    assert gaps[0] < 1e-9 < max(gaps)


def test_a_trial_that_diverges_does_not_touch_its_neighbours(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path
) -> None:
    wild = {**configs[1], "optim": {**configs[1]["optim"], "lr": 1e9}}
    folders = some_folders(3, tmp_path)
    outcomes = folded([configs[0], wild, configs[2]], folders)
    assert [outcome and outcome.status for outcome in outcomes] == ["finished", "diverged", "finished"]
    assert max(gap(folders[number], alone[0][number]) for number in (0, 2)) < 1e-9


def test_a_trial_that_fails_does_not_touch_its_neighbours(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TrialModule.configure_gradient_clipping

    def fail(self: TrialModule, *args: Any, **kwargs: Any) -> None:
        if self.config["seed"] == 2 and self.trainer.global_step == 7:
            raise RuntimeError("on purpose")
        original(self, *args, **kwargs)

    monkeypatch.setattr(TrialModule, "configure_gradient_clipping", fail)
    folders = some_folders(3, tmp_path)
    outcomes = folded(configs, folders)
    assert [outcome is None for outcome in outcomes] == [False, True, False]
    assert max(gap(folders[number], alone[0][number]) for number in (0, 2)) < 1e-9


def test_stopped_trials_go_on_to_the_same_end(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stop after different steps, since the first to be asked is ahead of the others by one."""
    folders = some_folders(3, tmp_path)
    original = Checkpoints.on_train_batch_end

    def ask(self: Checkpoints, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == 9:
            self.stop.requested = "SIGTERM"
        original(self, trainer, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", ask)
        assert {outcome and outcome.status for outcome in folded(configs, folders)} == {"interrupted"}
    assert {outcome and outcome.status for outcome in folded(configs, folders)} == {"finished"}
    assert max(map(gap, folders, alone[0])) < 1e-9
    assert all(map(rows_agree, folders, alone[0]))


def test_where_memory_does_not_suffice_for_all_fewer_are_computed_at_once(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, sizes = fold_module.folded_step, list[int]()

    def small_memory(modules: Any, shares: Any, seeds: Any) -> list[Step]:
        sizes.append(len(modules))
        if len(modules) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(modules, shares, seeds)

    monkeypatch.setattr(fold_module, "folded_step", small_memory)
    folders = some_folders(3, tmp_path)
    outcomes = folded(configs, folders)
    assert sizes[0] == 3 and sizes.count(1) == len(sizes) - 1 == 60
    assert max(map(gap, folders, alone[0])) < 1e-9
    said = "memory did not suffice for 3 folded trials at once: from then on 1 were"
    assert all(outcome is not None and outcome.notes == (said,) for outcome in outcomes)


def test_a_part_that_cannot_be_folded_after_all_is_trained_one_by_one(
    configs: list[dict[str, Any]], alone: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> list[Step]:
        raise RuntimeError("vmap: It looks like you're calling .item() on a Tensor.")

    monkeypatch.setattr(fold_module, "folded_step", refuse)
    folders = some_folders(3, tmp_path)
    outcomes = folded(configs, folders)
    for mine, theirs, outcome in zip(folders, alone[0], outcomes, strict=True):
        assert outcome is not None and "could not be folded" in outcome.notes[0] and ".item()" in outcome.notes[0]
        assert gap(mine, theirs) == 0


def test_weights_of_unequal_shapes_are_refused_by_name() -> None:
    def module(width: int) -> Any:
        return SimpleNamespace(model=nn.Linear(3, width), device=torch.device("cpu"))

    with pytest.raises(ValueError, match=r"equal shapes, but weight is \[2, 3\] in one and \[4, 3\] in another"):
        fold_module.folded_step([module(2), module(4)], [], [0, 1])
