"""Measured trials in the store, in studies and in reports; trials of no steps."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from measure.conftest import TINY
from study.fakes import PROVENANCE
from swapformer.errors import UsageError
from swapformer.measure import as_trained
from swapformer.measure.code import CodeSize
from swapformer.report.page import caveats
from swapformer.results.artifacts import read_artifacts
from swapformer.results.record import FAILED, FINISHED, Record
from swapformer.results.store import Store
from swapformer.study.config import identity
from swapformer.study.config.compose import check, compose
from swapformer.study.equal_arms import check_equal_arms
from swapformer.study.expand import expand
from swapformer.study.launch import machine
from swapformer.study.launch.provenance import machine_info
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.plan import Plan, make_trial
from swapformer.study.run_study import run_study
from swapformer.study.spec import parse

ATTENTION = ("measure=attention", "measure.lengths=[8,16]", "measure.warm_up=0", "measure.repeats=2")
TABLE = ("measure=position_table", "measure.rows=64", "measure.shifts=[1]", "model/position=sinusoidal")


def run(place: Path, *overrides: str) -> tuple[Trial, Record]:
    config = compose([*TINY, *overrides, f"runs_dir={place / 'runs'}"])
    check(config)
    trial = make_trial(config)
    record = execute(trial, Store(place / "runs"), PROVENANCE)
    assert record is not None
    return trial, record


def test_a_measured_trial_is_finished_without_a_step_or_a_checkpoint(tmp_path: Path) -> None:
    trial, record = run(tmp_path, *ATTENTION)
    assert (record.status, record.steps, record.tokens, trial.config["budget"]["steps"]) == (FINISHED, 0, 0, 0)
    assert record.metrics["time/all@16"] > 0 and set(record.directions.values()) == {"lower"}
    assert record.metrics.keys() == record.directions.keys() and record.parameters["total"] > 0
    assert not (tmp_path / "runs" / "trials" / trial.id / "checkpoints").exists()


def test_what_a_measurement_says_is_exact_is_kept_as_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = CodeSize.measure
    monkeypatch.setattr(CodeSize, "measure", lambda *given: replace(find(*given), exact=["code/all"]))
    trial, record = run(tmp_path, "measure=code")
    assert record.exact == ("code/all",)
    (artifact,) = read_artifacts(Store(tmp_path / "runs").directory(trial.id), []).values()
    assert artifact.exact == ("code/all",)


def others_must_wait() -> bool:
    """Whether a trial that begins now could not compute."""
    with machine._opened() as (_, lock):
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_what_is_timed_has_the_machine_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def look(config: Any, folder: Path) -> Any:
        seen.append(others_must_wait())
        raise UsageError("enough")

    monkeypatch.setattr("swapformer.measure.measure", look)
    for overrides in (ATTENTION, TABLE):
        with pytest.raises(UsageError, match="enough"):
            run(tmp_path, *overrides)
    assert seen == [True, False], "a table is the same on a loaded machine"


def test_times_of_two_machines_are_never_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {name: make_trial(compose([*TINY, *each])) for name, each in (("timed", ATTENTION), ("table", TABLE))}
    monkeypatch.setattr(identity, "_hardware", lambda accelerator: "another machine")
    there = {name: make_trial(compose([*TINY, *each])) for name, each in (("timed", ATTENTION), ("table", TABLE))}
    assert here["timed"].id != there["timed"].id and here["table"].id == there["table"].id
    shown = Record("x", FINISHED, environment=dict(there["timed"].environment)).environment_class
    assert shown.endswith("another machine")
    with pytest.raises(UsageError, match=r"but this is .* named on another machine; start it"):
        execute(there["timed"], Store(tmp_path / "runs"), PROVENANCE)
    failed = Store(tmp_path / "runs").read(there["timed"].id)
    assert failed is not None and failed.status == FAILED


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ((*ATTENTION, "budget.steps=5"), "AttentionCost was given with budget.steps=5; leave the budget out"),
        ((*ATTENTION, "budget.tokens=1e6"), "budget.tokens=1000000.0; leave the budget out"),
        ((*ATTENTION, "probes=head_similarity"), "probes=head_similarity would have none to look at"),
        (("measure=attention", "measure.lengths=[0]"), "lengths"),
        (("measure=attention", "measure.repeats=0"), "measure.repeats"),
        ((*ATTENTION, "trainer.gradient_checkpointing=true"), "trainer.gradient_checkpointing acts on training steps"),
        ((*ATTENTION, "trainer.compile=true"), "trainer.compile acts on training steps"),
        (("measure=step", "trainer.accumulate_grad_batches=2"), "use trainer.accumulate_grad_batches=1"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused_in_one_line(overrides: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError) as error:
        check(compose([*TINY, *overrides]))
    assert why in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) <= 300


def test_a_trial_of_no_steps_is_the_model_at_its_start(tmp_path: Path) -> None:
    """Its warm-up, of 100 steps by default, is not missed; its loss is near that of guessing, and probes look at it."""
    more = ("task.eval_lengths=[]", "task.batch_size=4", "eval.final_batches=2", "probes=head_similarity")
    trial, record = run(tmp_path, "budget.steps=0", "model/position=learned", "model.max_len=96", *more)
    assert (record.status, record.steps, record.notes) == (FINISHED, 0, ())
    assert 3.0 < record.metrics["val/loss"] < 3.8, "ln 29 is 3.37"
    assert (tmp_path / "runs" / "trials" / trial.id / "checkpoints" / "last.ckpt").exists()
    table = ("measure=position_table", "measure.rows=96", "measure.shifts=[1]", "model/position=learned")
    fresh = run(tmp_path, *table, "model.max_len=96")[1]
    begun = run(tmp_path, *table, "model.max_len=96", f"init_from={trial.id}")[1]
    assert begun.metrics == fresh.metrics, "the checkpoint holds the weights that the seed draws"
    assert "tensors were loaded" in begun.notes[0]


def plan(metrics: Sequence[str], claims: Sequence[Any] = (), **more: Any) -> Plan:
    arms = {"reference": ["model/kernel=reference"], "sdpa": ["model/kernel=sdpa"]}
    raw = {"baseline": "reference", "arms": arms, "seeds": 3, "overrides": [*TINY, *ATTENTION],
           "metrics": list(metrics), "claims": list(claims), **more}  # fmt: skip
    return expand(parse(raw, "kernels"))


def test_a_metric_that_a_measurement_does_not_give_is_refused() -> None:
    with pytest.raises(UsageError, match="no metric 'time/scoers@16'; did you mean 'time/scores@16'"):
        plan(["time/scoers@16"])
    with pytest.raises(UsageError, match="no metric 'val/loss'"):
        plan(["val/loss"])


def test_arms_whose_answers_are_equal_are_compared_in_their_times(tmp_path: Path) -> None:
    """A setting that does nothing to a training, for which arms would be refused, may cost time all the same."""

    small = ("task.lengths=[2,4]", "task.eval_lengths=[6]", "task.batch_size=4", "schedule.warmup_steps=0")

    def planned(*overrides: str) -> Plan:
        claim = {"text": "t", "higher": {"arm": "b", "than": "a", "metric": "derived/steep", "margin": 0}}
        timed = overrides == ATTENTION
        steep = {"ratio": ["time/all@16", "time/all@8"] if timed else ["val/loss", "val/loss@6"]}
        raw = {"baseline": "a", "arms": {"a": [], "b": ["model.ffn.drop_hidden=true"]}, "seeds": 2, "claims": [claim],
               "overrides": [*TINY, *small, *overrides], "metrics": list(dict.fromkeys(steep["ratio"])),
               "derive": {"derived/steep": steep}}  # fmt: skip
        return expand(parse(raw, "dead"))

    store = Store(tmp_path / "runs")
    assert not check_equal_arms(planned(*ATTENTION), store)
    with pytest.raises(UsageError, match="would train the same model"):
        check_equal_arms(planned("budget.steps=3"), store)


def test_a_study_of_measurements_has_rounds_for_seeds_and_a_report_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaner = {"arm": "sdpa", "than": "reference", "metric": "bytes/all@16", "margin": 1}
    claim = {"text": "fused is leaner", "lower": leaner}
    planned = plan(["time/all@16", "bytes/all@16"], [claim], exact=["bytes/all@16"])
    store, order = Store(tmp_path / "runs"), []

    def launch(_: Any) -> Callable[[Sequence[Trial]], None]:
        def start(trials: Sequence[Trial]) -> None:
            for trial in trials:
                order.append((trial.config["seed"], trial.config["model"]["kernel"]["_target_"].rpartition(".")[2]))
                execute(trial, store, PROVENANCE)

        return start

    report = run_study(planned, store, PROVENANCE, launch, quiet=True).report
    assert order == [(seed, kernel) for seed in range(3) for kernel in ("Reference", "SDPA")], "rounds over all arms"
    assert report.complete and [verdict.outcome for verdict in report.verdicts] == ["supported"]
    told = " ".join(report.caveats)
    assert "Nothing was trained: each seed is a round" in told and "evaluation set" not in told
    page = (report.directory / "report.html").read_text()
    assert "during training" not in page and "longest trained" not in page and "time/all@16" in page
    assert "time/all@16" in (report.directory / "results.csv").read_text()


def test_rounds_that_lie_apart_are_said_to_be_noisy() -> None:
    rounds = {"time/all@8": [1.0, 1.05, 1.2], "time/mix@8": [1.0, 1.04, 1.05], "bytes/all@8": [1.0, 9.0]}
    values = {("a", metric): found for metric, found in rounds.items()}
    evidence = SimpleNamespace(values=values, seed_values=lambda arm, metric: values[arm, metric])
    view: Any = SimpleNamespace(condition="", data=SimpleNamespace(evidence=evidence))
    assert caveats._noise([view]) == [
        "Noisy timings: the rounds of 1 of 2 lie apart by more than 10 % of their median: time/all@8 of a (19 %)."
    ]


def test_weights_are_cast_in_every_step_and_algorithms_are_those_of_a_training() -> None:
    """With autocast's cache the second step would compute with the weights of the first."""
    layer, x, device = torch.nn.Linear(4, 4), torch.ones(1, 4), torch.device("cpu")

    def moved() -> bool:
        first = layer(x).clone()
        with torch.no_grad():
            layer.weight += 1
        return not torch.equal(first, layer(x))

    with torch.autocast("cpu", torch.bfloat16):
        assert not moved(), "the planted fault: a cache of casts"
    before = torch.are_deterministic_algorithms_enabled()
    products = torch.get_float32_matmul_precision()
    with as_trained({"precision": "bf16-mixed", "deterministic": True, "tf32": True}, device):
        assert moved() and torch.are_deterministic_algorithms_enabled()
        assert torch.get_float32_matmul_precision() == "high" != products
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert torch.are_deterministic_algorithms_enabled() == before
    assert torch.get_float32_matmul_precision() == products


def test_a_gpu_stands_in_the_record_and_two_kinds_are_never_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="H100", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    found = machine_info("gpu")
    assert (found["gpu"], found["capability"]) == ("H100", "9.0") and "gpu" not in machine_info("cpu")
    assert found["processor"].endswith(f" · {torch.backends.cpu.get_cpu_capability()}")
    environment = {"device": "gpu", "torch": "2", "threads": 1, "deterministic": True}
    classes = [
        Record("0" * 16, FINISHED, environment=environment, machine=each).environment_class
        for each in (found, {**found, "gpu": "A100", "capability": "8.0"}, {})
    ]
    assert len(set(classes)) == 3 and "gpu · H100 (9.0) · torch 2" in classes[0]
    assert classes[2] == "gpu · torch 2 · 1 thread · deterministic", "a record of before reads as it did"
