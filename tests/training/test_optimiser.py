"""Every optimiser of conf/optim trains a tiny trial; Muon is torch's Muon and torch's AdamW side by side."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from swapformer.model.layers import Embedding, Linear, Role, StackedLinear
from swapformer.paths import conf_dir
from swapformer.study.config.compose import compose
from swapformer.training.fit import fit
from swapformer.training.muon import MuonAdamW

FILES = sorted((conf_dir() / "optim").glob("*.yaml"))
SETTINGS: dict[str, Any] = {
    "lr": 0.01,
    "momentum": 0.9,
    "nesterov": True,
    "ns_steps": 5,
    "betas": (0.9, 0.99),
    "eps": 1e-8,
    "weight_decay": 0.1,
}


@pytest.mark.parametrize("option", [file.stem for file in FILES])
def test_an_optimiser_trains_a_tiny_trial(option: str, tmp_path: Path) -> None:
    target = yaml.safe_load((conf_dir() / "optim" / f"{option}.yaml").read_text())["_target_"]
    if importlib.util.find_spec(target.split(".")[0]) is None:
        pytest.skip(f"{target} is not installed; run `make install`")
    sizes = ["model.d_model=16", "model.num_heads=2", "model.num_layers=1", "task.batch_size=8", "log_every=1"]
    task = ["task=copy_repeat", "task.lengths=[2,4]", "task.eval_lengths=[4]", "schedule=constant"]
    run = ["eval.batches=1", "eval.final_batches=4", "checkpoint_every=20"]
    losses = {}
    for steps in (1, 40):
        config = compose([*sizes, *task, *run, f"optim={option}", f"budget.steps={steps}", f"eval.every={steps}"])
        outcome = fit(config, tmp_path / str(steps))
        assert outcome.status == "finished"
        losses[steps] = outcome.metrics["val/loss"]
    assert losses[40] < losses[1] - 0.01


def parameters() -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices that Muon takes, and all else."""
    generator = torch.Generator().manual_seed(1)
    inner = Linear(4, 6, Role.FFN_IN, bias=True)
    stacked, table = StackedLinear(3, 4, 5, Role.FFN_IN, bias=False), Embedding(7, 4, Role.TOKEN_EMBEDDING)
    head = Linear(4, 7, Role.HEAD, bias=False)
    assert inner.bias is not None
    every = [inner.weight, inner.bias, stacked.weight, table.weight, head.weight]
    for parameter in every:
        nn.init.normal_(parameter, generator=generator)
    return every[:1], every[1:]


def steps(optimisers: list[torch.optim.Optimizer], every: list[nn.Parameter], count: int, start: int = 0) -> None:
    for step in range(start, start + count):
        generator = torch.Generator().manual_seed(step)
        for parameter in every:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for optimiser in optimisers:
            optimiser.step()


def test_muon_takes_the_matrices_of_layers_and_adamw_all_else() -> None:
    mine, others = parameters()
    steps([MuonAdamW([{"params": [*mine, *others]}], **SETTINGS)], [*mine, *others], 3)
    expected, rest = parameters()
    muon = torch.optim.Muon(expected, lr=0.01, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(rest, lr=0.01, weight_decay=0.1, betas=(0.9, 0.99))
    steps([muon, adamw], [*expected, *rest], 3)
    for one, other in zip([*mine, *others], [*expected, *rest], strict=True):
        assert torch.equal(one, other)


def test_muon_resumes_bit_equal_from_its_state_and_follows_a_new_learning_rate() -> None:
    def half_rate(optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
        for group in optimiser.param_groups:
            group["lr"] = 0.005
        return optimiser

    every = [p for part in parameters() for p in part]
    whole = MuonAdamW([{"params": every}], **SETTINGS)
    steps([whole], every, 2)
    saved, weights = whole.state_dict(), [p.detach().clone() for p in every]
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    steps([half_rate(whole)], every, 2, start=2)

    again = [p for part in parameters() for p in part]
    with torch.no_grad():
        for parameter, weight in zip(again, weights, strict=True):
            parameter.copy_(weight)
    resumed = MuonAdamW([{"params": again}], **SETTINGS)
    resumed.load_state_dict(saved)
    steps([half_rate(resumed)], again, 2, start=2)
    assert all(torch.equal(one, other) for one, other in zip(every, again, strict=True))
