"""Averages of weights, held to their definitions in float64; and the training, which must not know of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from swapformer.probes import fit_watched
from swapformer.probes.base import Finding, Probe
from swapformer.results.artifacts import read_artifacts
from swapformer.results.history import SECONDS
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import trial_id
from swapformer.training.averaging import ExponentialAverage, LastEvaluations, WeightAverage
from swapformer.training.final_evaluation import evaluate
from swapformer.training.fit import CorruptCheckpoint, Outcome, fit
from swapformer.training.weights import fingerprint, read_checkpoint, read_weights, restore
from training.test_fit import Killed, kill_at

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=1", "model.dropout=0.1", "budget.steps=23", "eval.every=6"),
    *("eval.batches=2", "eval.final_batches=3", "checkpoint_every=4", "log_every=5", "optim.lr=0.01"),
]
"""Evaluated after 6, 12, 18 and 23 steps."""
BATCH_NORM = ["model/norm=batchnorm", "model/pattern=full", "allow=[future]"]
KINDS = {
    "ema": ["callbacks=ema", "callbacks.average.decay=0.8"],
    "last": ["callbacks=last", "callbacks.average.count=3"],
}
DECAY, COUNT = 0.8, 3
Weights = dict[str, Tensor]


def tiny(*overrides: str) -> dict[str, Any]:
    return compose([*TINY, *overrides])


def read(folder: Path) -> dict[str, Any]:
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")


def history(folder: Path) -> list[list[str]]:
    """All rows but the seconds, which no two trainings share."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [row for row in csv.reader(file) if row[1] != SECONDS]


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def exponential(path: list[Weights], decay: float = DECAY) -> Weights:
    """Σ_s d^(t−s) θ_s / Σ_s d^(t−s) over a path θ_1 … θ_t, in float64."""
    shares = [decay ** (len(path) - number) for number in range(1, len(path) + 1)]
    return {
        name: sum((share * each[name].double() for share, each in zip(shares, path, strict=True)), torch.zeros(()))
        / sum(shares)
        for name in path[0]
    }


def mean(path: list[Weights], steps: list[int]) -> Weights:
    """The mean of the weights after these steps, in float64."""
    chosen = [path[step - 1] for step in steps]
    return {name: torch.stack([each[name].double() for each in chosen]).mean(dim=0) for name in path[0]}


def walk(steps: int, kind: torch.dtype) -> list[Weights]:
    """Weights that wander far from where they begin, and a buffer of whole numbers."""
    drawn = torch.randn(steps, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    floats = (100 + drawn.cumsum(dim=0)).to(kind)
    return [{"w": floats[step], "count": torch.tensor(step)} for step in range(steps)]


def follow(average: WeightAverage, path: list[Weights], every: int) -> list[Weights]:
    """The average after each step."""
    found = []
    for step, weights in enumerate(path, start=1):
        live = {name: weight.clone() for name, weight in weights.items()}
        average.update(live, evaluated=step % every == 0)
        found.append({name: weight.clone() for name, weight in average.average(live).items()})
        for weight in live.values():
            weight.mul_(-7)  # the training goes on: nothing that is held may be its own tensor
    return found


class TestDefinitions:
    @pytest.mark.parametrize(("kind", "near"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
    def test_the_exponential_average_is_the_weighted_mean_of_the_weights_so_far(
        self, kind: torch.dtype, near: float
    ) -> None:
        path = walk(40, kind)
        for step, found in enumerate(follow(ExponentialAverage(decay=DECAY), path, every=5), start=1):
            assert found["w"].dtype == kind
            torch.testing.assert_close(found["w"].double(), exponential(path[:step])["w"], rtol=near, atol=0)
            assert torch.equal(found["count"], path[step - 1]["count"])

    def test_an_average_that_keeps_its_start_is_found_out(self) -> None:
        """The planted fault: θ̄ ← d θ̄ + (1 − d) θ from the first weights on, as without the correction."""
        path = walk(5, torch.float64)
        uncorrected = path[0]["w"]
        for each in path[1:]:
            uncorrected = DECAY * uncorrected + (1 - DECAY) * each["w"]
        assert (uncorrected - exponential(path)["w"]).abs().max() > 0.1

    @pytest.mark.parametrize(("kind", "near"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
    def test_the_last_evaluations_are_the_newest_weights_and_those_at_the_evaluations_before(
        self, kind: torch.dtype, near: float
    ) -> None:
        path, every = walk(23, kind), 5
        expected = {4: [4], 5: [5], 9: [5, 9], 10: [5, 10], 15: [5, 10, 15], 17: [10, 15, 17], 23: [15, 20, 23]}
        found = follow(LastEvaluations(count=COUNT), path, every)
        for step, steps in expected.items():
            torch.testing.assert_close(found[step - 1]["w"].double(), mean(path, steps)["w"], rtol=near, atol=0)
            assert torch.equal(found[step - 1]["count"], path[step - 1]["count"])

    def test_averages_of_half_precision_are_taken_in_float32(self) -> None:
        """1 + 1/256 lies between two numbers of bfloat16, which a mean in bfloat16 would never leave."""
        average = ExponentialAverage(decay=0.999)
        for step in range(1, 2001):
            weights = {"w": torch.full((1,), 1.0 if step == 1 else 1.5, dtype=torch.bfloat16)}
            average.update(weights, evaluated=False)
        assert average.average(weights)["w"].dtype == torch.bfloat16
        assert average.held["w"].dtype == torch.float32
        assert average.held["w"].item() == pytest.approx(1.5 - 0.5 * 0.999**1999 * 0.001 / (1 - 0.999**2000), rel=1e-4)

    def test_weights_that_do_not_move_stay_bit_by_bit(self) -> None:
        still = [{"w": torch.full((3,), 0.1)}] * 30
        for average in (ExponentialAverage(decay=0.97), LastEvaluations(count=3)):
            assert all(torch.equal(found["w"], still[0]["w"]) for found in follow(average, still, every=4))


class WeightPath(Callback):
    """Copies of all weights after each step."""

    def __init__(self) -> None:
        self.path: list[Weights] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if len(self.path) < trainer.global_step:
            model: Any = pl_module.model
            self.path.append({name: weight.detach().clone() for name, weight in model.state_dict().items()})


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, list[Weights]]:
    """The trial without an average."""
    folder, watched = tmp_path_factory.mktemp("plain"), WeightPath()
    return folder, fit(tiny(*BATCH_NORM), folder, callbacks=[watched]), watched.path


Averaged = dict[str, tuple[Path, Outcome]]


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Averaged:
    """The same trial with each average."""
    folders = {name: tmp_path_factory.mktemp(name) for name in KINDS}
    return {name: (folder, fit(tiny(*BATCH_NORM, *KINDS[name]), folder)) for name, folder in folders.items()}


def same_training(one: Path, other: Path) -> bool:
    """Whether weights, the optimiser's state and every row about training agree bit by bit."""
    first, second = read(one), read(other)
    states = [
        {f"{index}.{name}": value for index, row in held["optimizer_states"][0]["state"].items()
         for name, value in row.items()}
        for held in (first, second)
    ]  # fmt: skip
    rows = [[row for row in history(folder) if row[1].startswith("train/")] for folder in (one, other)]
    return equal(first["state_dict"], second["state_dict"]) and equal(*states) and rows[0] == rows[1]


@pytest.mark.parametrize("kind", KINDS)
class TestTrials:
    def test_train_bit_by_bit_as_without_an_average(self, kind: str, plain: Any, averaged: Averaged) -> None:
        assert same_training(plain[0], averaged[kind][0])
        assert averaged[kind][1].metrics != plain[1].metrics

    def test_keep_the_average_of_weights_and_running_statistics(
        self, kind: str, plain: Any, averaged: Averaged
    ) -> None:
        path: list[Weights] = plain[2]
        assert len(path) == 23
        expected = exponential(path) if kind == "ema" else mean(path, [12, 18, 23])
        found = read(averaged[kind][0])["evaluated"]
        assert any(name.endswith("running_var") for name in found)
        assert found.keys() == path[-1].keys()
        for name, weight in found.items():
            torch.testing.assert_close(weight.double(), expected[name], rtol=1e-5, atol=1e-7)
            assert weight.dtype == path[-1][name].dtype
        apart = max(float((found[name] - path[-1][name]).abs().max()) for name in found)
        assert apart > 1e-3

    def test_are_evaluated_with_what_they_keep(self, kind: str, averaged: Averaged) -> None:
        folder, outcome = averaged[kind]
        config = tiny(*BATCH_NORM, *KINDS[kind])
        task, model = restore(config, folder)
        assert equal(model.state_dict(), read(folder)["evaluated"])
        expected = {name: value for name, value in outcome.metrics.items() if name.startswith("val/")}
        found = evaluate(model, task, config)
        assert {name: found[name] for name in expected} == expected

    def test_are_evaluated_with_averages_within_training_too(self, kind: str, plain: Any, averaged: Averaged) -> None:
        """The loss after 18 steps, with the average there in a model of its own."""
        config = tiny(*BATCH_NORM, *KINDS[kind], "eval.final_batches=2")
        task, model = restore(config, averaged[kind][0])
        path: list[Weights] = plain[2][:18]
        average = exponential(path) if kind == "ema" else mean(path, [6, 12, 18])
        model.load_state_dict({name: weight.float() for name, weight in average.items()})
        (written,) = (float(row[2]) for row in history(averaged[kind][0]) if row[:2] == ["18", "val/loss"])
        assert evaluate(model, task, config)["val/loss"] == pytest.approx(written, rel=1e-5)
        (newest,) = (float(row[2]) for row in history(plain[0]) if row[:2] == ["18", "val/loss"])
        assert newest != pytest.approx(written, rel=1e-4)

    @pytest.mark.parametrize(
        ("step", "hook"),
        [
            (13, "on_train_batch_end"),
            (18, "on_validation_end"),
            pytest.param(5, "on_train_batch_end", marks=pytest.mark.evidence),
            pytest.param(12, "on_validation_end", marks=pytest.mark.evidence),
            pytest.param(22, "on_train_batch_end", marks=pytest.mark.evidence),
            (23, "on_validation_batch_end"),
        ],
    )
    def test_end_bit_equal_when_they_were_killed_on_the_way(
        self, kind: str, step: int, hook: str, averaged: Averaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = tiny(*BATCH_NORM, *KINDS[kind])
        with monkeypatch.context() as patch:
            kill_at(patch, step, hook)
            with pytest.raises(Killed):
                fit(config, tmp_path)
        folder, expected = averaged[kind]
        assert fit(config, tmp_path) == expected
        assert history(tmp_path) == history(folder)
        assert same_training(tmp_path, folder)
        assert equal(read(tmp_path)["evaluated"], read(folder)["evaluated"])

    def test_an_average_that_a_resumed_trial_forgets_is_found_out(
        self, kind: str, averaged: Averaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The planted fault: nothing is read back from the checkpoint."""
        monkeypatch.setattr(WeightAverage, "load_state_dict", lambda self, state: None)
        config = tiny(*BATCH_NORM, *KINDS[kind])
        with monkeypatch.context() as patch:
            kill_at(patch, 18, "on_validation_end")
            with pytest.raises(Killed):
                fit(config, tmp_path)
        fit(config, tmp_path)
        assert not equal(read(tmp_path)["evaluated"], read(averaged[kind][0])["evaluated"])

    def test_have_an_id_of_their_own(self, kind: str) -> None:
        assert trial_id(tiny()) == trial_id(tiny("callbacks=none")) != trial_id(tiny(*KINDS[kind]))

    def test_a_checkpoint_without_its_average_is_corrupt(self, kind: str, plain: Any, tmp_path: Path) -> None:
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last.ckpt").write_bytes((plain[0] / "checkpoints" / "last.ckpt").read_bytes())
        with pytest.raises(CorruptCheckpoint, match="it lacks the state of"):
            fit(tiny(*BATCH_NORM, *KINDS[kind]), tmp_path)

    def test_show_their_probes_what_is_evaluated(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After 13 steps, between two evaluations, a probe sees what an evaluation there would have been of."""
        monkeypatch.setenv("SWAPFORMER_PACKAGES", "test_averaging")
        monkeypatch.syspath_prepend(Path(__file__).parent)
        config = tiny(*KINDS[kind], "+probes.weights={_target_: test_averaging.TotalWeight, at: [13]}")
        outcome = fit_watched(config, tmp_path / "watched")
        assert not outcome.notes
        watched = WeightPath()
        fit(tiny(), tmp_path / "plain", callbacks=[watched])
        expected = exponential(watched.path[:13]) if kind == "ema" else mean(watched.path, [6, 12, 13])
        found = read_artifacts(tmp_path / "watched", [])["weights:13"].metrics["probe/weights:13"]
        assert found == pytest.approx(total(expected), rel=1e-6)
        assert abs(found - total(watched.path[12])) > 1e-3


def total(weights: Mapping[str, Tensor]) -> float:
    return sum(float(weight.double().abs().sum()) for weight in weights.values())


class TotalWeight(Probe):
    """The sum of the absolute values of all weights."""

    def measure(self, model: Any, task: Any) -> Finding:
        return Finding({"probe/weights": total(model.state_dict())})


@pytest.mark.parametrize("kind", KINDS)
def test_an_average_that_touches_the_weights_in_training_is_found_out(
    kind: str, plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: averages are put into the model for an evaluation, and left there."""
    monkeypatch.setattr(WeightAverage, "on_validation_end", lambda self, *arguments: None)
    fit(tiny(*BATCH_NORM, *KINDS[kind]), tmp_path)
    assert not same_training(plain[0], tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_what_starts_from_a_trial_takes_its_average_whether_the_head_is_tied_or_not(tied: bool, tmp_path: Path) -> None:
    source, config = tmp_path / "source", tiny(*KINDS["ema"], f"model.topology.tie_embeddings={tied}")
    fit(config, source)
    held = read(source)
    taken = read_weights(source / "checkpoints" / "last.ckpt")
    assert equal(taken, held["evaluated"])
    newest = {name.removeprefix("model."): weight for name, weight in held["state_dict"].items()}
    assert taken.keys() == newest.keys() and not equal(taken, newest)
    own = compose([*TINY, f"model.topology.tie_embeddings={tied}"])
    start = {"source": "here", "path": str(source / "checkpoints" / "last.ckpt"), "weights": fingerprint(taken)}
    still = {"init_from": start, "budget": {"steps": 0}}
    outcome = fit({**own, **still}, tmp_path / "started")
    assert equal(read_weights(tmp_path / "started" / "checkpoints" / "last.ckpt"), taken)
    assert outcome.metrics == fit(config, source).metrics
