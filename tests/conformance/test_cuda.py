"""What laws say of a step on CUDA, tried on a GPU: `pytest -m cuda` where there is one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from configs import every_part, small
from swapformer.conformance.subject import LENGTH, Subject, ids, loss_of, make_tokens
from swapformer.model.ops import MANY, symbol_logits
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.study.config.compose import compose
from swapformer.study.config.cost import step_peak, task_of
from swapformer.training.assemble import build_model, build_task
from swapformer.training.data import TrainingStream
from swapformer.training.module import TrialModule

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
    pytest.mark.filterwarnings(
        "ignore"
    ),  # of torch: what counts synchronisations is a prototype; what compilers import
]
DEVICE = "cuda"
PARTS = every_part()
NANO = ["task=copy", "task.lengths=[2,60]", "task.batch_size=16", "model/size=nano", "trainer=gpu"]


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def on_gpu(subject: Subject) -> tuple[Topology, tuple[Tensor, Tokens]]:
    model = subject.build().to(DEVICE, torch.float32).train()
    tags = {name: torch.zeros(1, LENGTH, dtype=torch.int64, device=DEVICE) for name in model.stack.tags}
    return model, (ids().to(DEVICE), replace(make_tokens(LENGTH, device=DEVICE), tags=tags))


def step(model: Topology, given: tuple[Tensor, Tokens]) -> Tensor:
    model.zero_grad(set_to_none=True)
    loss = loss_of(model, *given)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


@pytest.mark.parametrize(("slot", "option"), PARTS, ids=[f"{slot}-{option}" for slot, option in PARTS])
def test_a_step_is_deterministic_waits_for_nothing_and_leaves_nothing(slot: str, option: str) -> None:
    """The second step copies no constant any more; after it as much memory is allocated as before."""
    wide = ["model.head_dim=16"] if option == "flex" else []  # its heads must be
    subject = Subject.of(small([f"model/{slot}={option}", *wide]), slot)
    if subject.unavailable and slot != "kernel":
        pytest.skip(subject.unavailable)
    model, given = on_gpu(subject)
    step(model, given)
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        if not any(getattr(part, "reads_device", "") for part in model.modules()):
            torch.cuda.set_sync_debug_mode("error")
        losses = [step(model, given) for _ in range(2)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
        gc.enable()
    if not any(getattr(part, "dropout", 0) for part in model.modules()):
        assert torch.equal(*losses)
    assert torch.cuda.memory_allocated() <= before + 2**10


def trained(*overrides: str, steps: int = 20) -> list[float]:
    config = compose([*NANO, *overrides])
    task = build_task(config)
    torch.manual_seed(0)
    module = TrialModule(build_model(config, task.interface).to(DEVICE), task, config)
    optimiser = module.configure_optimizers()["optimizer"]  # type: ignore[index]
    losses = []
    for number, share in enumerate(TrainingStream(task, 0, 0, steps, 1)):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=config["trainer"]["precision"] == "bf16-mixed"):
            loss = module.training_step(module.transfer_batch_to_device(share, torch.device(DEVICE), 0), number)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def test_compiled_it_trains_what_eager_does() -> None:
    assert trained("trainer.compile=true") == pytest.approx(trained(), rel=1e-2)


def test_symbols_whose_rows_are_not_aligned_have_the_logits_and_gradients_of_float64() -> None:
    torch.manual_seed(0)
    symbols = MANY + 1
    states, weight, given = (torch.randn(*shape, device=DEVICE) for shape in ((64, 96), (symbols, 96), (64, symbols)))
    found = []
    for dtype in (torch.float32, torch.float64):
        there = [x.detach().to(dtype).requires_grad_() for x in (states, weight)]
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.float32):
            logits = symbol_logits(*there)
        found.append([logits, *torch.autograd.grad(logits.double(), there, given.double())])
    for ours, exact in zip(*found, strict=True):
        assert ours.shape == exact.shape
        assert (ours.double() - exact).norm() < 1e-2 * exact.norm()


def test_the_peak_that_is_counted_is_that_of_the_allocator_to_a_quarter() -> None:
    """A GPU's kernels save other tensors than the CPU's that are counted."""
    overrides = ["model/size=micro", "trainer.precision=bf16-mixed"]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    trained(*overrides, steps=3)
    config = compose([*NANO, *overrides])
    counted = step_peak(config, task_of(config), config["task"]["batch_size"])
    assert counted == pytest.approx(torch.cuda.max_memory_allocated() - before, rel=0.25)
