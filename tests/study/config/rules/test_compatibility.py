"""What norms, initialisations and mixtures cannot go with is refused at composition, with what would work.

BatchNorm's statistics (Ioffe & Szegedy 2015) mix places, the future's too; Fixup (Zhang et al. 2019) starts the
classifier at zero, which an embedding table cannot be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import accepted
from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose
from swapformer.study.config.rules import compatibility

TASK = ["task=copy", "task.lengths=[2,4]", "task.eval_lengths=[4]"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["model/norm=batchnorm"],
            "BatchNorm takes its statistics over all positions in training, .*scalenorm or dyt\\.$",
        ),
        (
            ["model/init=fixup", "model.topology.tie_embeddings=false"],
            "Fixup is for models without a norm, but there is La",
        ),
        (["model/init=fixup", "model/norm=none"], "Fixup starts the head at zero, .*tie_embeddings=false"),
        (["model/init=t_fixup", "model/norm=rmsnorm"], "TFixup is for models without a norm, .* model/norm=none"),
        (
            ["model/init=fixup", "model/norm=none", "model/residual=residual2"],
            "Fixup is for models without a norm, but residual ResiDual .* model/residual=add",
        ),
        (
            ["model/init=natural", "model/score=dot_unscaled", "model.layers=[{at: 0, num_heads: 1}]"],
            "Natural draws queries and keys for heads 16 wide, but some layers have others; leave num_heads",
        ),
        (
            ["model/score=cosine", "model/qk_norm=l2"],
            "Cosine does not see the lengths of queries and keys, which are all that qk_norm L2 changes; use model/sc",
        ),
        (["model/ffn=block_sparse", "model.ffn.blocks=7"], "`blocks` must divide d_model"),
        (
            ["model/ffn=block_sparse", "model.d_model=64", "model.ffn.blocks=32"],
            "each of the 32 `blocks` must have at least 32 hidden units, .*but has 8",
        ),
        (["model/residual=residual2"], "needs the norms after and final of a placement, .* lacks after; use model/pl"),
        (
            ["model/residual=residual2", "model/norm=none"],
            "tells its streams apart by norms, .* use model/residual=add",
        ),
        (["model/residual=residual2", "model/placement=post"], "but this one lacks final; use model/placement=dual"),
        (
            ["model/depth=early_exit", "model/norm=batchnorm", "model/pattern=full", "allow=[future]"],
            "running averages of BatchNorm would mix exits; use model/norm=layernorm",
        ),
        (
            ["model/score=additive", "model/kernel=sdpa"],
            "sdpa computes dot products only, not Additive; use model/kernel",
        ),
        (["model/normaliser=sparsemax", "model/kernel=sdpa"], "sdpa computes softmax only, not Sparsemax"),
        (
            ["callbacks=ema", "budget.steps=0"],
            "averages the weights of a training, but there is none; use callbacks=none",
        ),
        (
            ["callbacks=ema", "measure=step"],
            "averages the weights of a training, but there is none; use callbacks=none",
        ),
        (
            ["callbacks=last", "eval.every=100", "budget.steps=300"],
            "of 4 evaluations, but budget.steps=300 with eval.every=100 has 3, that after training among them; lower",
        ),
        (
            ["callbacks=ema", "trainer.devices=2", "trainer.strategy=fsdp"],
            "ExponentialAverage evaluates whole weights, .* use trainer.strategy=ddp",
        ),
    ],
)
def test_what_cannot_work_is_refused(overrides: list[str], words: str) -> None:
    config = compose([*TASK, *overrides])
    with pytest.raises(UsageError, match=words) as found:
        check(config)
    with pytest.raises(UsageError) as at_another_rate:
        check(_with_rate(config, 0.5))
    assert str(at_another_rate.value) == str(found.value), "no rule about the model may ask for the rate"


def _with_rate(config: dict[str, Any], rate: float) -> dict[str, Any]:
    return {**config, "optim": {**config["optim"], "lr": rate}}


OWN = """
import torch
from torch.nn.functional import gelu
from swapformer.model.activation import Activation
from swapformer.model.norm import Norm
from swapformer.model.dims import Dims
from swapformer.model.layers import gain


class Fine(Activation):
    def forward(self, x):
        return gelu(x)


class Peek(Activation):
    def forward(self, x):
        return gelu(x + x.roll(-1, dims=-2))


class InTraining(Activation):
    def forward(self, x):
        return gelu(x - x.mean(-2, keepdim=True) if self.training else x)


class Hidden(Norm):
    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.mix = gain(1, start=0.0)

    def forward(self, x, padding):
        return x + self.mix * x.flip(-2)
"""


@pytest.fixture
def leaky_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module above, for as long as a test runs."""
    (tmp_path / "leaky_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "leaky_parts")
    yield
    sys.modules.pop("leaky_parts", None)


@pytest.mark.usefixtures("leaky_parts")
@pytest.mark.parametrize(
    ("slot", "name", "leaks"),
    [
        ("activation", "Fine", False),
        ("activation", "Peek", True),
        ("activation", "InTraining", True),
        ("norm", "Hidden", True),
    ],
)
@pytest.mark.parametrize("task", [TASK, ["task=text", "task.block=32"]])
def test_a_part_of_the_users_own_that_reads_what_comes_after_is_refused(
    slot: str, name: str, leaks: bool, task: list[str]
) -> None:
    config = compose([*task, "model.num_layers=1", "model.dropout=0.1"])
    config["model"][slot] = {"_target_": f"leaky_parts.{name}", "_partial_": True, "_convert_": "all"}
    if not leaks:
        check(config)
        return
    with pytest.raises(UsageError, match=rf"in a model with leaky_parts\.{name} later tokens change earlier answers"):
        check(config)
    check({**config, "allow": ["future"]})


@pytest.mark.usefixtures("leaky_parts")
def test_a_part_of_the_users_own_whose_kernel_needs_a_device_is_not_refused_for_that() -> None:
    config = compose([*TASK, "trainer=gpu", "model/kernel=flex", "model.num_layers=1"])
    config["model"]["activation"] = {"_target_": "leaky_parts.Fine", "_partial_": True, "_convert_": "all"}
    check(config)


def test_a_model_is_made_again_for_anything_but_another_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, made = compose(TASK), list[str]()

    def listen(name: str) -> None:
        make = getattr(compatibility, name)

        def heard(*given: Any) -> Any:
            made.append(name)
            return make(*given)

        monkeypatch.setattr(compatibility, name, heard)

    listen("build_plan")
    listen("make_optimiser")
    compatibility._make_optimiser.cache_clear()
    other = _with_rate(passed, 0.123)
    check(other, passed)
    assert made == ["make_optimiser"]
    check(_with_rate(passed, 0.124), passed, trained=True)
    assert made == ["make_optimiser"]
    for changed in ({**other, "allow": ["future"]}, {**other, "optim": {**other["optim"], "weight_decay": 0.5}}):
        check(changed, passed, trained=True)
    assert made[1:] == ["build_plan", "build_plan"]
    with pytest.raises(UsageError, match=r"`optim\.lr` must be"):
        check(_with_rate(passed, -1.0), passed, trained=True)
    with pytest.raises(UsageError, match="warmup"):
        check({**other, "schedule": {**other["schedule"], "warmup_steps": 10**6}}, passed, trained=True)


@pytest.mark.parametrize(
    "overrides",
    [
        ["+preset=fixup"],
        ["+preset=deepnorm"],
        ["model/residual=residual2", "model/placement=dual"],
        ["model/init=t_fixup", "model/norm=none"],
        ["model/norm=batchnorm", "model/pattern=full", "allow=[future]"],
        ["model/ffn=none"],
        ["callbacks=last", "eval.every=100", "budget.steps=301"],
        ["callbacks=ema", "trainer.devices=2", "trainer.strategy=ddp"],
        ["model/qk_norm=rmsnorm_width", "model/attention=mqa"],
    ],
)
def test_what_works_is_let_through(overrides: list[str]) -> None:
    accepted(*TASK, *overrides)
