"""Several devices of one trial: two or four ranks do what one does, to rounding, and stop and go on as one."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchmetrics import MeanMetric, MetricCollection, PearsonCorrCoef

from swapformer.errors import UsageError
from swapformer.model.norm import Norm
from swapformer.results.history import SECONDS
from swapformer.study.config.compose import compose
from swapformer.task.metrics import SequenceMetric, class_metrics, sequence_metrics
from swapformer.training import fit as fit_module
from swapformer.training.assemble import build_model, build_task
from swapformer.training.data import BatchShare, EvaluationStream, TrainingStream
from swapformer.training.fit import Outcome, fit
from swapformer.training.inputs import model_inputs
from swapformer.training.module import TrialModule, can_be_merged, merge
from swapformer.training.ranks import Ranks
from swapformer.training.trainer import shard
from swapformer.training.weights import read_weights
from training.ranks_of_a_trial import Job, train_on_ranks

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=7", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=2", "optim.lr=0.01", "schedule.warmup_steps=1", "log_every=1"),
    *("budget.steps=6", "eval.every=3", "eval.batches=2", "eval.final_batches=5", "trainer.precision=64-true"),
]
"""In float64, with batches of seven sequences of different lengths, which no number of parts divides."""
ARMS = {
    "ddp": ["trainer.strategy=ddp"],
    "fsdp": ["trainer.strategy=fsdp"],
    "ddp in two parts": ["trainer.strategy=ddp", "trainer.accumulate_grad_batches=2"],
    "fsdp in two parts": ["trainer.strategy=fsdp", "trainer.accumulate_grad_batches=2"],
    "fsdp computing layers again": ["trainer.strategy=fsdp", "trainer.gradient_checkpointing=true"],
    "spoiled": ["trainer.strategy=ddp"],
    "experts": ["trainer.strategy=ddp", "model/ffn=moe"],
    "averaged": ["trainer.strategy=ddp", "callbacks=ema", "callbacks.average.decay=0.8"],
}
RARE = ("ddp in two parts", "fsdp computing layers again")
"""Those that are trained for evidence alone."""
TWO = "trainer.devices=2"
DROPOUT = ["model.dropout=0.2", "trainer.precision=32-true"]
ROUNDING = 1e-12


def curve(directory: Path) -> dict[tuple[str, str], float]:
    with (directory / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["name"] != SECONDS]
    return {(row["step"], row["name"]): float(row["value"]) for row in rows}


def apart(one: Path, other: Path) -> float:
    """The largest difference between two histories, which must measure the same at the same steps."""
    first, second = curve(one), curve(other)
    assert first.keys() == second.keys()
    return max(abs(first[key] - second[key]) for key in first)


def state(directory: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)[
        "state_dict"
    ]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two_ranks")


def resumed(name: str, place: Path) -> dict[str, Job]:
    """A training with dropout stopped and gone on with, and the same one as a whole.

    That one stands between the others, so that rank 1 waits in it until rank 0 has written the checkpoint.
    """
    config = compose([*TINY, TWO, *ARMS[name], *DROPOUT])
    return {
        f"{name} stopped": Job(config, place / f"{name} resumed", stop_at=3),
        f"{name} whole": Job(config, place / f"{name} whole"),
        f"{name} resumed": Job(config, place / f"{name} resumed"),
    }


@pytest.fixture(scope="module")
def outcomes(place: Path) -> dict[str, Outcome]:
    """The trainings on two ranks, by name; each has a folder of that name."""
    jobs = {name: Job(compose([*TINY, TWO, *arm]), place / name) for name, arm in ARMS.items() if name not in RARE}
    jobs["spoiled"] = Job(jobs["ddp"].config, place / "spoiled", spoiled=True)
    jobs["unmerged"] = Job(jobs["ddp"].config, place / "unmerged", unmerged=True)
    jobs["own norm"] = Job({**jobs["fsdp"].config, "checkpoint_every": 1000}, place / "own norm", own_norm=True)
    jobs |= resumed("fsdp", place)
    jobs["fsdp left"] = Job(jobs["fsdp"].config, place / "fsdp left", stop_at=3)
    return trained(jobs)


@pytest.fixture(scope="module")
def rare_outcomes(place: Path) -> dict[str, Outcome]:
    """The trainings that are evidence alone."""
    jobs = {name: Job(compose([*TINY, TWO, *ARMS[name]]), place / name) for name in RARE}
    return trained(jobs | resumed("ddp", place))


@pytest.fixture(scope="module")
def outcomes_of_four(place: Path) -> dict[str, Outcome]:
    """The trainings on four ranks: three have two sequences of a batch, one has one."""
    names = {f"four {strategy}": strategy for strategy in ("ddp", "fsdp")}
    jobs = {name: Job(compose([*TINY, "trainer.devices=4", *ARMS[each]]), place / name) for name, each in names.items()}
    return trained(jobs, 4)


def trained(jobs: dict[str, Job], count: int = 2) -> dict[str, Outcome]:
    found = dict(zip(jobs, train_on_ranks(list(jobs.values()), count), strict=True))
    assert {name: outcome.status for name, outcome in found.items()} == {
        name: "interrupted" if job.stop_at else "finished" for name, job in jobs.items()
    }
    return found


@pytest.fixture(scope="module")
def alone(place: Path) -> tuple[Path, Outcome]:
    """The same trial on one device."""
    return place / "alone", fit(compose(TINY), place / "alone")


@pytest.mark.parametrize(
    ("name", "trainings"),
    [
        *((name, "outcomes") for name in ("ddp", "fsdp", "fsdp in two parts")),
        *(pytest.param(name, "rare_outcomes", marks=pytest.mark.evidence) for name in RARE),
        *(pytest.param(f"four {name}", "outcomes_of_four", marks=pytest.mark.evidence) for name in ("ddp", "fsdp")),
    ],
)
def test_ranks_train_and_measure_what_one_device_does(
    name: str, trainings: str, request: pytest.FixtureRequest, alone: tuple[Path, Outcome], place: Path
) -> None:
    directory, expected = alone
    outcome = request.getfixturevalue(trainings)[name]
    assert apart(place / name, directory) < ROUNDING
    assert outcome.metrics == pytest.approx(expected.metrics, rel=ROUNDING, abs=ROUNDING)
    assert outcome.standard_errors == pytest.approx(expected.standard_errors, rel=ROUNDING, abs=ROUNDING)
    assert (outcome.tokens, outcome.steps) == (expected.tokens, expected.steps)
    assert (outcome.parameters, outcome.directions) == (expected.parameters, expected.directions)
    assert outcome.evaluation == expected.evaluation
    held = state(place / name)
    torch.testing.assert_close(held, state(directory), rtol=0, atol=1e-10)


def test_a_mean_of_each_ranks_mean_is_found_out(
    outcomes: dict[str, Outcome], alone: tuple[Path, Outcome], place: Path
) -> None:
    """The planted fault: sequences of a rank with fewer targets would weigh more."""
    assert outcomes["spoiled"].status == "finished"
    assert apart(place / "spoiled", alone[0]) > 1e-3


def test_a_norm_of_the_gradient_that_lies_on_one_rank_is_found_out(
    outcomes: dict[str, Outcome], alone: tuple[Path, Outcome], place: Path
) -> None:
    """The planted fault: under fsdp a rank would write the norm of its own part."""
    assert outcomes["own norm"].status == "finished"
    whole, own = (
        [value for (_, name), value in curve(folder).items() if name == "train/grad_norm"]
        for folder in (alone[0], place / "own norm")
    )
    assert whole and all(part < 0.95 * norm for part, norm in zip(own, whole, strict=True))


def test_an_evaluation_of_one_ranks_part_is_found_out(
    outcomes: dict[str, Outcome], alone: tuple[Path, Outcome]
) -> None:
    """The planted fault: what is measured would depend on the number of devices."""
    assert abs(outcomes["unmerged"].metrics["val/loss"] - alone[1].metrics["val/loss"]) > 1e-3


def test_losses_of_parts_are_averaged_over_ranks_as_over_accumulated_parts(
    outcomes: dict[str, Outcome], place: Path
) -> None:
    """The balance of experts is that of each part, so two ranks are one device that cuts the batch in two."""
    cut = place / "experts cut"
    fit(compose([*TINY, "model/ffn=moe", "trainer.accumulate_grad_batches=2"]), cut)
    assert outcomes["experts"].status == "finished"
    assert apart(place / "experts", cut) < ROUNDING


def test_ranks_evaluate_and_keep_the_average_that_one_device_has(outcomes: dict[str, Outcome], place: Path) -> None:
    one = place / "averaged alone"
    expected = fit(compose([*TINY, *ARMS["averaged"][1:]]), one)
    assert outcomes["averaged"].metrics == pytest.approx(expected.metrics, rel=ROUNDING, abs=ROUNDING)
    assert apart(place / "averaged", one) < ROUNDING
    held, alone = (read_weights(folder / "checkpoints" / "last.ckpt") for folder in (place / "averaged", one))
    torch.testing.assert_close(held, alone, rtol=0, atol=1e-10)
    newest = {name.removeprefix("model."): weight for name, weight in state(place / "averaged").items()}
    assert max(float((held[name] - weight).abs().max()) for name, weight in newest.items()) > 1e-3


@pytest.mark.parametrize(
    ("name", "trainings"), [("fsdp", "outcomes"), pytest.param("ddp", "rare_outcomes", marks=pytest.mark.evidence)]
)
def test_ranks_stop_together_when_one_is_asked_and_go_on_bit_equal(
    name: str, trainings: str, request: pytest.FixtureRequest, place: Path
) -> None:
    outcomes: dict[str, Outcome] = request.getfixturevalue(trainings)
    assert 0 < outcomes[f"{name} stopped"].steps < 6
    assert outcomes[f"{name} resumed"] == outcomes[f"{name} whole"]
    assert curve(place / f"{name} resumed") == curve(place / f"{name} whole")
    again, whole = state(place / f"{name} resumed"), state(place / f"{name} whole")
    assert all(torch.equal(again[key], whole[key]) for key in whole)


def test_one_device_can_go_on_from_what_two_have_left(
    outcomes: dict[str, Outcome], alone: tuple[Path, Outcome], place: Path, tmp_path: Path
) -> None:
    assert outcomes["fsdp left"].status == "interrupted"
    shutil.copytree(place / "fsdp left", tmp_path / "alone")
    outcome = fit(compose(TINY), tmp_path / "alone")
    assert outcome.steps == 6
    assert apart(tmp_path / "alone", alone[0]) < ROUNDING


def test_fsdp_refuses_a_checkpoint_that_was_written_without_it(alone: tuple[Path, Outcome]) -> None:
    config = compose([*TINY, TWO, "trainer.strategy=fsdp"])
    with pytest.raises(UsageError, match="fsdp can only go on from its own checkpoints"):
        fit_module._checked(alone[0] / "checkpoints" / "last.ckpt", config, {})


def test_a_checkpoint_of_two_ranks_holds_every_weight_by_its_name(
    outcomes: dict[str, Outcome], alone: tuple[Path, Outcome], place: Path
) -> None:
    for name in ("ddp", "fsdp"):
        assert {key: value.shape for key, value in state(place / name).items()} == {
            key: value.shape for key, value in state(alone[0]).items()
        }


def shares(ranks: Ranks, accumulate: int, **settings: Any) -> list[BatchShare]:
    task = build_task(compose([*TINY, *(f"{key}={value}" for key, value in settings.items())]))
    return list(TrainingStream(task, 0, 2, 3, accumulate, None, ranks))


def test_ranks_share_out_the_very_batch_of_one_device() -> None:
    (whole,) = shares(Ranks(), 1)
    parts = [shares(Ranks(rank, 3), 2) for rank in range(3)]
    rows = torch.cat([share.batch.inputs for own in parts for share in own])
    assert torch.equal(rows, whole.batch.inputs)
    assert [own[0].targets for own in parts] == [own[1].targets for own in parts]
    assert {name: sum(own[0].targets[name] for own in parts) for name in whole.targets} == whole.targets
    assert [sum(share.num_positions for share in own) for own in parts] == [whole.num_positions] * 3


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("batches", [1, 2, 3, 5, 8])
def test_ranks_count_every_batch_of_an_evaluation_once_and_in_order(batches: int, count: int) -> None:
    source = build_task(compose(TINY)).evaluation("val")[0]
    streams = [EvaluationStream(source, batches, None, None, Ranks(rank, count)) for rank in range(count)]
    assert len({len(stream) for stream in streams}) == 1
    passed = [list(stream) for stream in streams]
    assert [len(found) for found in passed] == [len(stream) for stream in streams]
    counted = [batch for stream, found in zip(streams, passed, strict=True) for batch in found[: stream.counted]]
    whole = [source.batch(index) for index in range(batches)] * (count if batches < count else 1)
    assert [batch.inputs.tolist() for batch in counted] == [batch.inputs.tolist() for batch in whole]


def measured(metrics: MetricCollection, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> MetricCollection:
    for logits, targets in batches:
        metrics.update(logits, targets)
    return metrics


@pytest.mark.parametrize(
    "make",
    [lambda: sequence_metrics(["loss", "loss_se", "exact_match"]), lambda: class_metrics(5)],
    ids=["sums", "classes"],
)
def test_merged_metrics_are_those_of_one_device_to_the_last_bit(
    make: Callable[[], MetricCollection], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = torch.Generator().manual_seed(1)
    batches = [(torch.randn(3, 4, 5, generator=draws), torch.randint(0, 5, (3, 4), generator=draws)) for _ in range(5)]
    whole = measured(make(), batches)
    parts = [measured(make(), batches[low:high]) for low, high in ((0, 2), (2, 4), (4, 5))]
    assert can_be_merged(parts[0])
    states = [{name: metric.metric_state for name, metric in part.items(keep_base=True)} for part in parts]
    monkeypatch.setattr(Ranks, "gather", lambda self, value: states)
    merge(parts[0], Ranks(0, 3))
    assert parts[0].compute() == whole.compute()
    first, expected = (next(iter(found.values())) for found in (parts[0], whole))
    assert isinstance(first, SequenceMetric) and isinstance(expected, SequenceMetric)
    assert torch.equal(first.items(), expected.items())


def test_a_metric_whose_states_do_not_add_up_is_not_merged() -> None:
    assert not can_be_merged(MetricCollection([MeanMetric(), PearsonCorrCoef()]))
    assert not can_be_merged(MetricCollection([PearsonCorrCoef()]))


def test_a_batch_with_fewer_sequences_than_parts_is_refused() -> None:
    with pytest.raises(UsageError, match="every one of 3 devices × 3 parts must have a sequence"):
        shares(Ranks(0, 3), 3)


def test_dropout_differs_between_ranks_and_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "sum", lambda self, value: value)
    config = compose([*TINY, *DROPOUT])
    task = build_task(config)
    model = build_model(config, task.interface)
    share = next(iter(TrainingStream(task, 0, 0, 1, 1)))

    def loss(*rank: int) -> float:
        module = TrialModule(model, task, config, Ranks(*rank))
        module.training_step(share, 0)
        return float(module.loss_share)

    assert len({loss(), loss(0, 2), loss(1, 2)}) == 3
    assert loss(1, 2) == loss(1, 2)


@pytest.fixture
def one_rank() -> Iterator[DeviceMesh]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        distributed.destroy_process_group()


def test_fsdp_gathers_matrices_of_layers_in_bfloat16_and_computes_what_autocast_does(one_rank: DeviceMesh) -> None:
    config = compose([*TINY, "trainer.precision=32-true", "model/norm=rmsnorm"])
    task = build_task(config)
    batch = task.train_batch(0, 0)
    outputs, gradients, seen = {}, {}, dict[tuple[bool, bool], set[torch.dtype]]()
    for name in ("whole", "sharded"):
        model = build_model(config, task.interface)
        if name == "sharded":
            shard(model, one_rank, "bf16-mixed")
            for path, part in model.named_modules():
                if isinstance(getattr(part, "weight", None), torch.Tensor):
                    kind = seen.setdefault((".layers." in path, isinstance(part, Norm)), set())
                    part.register_forward_hook(partial(note_type, kind))
        with torch.autocast("cpu", torch.bfloat16):
            outputs[name] = next(iter(model.answers(*model_inputs(batch)).values())).float()
        outputs[name].square().mean().backward()
        found = {key: parameter.grad for key, parameter in model.named_parameters()}
        gradients[name] = {key: each.full_tensor() if name == "sharded" else each for key, each in found.items()}
    low, full = {torch.bfloat16}, {torch.float32}
    assert seen == {(True, False): low, (True, True): full, (False, False): full, (False, True): full}
    assert torch.equal(outputs["sharded"], outputs["whole"])
    assert gradients["sharded"].keys() == gradients["whole"].keys()
    for key, gradient in gradients["whole"].items():
        assert gradient.dtype == gradients["sharded"][key].dtype == torch.float32
        assert (gradients["sharded"][key] - gradient).abs().max() < 0.01 * gradient.abs().max(), key


def note_type(seen: set[torch.dtype], part: nn.Module, *call: Any) -> None:
    seen.add(part.weight.dtype)  # type: ignore[arg-type, union-attr]


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_gpus_train_what_one_does(strategy: str, tmp_path: Path) -> None:
    gpu = [*TINY, "trainer=gpu", "trainer.precision=32-true"]
    fit(compose(gpu), tmp_path / "one")
    fit(compose([*gpu, TWO, f"trainer.strategy={strategy}"]), tmp_path / "two")
    assert apart(tmp_path / "one", tmp_path / "two") < 1e-5


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are CUDA devices")
def test_more_gpus_than_there_are_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trainer.devices=2 needs as many CUDA devices, but there are 0"):
        fit(compose([*TINY, "trainer=gpu", TWO, "trainer.strategy=ddp"]), tmp_path)
