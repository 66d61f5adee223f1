"""The loss of a step. Auxiliary losses act on the gradient, whatever the cuts of a batch, and are not recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from swapformer.interface import Readout
from swapformer.study.config.compose import compose
from swapformer.task.base import IGNORE, Batch
from swapformer.training import inputs
from swapformer.training.assemble import build_model, build_task
from swapformer.training.fit import fit
from swapformer.training.inputs import tokens_of, total_loss
from swapformer.training.module import TrialModule

TINY = [
    *(
        "task=copy",
        "task.lengths=[2,5]",
        "task.eval_lengths=[8]",
        "task.batch_size=8",
        "optim=sgd",
        "schedule=constant",
    ),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model/ffn=switch", "model.ffn.experts=4"),
    *("budget.steps=1", "eval.every=1", "eval.batches=1", "eval.final_batches=1", "log_every=1", "checkpoint_every=1"),
    "trainer.gradient_clip_val=0",
]


def routers(directory: Path, *overrides: str) -> tuple[torch.Tensor, Any]:
    config = compose([*TINY, *overrides])
    outcome = fit(config, directory)
    state = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    history = (directory / "metrics.csv").read_text()
    return state["model.stack.layers.0.ffn.router.weight"], (outcome, history)


def test_the_balancing_loss_moves_the_router_and_is_not_recorded_as_loss(tmp_path: Path) -> None:
    without, (_, plain) = routers(tmp_path / "a", "model.ffn.balance=0.0")
    with_loss, (outcome, history) = routers(tmp_path / "b", "model.ffn.balance=10.0")
    assert outcome.status == "finished"
    assert (with_loss - without).abs().max() > 1e-5
    assert [row for row in history.splitlines() if "train/loss" in row] == [
        row for row in plain.splitlines() if "train/loss" in row
    ], "the first step's recorded loss is the task's alone"


def test_a_batch_without_targets_adds_no_loss(tmp_path: Path) -> None:
    """Of 100 batches of one sequence of brackets some have none; 0 / 0 made the trial one that diverged."""
    dyck = ["task=dyck", "task.batch_size=1"]
    tiny = [item for item in TINY if not item.startswith(("task", "budget"))]
    task = build_task(compose([*tiny, *dyck]))
    none = next(step for step in range(200) if int((task.train_batch(0, step).targets != IGNORE).sum()) == 0)
    outcome = fit(compose([*tiny, *dyck, f"budget.steps={none + 1}"]), tmp_path)
    assert outcome.status == "finished"


def test_a_balance_of_parts_is_another_than_that_of_the_batch_and_the_record_says_so(tmp_path: Path) -> None:
    notes = {}
    for parts, balance in ((1, 0.01), (2, 0.01), (2, 0.0)):
        given = (f"model.ffn.balance={balance}", f"trainer.accumulate_grad_batches={parts}")
        _, (outcome, _) = routers(tmp_path / f"{parts} {balance}", *given)
        notes[parts, balance] = outcome.notes
    assert not notes[1, 0.01] and not notes[2, 0.0], "nothing to say where there is one part, or no loss"
    assert "MoE took the loss over each of the 2 parts of a batch" in " ".join(notes[2, 0.01])


def test_the_balancing_loss_is_averaged_over_the_parts_of_an_accumulated_batch(tmp_path: Path) -> None:
    shifts = []
    for parts in (1, 2):
        moved, _ = routers(tmp_path / f"m{parts}", "model.ffn.balance=1e4", f"trainer.accumulate_grad_batches={parts}")
        start, _ = routers(tmp_path / f"s{parts}", "model.ffn.balance=0.0", f"trainer.accumulate_grad_batches={parts}")
        shifts.append((moved - start).norm().item())
    assert shifts[1] == pytest.approx(shifts[0], rel=0.5), "a sum over the parts would be twice as large"


def test_the_largest_position_is_read_before_a_batch_moves() -> None:
    """On the meta device, as on CUDA without waiting, no position can be read."""
    ids, position = torch.zeros(1, 3, dtype=torch.int64), torch.tensor([[0, 4, 9]])
    batch = Batch(inputs=ids, targets=ids, position=position)
    assert tokens_of(batch.to("meta")).extent == tokens_of(batch).extent == 10
    with pytest.raises((NotImplementedError, RuntimeError)):
        tokens_of(replace(batch.to("meta"), extent=None))


def test_a_pattern_whose_saving_a_gpu_does_not_take_is_in_the_notes() -> None:
    """Kernel auto never takes blocks on a GPU; full patterns, a CPU and other kernels have nothing to say."""
    for pattern, kernel, said in (("window", "auto", 1), ("causal", "auto", 0), ("window", "reference", 0)):
        config = compose([*TINY, f"model/pattern={pattern}", f"model/kernel={kernel}"])
        task = build_task(config)
        for accelerator, expected in (("gpu", said), ("cpu", 0)):
            on = {**config, "trainer": {**config["trainer"], "accelerator": accelerator}}
            notes = TrialModule(build_model(config, task.interface), task, on).notes
            assert len(notes) == expected, notes


def notes_with(*given: str) -> tuple[str, ...]:
    config = compose([*TINY, *given])
    task = build_task(config)
    return TrialModule(build_model(config, task.interface), task, config).notes


@pytest.mark.parametrize("position", ["t5", "relative_bias", "relative_key", "relative_key_query"])
def test_rows_of_distances_that_only_longer_sequences_read_are_in_the_notes(position: str) -> None:
    near, far = (f"model.position.max_distance={reach}" for reach in (17, 32))
    (note,) = notes_with(f"model/position={position}", far)
    assert "tells distances up to 32 apart, but training has" in note and "model.position.max_distance" in note
    assert not notes_with(f"model/position={position}", far, "task.eval_lengths=[]"), "nothing reads them"
    assert not notes_with(f"model/position={position}", near, "task.lengths=[2,16]", "task.eval_lengths=[2x]")


@pytest.mark.parametrize("position", ["rope_yarn", "rope_llama3", "rope_ntk_dynamic"])
def test_a_stretched_rope_that_was_set_for_another_length_is_in_the_notes(position: str) -> None:
    (note,) = notes_with(f"model/position={position}", "model.position.original_len=32")
    assert "is set for a training on 32 tokens, but this one has" in note
    assert not notes_with(f"model/position={position}", "model.position.original_len=8")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("most", [2**24, 5 * 97], ids=["whole", "in parts"])
def test_cross_entropy_of_16_bit_logits_is_that_of_float32_ones(
    dtype: torch.dtype, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With targets that count for nothing, and a loss that is scaled so that float16 holds small gradients."""
    monkeypatch.setattr(inputs, "MOST_LOGITS", most)
    torch.manual_seed(0)
    targets = torch.randint(97, (4, 13))
    targets[:, ::5] = IGNORE
    logits = (4 * torch.randn(4, 13, 97)).to(dtype)
    readout, found = Readout(97), []
    for x in (logits, logits.float()):
        x.requires_grad_()
        loss = total_loss(readout, x, targets)
        (loss * 1024).backward()  # type: ignore[no-untyped-call]
        assert loss.dtype == torch.float32 and x.grad is not None
        found.append((loss.detach(), x.grad.to(dtype)))
    (loss, grad), (of_float32, grad_of_float32) = found
    assert torch.allclose(loss, of_float32, rtol=1e-6)
    assert torch.allclose(grad, grad_of_float32, rtol=torch.finfo(dtype).eps, atol=2.0**-24)  # the least of float16
    assert not grad[:, ::5].any()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler does
def test_cross_entropy_in_parts_is_one_graph_to_the_compiler() -> None:
    def loss(x: Tensor) -> Tensor:
        return total_loss(Readout(11), x, torch.arange(10).view(2, 5))

    x = torch.randn(2, 5, 11, dtype=torch.bfloat16)
    assert torch.equal(torch.compile(loss, backend="eager", fullgraph=True)(x), loss(x))
