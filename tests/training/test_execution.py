"""How a trial is computed, on one device: checkpointing, compilation, precision. Each does something, and says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from study import fakes
from swapformer.errors import UsageError
from swapformer.model.stack import stacks
from swapformer.results.config import read_config
from swapformer.results.store import Store
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.cost import flops_of_a_step, measure
from swapformer.study.launch.trial import execute
from swapformer.study.plan import make_trial
from swapformer.training.assemble import build_model, build_task
from swapformer.training.data import TrainingStream
from swapformer.training.final_evaluation import evaluate
from swapformer.training.fit import fit
from swapformer.training.module import TrialModule
from swapformer.training.weights import restore

COPY = ["task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8"]
SMALL = [
    *(
        "model.d_model=16",
        "model.num_heads=2",
        "model.num_layers=2",
        "model.dropout=0.1",
        "optim.lr=0.01",
        "schedule.warmup_steps=1",
    ),
    *("budget.steps=6", "eval.every=3", "eval.batches=1", "eval.final_batches=2", "log_every=1"),
]
TINY = [*COPY, *SMALL]


def compiler() -> str | None:
    """Why nothing can be compiled here; None if it can."""
    try:
        cpp_builder.get_cpp_compiler()
    except InvalidCxxCompiler:
        return "there is no C++ compiler"
    return None


def gradients(checkpointed: bool, *overrides: str) -> dict[str, torch.Tensor]:
    """Of one training step in float64, with dropout."""
    config = compose([*SMALL, *overrides])
    task = build_task(config)
    model = build_model(config, task.interface).double()
    for stack in stacks(model).values():
        stack.checkpointed = checkpointed
    module = TrialModule(model, task, config)
    module.training_step(next(iter(TrainingStream(task, 0, 0, 1, 1))), 0).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize(
    "arm",
    [
        "model/position=t5",
        "model/position=alibi",
        "model/ffn=moe",
        "model/residual=hyper_connections",
        "model/residual=stochastic_depth",
        "model/depth=early_exit",
        "model/attention=reformer",
        "model/topology=encoder_decoder",
    ],
)
def test_layers_that_are_computed_again_leave_the_gradient_as_it_was(
    arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} bottles of beer;\n" for n in range(300)), encoding="utf-8")
    spans = ["task=spans", "task/source=files", f"task.source.path={text}", "task.block=24", "task.batch_size=4"]
    spans += ["task.tokeniser.vocab_size=400"]
    task = spans if "encoder" in arm else COPY
    kept, again = gradients(False, *task, arm), gradients(True, *task, arm)
    assert kept.keys() == again.keys()
    for name, gradient in kept.items():
        torch.testing.assert_close(again[name], gradient, rtol=0, atol=1e-12, msg=name)


def activations(layers: int, *, checkpointed: bool) -> int:
    config = compose([*TINY, f"model.num_layers={layers}"])
    found = measure(config, task_of(config).interface, 3, [10], "float32", checkpointed=checkpointed)
    return int(found["lengths"][0]["activations"])


def test_each_layer_that_is_computed_again_keeps_what_enters_it_and_no_more() -> None:
    """3 sequences of 10 places of 16 numbers of 4 bytes."""
    assert activations(3, checkpointed=True) - activations(2, checkpointed=True) == 3 * 10 * 16 * 4
    assert activations(3, checkpointed=False) - activations(2, checkpointed=False) > 10 * 3 * 10 * 16 * 4


def test_a_budget_of_operations_leaves_out_what_is_computed_again() -> None:
    plain, again = compose(TINY), compose([*TINY, "trainer.gradient_checkpointing=true"])
    assert flops_of_a_step(plain) == flops_of_a_step(again)


def final(directory: Path, *overrides: str) -> Mapping[str, Any]:
    """The record of a trial, as it is on disk."""
    config = compose([*TINY, f"runs_dir={directory / 'runs'}", *overrides])
    check(config)
    store, trial = Store(config["runs_dir"]), make_trial(config)
    store.prepare()
    record = execute(trial, store, fakes.PROVENANCE)
    assert record is not None and record.status == "finished", record
    found: dict[str, Any] = json.loads((store.directory(trial.id) / "record.json").read_text())
    return found


def weights(directory: Path) -> dict[str, torch.Tensor]:
    (file,) = directory.glob("runs/trials/*/checkpoints/last.ckpt")
    found: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return found


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.fixture(scope="module")
def plain(plain_folder: Path) -> Mapping[str, Any]:
    """The record of a trial with no option of the trainer set."""
    return final(plain_folder)


@pytest.mark.parametrize(
    ("option", "value"),
    [("gradient_checkpointing", True), ("accumulate_grad_batches", 2), ("precision", "bf16-mixed")],
)
def test_the_record_shows_how_a_trial_was_computed_and_the_trial_is_another(
    option: str, value: object, plain: Mapping[str, Any], plain_folder: Path, tmp_path: Path
) -> None:
    other = final(tmp_path / "other", f"trainer.{option}={value}", "allow=[bf16]")
    assert (plain["trainer"][option], other["trainer"][option]) == (compose(TINY)["trainer"][option], value)
    assert plain["id"] != other["id"]
    apart = abs(plain["metrics"]["val/loss"] - other["metrics"]["val/loss"])
    if option == "gradient_checkpointing":
        assert apart == 0
        held = weights(tmp_path / "other")
        assert all(torch.equal(weight, held[name]) for name, weight in weights(plain_folder).items())
    else:  # another dropout, or another rounding
        assert 0 < apart < 0.1


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_layers_that_are_computed_again_draw_what_they_drew(precision: str, tmp_path: Path) -> None:
    """The default type is the trial's in the forward pass only: numbers of that type would be others behind it."""
    depth = ["model/residual=stochastic_depth", "model.residual.survival=0.5", "model.num_layers=4"]
    own = [*depth, f"trainer.precision={precision}", "allow=[bf16]"]
    for name, again in (("plain", "false"), ("again", "true")):
        final(tmp_path / name, *own, f"trainer.gradient_checkpointing={again}")
    held = weights(tmp_path / "again")
    assert all(torch.equal(weight, held[name]) for name, weight in weights(tmp_path / "plain").items())


def test_a_trial_in_float64_is_restored_in_it(tmp_path: Path) -> None:
    own = ["trainer.precision=64-true", "probes=activation_moments", "probes.activation_moments.at=[init,3,end]"]
    record = final(tmp_path, *own)
    (folder,) = tmp_path.glob("runs/trials/*")
    task, model = restore(read_config(folder), folder)
    assert {weight.dtype for weight in model.parameters()} == {torch.float64}
    found = evaluate(model, task, read_config(folder))
    assert all(found[name] == value for name, value in record["metrics"].items() if name.startswith("val/"))


@pytest.mark.evidence
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in what it imports
@pytest.mark.skipif(compiler() is not None, reason=str(compiler()))
def test_a_compiled_training_is_the_same_to_rounding_and_its_weights_keep_their_names(tmp_path: Path) -> None:
    """Inductor on the CPU: the model and its loss in one graph, twenty steps of nano."""
    nano = ("model/size=nano", "model.dropout=0", "budget.steps=20", "eval.every=10", "log_every=10")
    plain, other = final(tmp_path / "plain", *nano), final(tmp_path / "other", *nano, "trainer.compile=true")
    assert other["trainer"]["compile"] is True
    assert other["metrics"] == pytest.approx(plain["metrics"], rel=1e-3, abs=1e-3)
    torch.testing.assert_close(weights(tmp_path / "other"), weights(tmp_path / "plain"), rtol=0, atol=1e-3)


def test_compilation_without_a_compiler_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(UsageError, match="needs a C\\+\\+ compiler on the CPU, but found no such program"):
        fit(compose([*TINY, "trainer.compile=true"]), tmp_path)


REFUSED = {
    "trainer.devices=2": r"add trainer.strategy=ddp, or fsdp",
    "trainer.strategy=ddp": "trainer.devices=1; raise it, or use null",
    "trainer.strategy=dp": "must be one of null, ddp, fsdp",
    "trainer.precision=16-mixed": "no fp16 autocast for training on the CPU",
    "trainer.tf32=true": "would do nothing",
    "trainer.compile=1": "`trainer.compile` must be true or false",
    "trainer.devices=3 trainer.strategy=ddp trainer.accumulate_grad_batches=3": "3 parts for trainer.devices=3",
    "trainer.devices=2 trainer.strategy=ddp model/norm=batchnorm model/pattern=full allow=[future]": "over the whole",
    "trainer.devices=2 trainer.strategy=fsdp model/residual=reversible": "that fsdp gathers weights for",
    "trainer.devices=2 trainer.strategy=fsdp trainer.compile=true": "cannot be compiled here",
    "trainer.devices=2 trainer.strategy=fsdp optim=adafactor": "Adafactor needs whole weights",
    "trainer.devices=2 trainer.strategy=fsdp optim=muon": "MuonAdamW needs whole weights",
    "trainer.gradient_checkpointing=true model/residual=reversible": "keeps no activations",
    "trainer.gradient_checkpointing=true model/extension=[value_residual]": "are not at hand",
    "trainer.compile=true model/residual=reversible": "brings a backward of its own",
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_what_cannot_be_computed_so_is_refused_before_anything_is_trained(overrides: str) -> None:
    with pytest.raises(UsageError, match=REFUSED[overrides]):
        check(compose([*TINY, *overrides.split()]))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_half_precision_on_a_gpu_trains_what_float32_does_nearly(precision: str, tmp_path: Path) -> None:
    gpu = ["trainer=gpu", "optim.fused=false", "model.dropout=0"]
    plain = final(tmp_path / "plain", *gpu, "trainer.precision=32-true")
    other = final(tmp_path / "other", *gpu, f"trainer.precision={precision}")
    assert 0 < abs(plain["metrics"]["val/loss"] - other["metrics"]["val/loss"]) < 0.1
