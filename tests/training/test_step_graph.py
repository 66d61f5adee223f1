"""Replayed steps against those that Python computes; on a CPU by torch's operations, called again one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback
from torch import Tensor, nn

from swapformer.conformance.replaying import OperationRecording
from swapformer.results.history import SECONDS
from swapformer.study.config.compose import compose
from swapformer.training import step_graph
from swapformer.training.callbacks import Checkpoints
from swapformer.training.fit import Outcome, fit
from swapformer.training.step_graph import CannotRecord, RecordedStep, RefuseReads, StepGraphs, require_no_hooks

COPY = ("task=copy", "task.lengths=[2,3]", "task.eval_lengths=[8]", "task.batch_size=4")
TINY = [
    "trainer.precision=64-true",
    *("model.d_model=16", "model.num_heads=4", "model.num_layers=2", "model.dropout=0.1", "model/attention=gqa"),
    *("model/position=t5", "model/ffn=glu", "model/norm=rmsnorm", "budget.steps=24", "eval.every=6", "seed=3"),
    *("eval.batches=1", "eval.final_batches=2", "checkpoint_every=4", "log_every=5", "trainer.gradient_clip_val=0.5"),
]


def config(*overrides: str) -> dict[str, Any]:
    task = () if any(given.startswith("task=") for given in overrides) else COPY
    return compose([*TINY, *task, *overrides])


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record steps on the CPU too; the list holds the seed of every replay."""
    seeds: list[int] = []
    original = RecordedStep.replay

    def replay(self: RecordedStep, share: Any, seed: int) -> Any:
        seeds.append(seed)
        return original(self, share, seed)

    monkeypatch.setitem(step_graph.RECORDINGS, "cpu", OperationRecording)
    monkeypatch.setattr(RecordedStep, "replay", replay)
    return seeds


def weights(folder: Path) -> dict[str, Tensor]:
    held: dict[str, Tensor] = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return held


def assert_equal(one: Path, other: Path) -> None:
    """Two trainings left the same weights and the same history but for its seconds, bit by bit."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    histories = [(folder / "metrics.csv").read_text().splitlines() for folder in (one, other)]
    mine, theirs = ([row for row in rows if f",{SECONDS}," not in row] for rows in histories)
    assert mine == theirs and any(",train/grad_norm," in row for row in mine)


def trained(folder: Path, *overrides: str) -> Outcome:
    folder.mkdir(exist_ok=True)
    return fit(config(*overrides), folder)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("trainer.precision=32-true", "model/norm=batchnorm"),
        ("trainer.precision=bf16-mixed", "allow=[bf16]"),
        ("model/position=randomized", "task.lengths=[3,3]"),
        ("optim=muon", "schedule=linear"),
        ("task=masked", "task.batch_size=4", "task.block=16", "task.eval_batch_size=4"),
    ],
    ids=["plain", "batchnorm", "bf16", "drawn positions", "muon", "masked"],
)
def test_a_training_of_replayed_steps_is_that_of_computed_ones(
    overrides: tuple[str, ...], tmp_path: Path, replays: list[int]
) -> None:
    mine = trained(tmp_path / "replayed", *overrides)
    assert len(replays) > 12 and len(set(replays)) == len(replays)
    count = len(replays)
    theirs = trained(tmp_path / "computed", *overrides, "trainer.graph=false")
    assert len(replays) == count and mine == theirs and not mine.notes
    assert_equal(tmp_path / "replayed", tmp_path / "computed")


def test_a_stopped_training_goes_on_to_the_same_end(
    tmp_path: Path, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Checkpoints.on_train_batch_end

    def ask(self: Checkpoints, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == 15:
            self.stop.requested = "SIGTERM"
        original(self, trainer, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", ask)
        assert trained(tmp_path / "stopped").status == "interrupted"
    assert trained(tmp_path / "stopped").status == "finished" and len(replays) > 8
    trained(tmp_path / "computed", "trainer.graph=false")
    assert_equal(tmp_path / "stopped", tmp_path / "computed")


def _of_the_first_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """The static tensors of a recording are copies, into which no batch is written."""
    return lambda self, share, seed: original(self, self.first, seed) if _keep(self, share) else None


def _keep(step: Any, share: Any) -> bool:
    step.first = getattr(step, "first", share)
    return True


FAULTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "the batch": _of_the_first_batch,
    "the stream": lambda original: lambda self, share, seed: original(self, share, 7),
}
"""What a replay could forget."""


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_replay_forgets_is_seen_before_it_counts(
    fault: str, tmp_path: Path, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RecordedStep, "replay", FAULTS[fault](RecordedStep.replay))
        outcome = trained(tmp_path / "replayed", "model/norm=batchnorm")
    assert "differs from the same step as Python computes it" in outcome.notes[0] and len(outcome.notes) == 1
    trained(tmp_path / "computed", "model/norm=batchnorm", "trainer.graph=false")
    assert_equal(tmp_path / "replayed", tmp_path / "computed")


def test_a_device_that_cannot_record_leaves_the_step_to_python(
    tmp_path: Path, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(OperationRecording):
        def __init__(self, function: Callable[[], Any]) -> None:
            function()
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    monkeypatch.setitem(step_graph.RECORDINGS, "cpu", Fails)
    outcome = trained(tmp_path / "failed", "model/norm=batchnorm")
    said = "RuntimeError: CUDA error: operation not permitted when stream is capturing"
    assert outcome.notes == (f"its steps were not replayed from a CUDA graph ({said})",) and not replays
    trained(tmp_path / "computed", "model/norm=batchnorm", "trainer.graph=false")
    assert_equal(tmp_path / "failed", tmp_path / "computed")


class Listens(Callback):
    """Hooks the embedding's weight when the tenth step is done."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == 10:
            pl_module.model.embedding.weight.register_hook(lambda gradient: 2 * gradient)


class Moves(Callback):
    """Puts the embedding's weight into other memory when the tenth step is done."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == 10:
            pl_module.model.embedding.weight.data = pl_module.model.embedding.weight.data.clone()


@pytest.mark.parametrize(("callback", "said"), [(Listens, "the model has hooks"), (Moves, None)])
def test_what_a_callback_does_to_the_model_is_respected(
    callback: type[Callback], said: str | None, tmp_path: Path, replays: list[int]
) -> None:
    for name in ("true", "false"):
        (tmp_path / name).mkdir()
        outcome = fit(config(f"trainer.graph={name}"), tmp_path / name, callbacks=[callback()])
        assert not outcome.notes if said is None or name == "false" else said in outcome.notes[0]
    assert replays
    assert_equal(tmp_path / "true", tmp_path / "false")


def test_too_many_shapes_are_not_recorded(tmp_path: Path, replays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graph, "MOST_SHAPES", 1)
    assert "more than 1 shapes" in trained(tmp_path / "replayed").notes[0]
    trained(tmp_path / "computed", "trainer.graph=false")
    assert_equal(tmp_path / "replayed", tmp_path / "computed")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.accumulate_grad_batches=2", "trainer.accumulate_grad_batches=2"),
        ("trainer.gradient_checkpointing=true", "trainer.gradient_checkpointing=true"),
        ("trainer.detect_anomaly=true", "trainer.detect_anomaly=true"),
    ],
)
def test_what_stands_against_it_is_in_the_record(override: str, said: str, tmp_path: Path, replays: list[int]) -> None:
    assert trained(tmp_path, override, "budget.steps=2").notes == (
        f"its steps were not replayed from a CUDA graph ({said})",
    )
    assert not replays


def test_on_a_cpu_nothing_is_recorded_and_nothing_is_said(tmp_path: Path) -> None:
    assert not trained(tmp_path, "budget.steps=6").notes


@pytest.mark.parametrize(
    "read",
    [lambda x: float(x.sum()), lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: bool((x > 0).all())],
    ids=["number", "mask", "nonzero", "branch"],
)
def test_reading_what_a_tensor_holds_is_refused(read: Callable[[Tensor], Any]) -> None:
    with RefuseReads(), pytest.raises(CannotRecord, match="reads what a tensor holds"):
        read(torch.ones(3))


def test_an_index_of_numbers_is_no_reading() -> None:
    x = torch.arange(5.0)
    with RefuseReads():
        found = x[torch.tensor([3, 1])]
    assert found.tolist() == [3.0, 1.0]


def hooked() -> Iterator[nn.Module]:
    for register in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        model = nn.Sequential(nn.Linear(2, 2))
        getattr(model[0], register)(lambda *args: None)
        yield model
    for register in ("register_hook", "register_post_accumulate_grad_hook"):
        model = nn.Sequential(nn.Linear(2, 2))
        getattr(model[0].weight, register)(lambda *args: None)
        yield model


def test_hooks_of_every_kind_are_found() -> None:
    require_no_hooks(nn.Sequential(nn.Linear(2, 2)))
    for model in hooked():
        with pytest.raises(CannotRecord, match="hooks"):
            require_no_hooks(model)


def test_nothing_is_handed_over_where_nothing_was_replayed() -> None:
    assert not StepGraphs(OperationRecording).hand_over()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("part", ["model/position=rope", "model/position=t5", "model/norm=batchnorm"])
def test_on_a_gpu_a_graph_gives_the_bits_of_kernels_launched_one_by_one(
    part: str, precision: str, tmp_path: Path
) -> None:
    gpu = ["trainer=gpu", f"trainer.precision={precision}", part]
    assert not trained(tmp_path / "replayed", *gpu).notes
    trained(tmp_path / "computed", *gpu, "trainer.graph=false")
    assert_equal(tmp_path / "replayed", tmp_path / "computed")
