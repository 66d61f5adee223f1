"""SLURM through submitit: the real submitit, real processes and signals, and commands that stand in for SLURM's."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from study import fake_slurm, fakes
from study.parents import PATH, parent, statuses, wait_until
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.slurm import SlurmLauncher, read_jobs, write_jobs
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import make_trial

pytestmark = pytest.mark.skipif(find_spec("submitit") is None, reason="needs submitit: pip install 'swapformer[slurm]'")


STUDY = """
question: Does a copy need positions?
baseline: rope
arms:
  rope: [model/position=rope]
  none: [model/position=none]
overrides: [task=copy, "task.eval_lengths=[]", budget.steps=2, schedule.warmup_steps=0,
            eval.final_batches=1, model.d_model=16]
seeds: 1
metrics: [val/loss]
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "slurm"
    folder.mkdir()
    fake_slurm.install(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", PATH)
    yield folder
    wait_until(lambda: not list((folder / "queue").iterdir()), 60)


def launcher(store: Store, **settings: Any) -> SlurmLauncher:
    return SlurmLauncher(store, fakes.PROVENANCE, **{"poll": 0.2, "work": fakes.WORK, **settings})


def scripts(cluster: Path) -> list[str]:
    """The scripts that were submitted, in order."""
    return [path.read_text() for path in sorted((cluster / "scripts").iterdir())]


def header(script: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", script, re.MULTILINE))


def on_gpus(journal: Path, devices: int) -> Trial:
    trial = fakes.trial(journal, seed=devices)
    trial.config["trainer"] |= {"accelerator": "gpu", "devices": devices, "threads": 3}
    return trial


def test_trials_of_all_fates_are_recorded_and_none_takes_the_others_with_it(
    store: Store, journal: Path, cluster: Path
) -> None:
    behaviours = ["finish", "killed", "diverge", "fail", "killed once", "finish"]
    trials = [fakes.trial(journal, seed=seed, behaviour=behaviour) for seed, behaviour in enumerate(behaviours)]
    launch_missing(trials, store, launcher(store, slots=2))
    assert statuses(trials, store) == ["finished", "killed", "diverged", "failed", "finished", "finished"]
    attempts = Counter(fakes.runs(journal))
    assert [attempts[trial.id] for trial in trials] == [1, 2, 1, 1, 2, 1]
    first, second = scripts(cluster)
    assert header(first)["array"] == "0-5%2", "all of them, two at a time"
    assert header(second)["array"] == "0-1%2", "the two that were killed, once more"
    reason = store.read(trials[1].id)
    assert reason is not None and "SIGKILL" in str(reason.reason)


def test_the_script_asks_for_what_the_trials_need(store: Store, journal: Path, cluster: Path) -> None:
    trials = [on_gpus(journal, devices) for devices in (1, 2)]
    made = launcher(store, timeout=90, signal_delay=30)
    jobs: dict[str, str] = {}
    made._submit(trials, jobs)
    asked = header(scripts(cluster)[0])
    assert asked["array"] == "0-1%2" and "requeue" in asked
    assert (asked["time"], asked["cpus-per-task"], asked["gpus-per-node"]) == ("90", "6", "2"), (
        "three threads for each of two devices"
    )
    assert asked["signal"] == "USR2@30", "submitit's signal for a preemption"
    assert not {"mem", "partition", "account", "qos", "constraint"} & asked.keys(), "the cluster's defaults"
    assert read_jobs(store.runs_dir / "slurm") == {"100_0": trials[0].id, "100_1": trials[1].id}
    assert jobs == {trials[0].id: "100_0", trials[1].id: "100_1"}


@pytest.mark.evidence
def test_a_trial_of_two_nodes_gets_them_and_they_meet(store: Store, cluster: Path) -> None:
    short = ["budget.steps=4", "schedule.warmup_steps=1", "eval.every=4", "checkpoint_every=4"]
    tiny = ["task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "model.d_model=16", "model.num_heads=2"]
    two = make_trial(compose([*tiny, *short, "trainer.nodes=2", "trainer.strategy=ddp"]))
    launch_missing([two], store, launcher(store, work=None))
    assert header(scripts(cluster)[0])["nodes"] == "2"
    record = store.read(two.id)
    assert record is not None and (record.status, record.attempts) == ("finished", 1)


def test_every_setting_of_the_script_stands_in_it(store: Store, journal: Path, cluster: Path) -> None:
    made = launcher(
        store,
        slots=1,
        cpus_per_task=5,
        gpus_per_node=4,
        mem_gb=1.5,
        partition="long",
        account="me",
        qos="low",
        constraint="a100",
        name="ablation",
        more={"nice": 100},
        setup=["module load cuda"],
    )
    made._submit([fakes.trial(journal, seed=seed) for seed in range(2)], {})
    (script,) = scripts(cluster)
    asked = header(script)
    expected = {"cpus-per-task": "5", "gpus-per-node": "4", "mem": "1536MB", "partition": "long", "account": "me"}
    expected |= {"qos": "low", "constraint": "a100", "job-name": "ablation", "nice": "100", "array": "0-1%1"}
    assert expected.items() <= asked.items()
    assert script.index("module load cuda") < script.index("srun")


@pytest.mark.evidence
def test_more_trials_than_an_array_may_have_wait_for_the_next_one(store: Store, journal: Path, cluster: Path) -> None:
    trials = [fakes.trial(journal, seed=seed) for seed in range(3)]
    launch_missing(trials, store, launcher(store, array=2))
    assert statuses(trials, store) == ["finished"] * 3
    arrays = [header(script).get("array") for script in scripts(cluster)]
    assert arrays == ["0-1%2", None]


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param([signal.SIGUSR2], marks=pytest.mark.evidence),
        [signal.SIGTERM, signal.SIGUSR2],
        pytest.param([signal.SIGTERM], marks=pytest.mark.evidence),
    ],
)
def test_a_preempted_trial_keeps_its_checkpoint_is_queued_again_and_resumes(
    store: Store, journal: Path, cluster: Path, signals: list[signal.Signals]
) -> None:
    """SLURM sends SIGTERM before the signal that was asked for, or alone, and to every process of a task."""
    process = parent(store, [{"journal": str(journal), "behaviour": "stop slowly once"}], kind="slurm")
    wait_until(lambda: len(fakes.runs(journal)) == 1)
    if signals == [signal.SIGTERM]:
        (cluster / "requeue" / "100").touch()  # then SLURM queues it again by itself
    for number in signals:
        fake_slurm.send(cluster, "100", number)
    assert process.wait(timeout=60) == 0
    trial = fakes.trial(journal, behaviour="stop slowly once")
    assert statuses([trial], store) == ["finished"]
    assert [line.split()[2] for line in journal.read_text().splitlines()] == ["new", "resumed"]
    assert len(scripts(cluster)) == 1, "the same job"
    record = store.read(trial.id)
    assert record is not None
    reason = "its job was preempted or out of time" if signal.SIGUSR2 in signals else "Interrupted"
    assert record.notes == (f"attempt 1 interrupted: {reason}",)


def test_a_job_that_has_used_up_its_timeouts_is_not_queued_again(store: Store, journal: Path, cluster: Path) -> None:
    trial = fakes.trial(journal, behaviour="hang")
    process = parent(store, [{"journal": str(journal), "behaviour": "hang"}], kind="slurm out of time")
    wait_until(lambda: len(fakes.runs(journal)) == 1)
    fake_slurm.send(cluster, "100", signal.SIGUSR2)
    assert process.wait(timeout=60) == 0
    record = store.read(trial.id)
    assert record is not None and record.status == "interrupted"
    assert record.reason == "its job was preempted or out of time"
    assert len(fakes.runs(journal)) == 1


@pytest.mark.evidence
def test_a_trial_that_runs_into_its_own_limit_ends_its_job_alone(store: Store, journal: Path, cluster: Path) -> None:
    trials = [fakes.trial(journal, 0, "hang"), fakes.trial(journal, 1)]
    launch_missing(trials, store, launcher(store, time_limit=0.2))
    assert statuses(trials, store) == ["interrupted", "finished"]
    record = store.read(trials[0].id)
    assert record is not None and record.reason == "it ran into the time limit of 0.2 minutes"


@pytest.mark.evidence
def test_the_jobs_outlive_the_process_that_submitted_them_and_a_new_one_waits_for_them(
    store: Store, journal: Path, cluster: Path
) -> None:
    entries = [{"journal": str(journal), "seed": seed, "sleep": 1.0} for seed in range(3)]
    first = parent(store, entries, slots=1, kind="slurm")
    wait_until(lambda: len(fakes.runs(journal)) == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    trials = [fakes.trial(journal, seed=seed, sleep=1.0) for seed in range(3)]
    assert "missing" in statuses(trials, store), "some wait in the queue"
    launch_missing(trials, store, launcher(store))
    assert statuses(trials, store) == ["finished"] * 3
    assert len(scripts(cluster)) == 1, "nothing was submitted twice"
    assert sorted(fakes.runs(journal)) == sorted(trial.id for trial in trials)


@pytest.mark.evidence
def test_a_stop_while_jobs_are_submitted_names_them_and_none_is_submitted_twice(
    store: Store, journal: Path, cluster: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop arrives when SLURM has the jobs and nobody has written them down."""
    trials = [fakes.trial(journal, seed=seed) for seed in range(3)]
    first = launcher(store, slots=1)
    map_array = first._submitit.AutoExecutor.map_array

    def stopped(*arguments: Any) -> Any:
        made = map_array(*arguments)
        signal.raise_signal(signal.SIGINT)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(first._submitit.AutoExecutor, "map_array", stopped)
        with pytest.raises(KeyboardInterrupt):
            launch_missing(trials, store, first)
    assert "to end them: scancel 100" in caplog.text
    launch_missing(trials, store, launcher(store))
    assert statuses(trials, store) == ["finished"] * 3
    assert len(scripts(cluster)) == 1, "nothing was submitted twice"


def test_a_note_of_jobs_that_cannot_be_read_is_named_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_jobs(tmp_path, {"7_0": "a", "7_1": "b"})
    (tmp_path / "8.json").write_text("[")
    assert read_jobs(tmp_path) == {"7_0": "a", "7_1": "b"}
    assert "8.json does not say which jobs were submitted" in caplog.text


def test_a_trial_whose_whole_job_is_killed_is_submitted_again(store: Store, journal: Path, cluster: Path) -> None:
    entries = [{"journal": str(journal), "seed": seed, "behaviour": "hang once"} for seed in range(2)]
    process = parent(store, entries, kind="slurm")
    wait_until(lambda: len(fakes.runs(journal)) == 2)
    for task in ("100_0", "100_1"):
        fake_slurm.send(cluster, task, signal.SIGKILL)
    assert process.wait(timeout=60) == 0
    trials = [fakes.trial(journal, seed=seed, behaviour="hang once") for seed in range(2)]
    assert statuses(trials, store) == ["finished"] * 2
    assert [header(script)["array"] for script in scripts(cluster)] == ["0-1%2", "0-1%2"]


def test_a_queue_that_does_not_answer_is_asked_again(
    store: Store, journal: Path, cluster: Path, caplog: pytest.LogCaptureFixture
) -> None:
    squeue = cluster / "squeue"
    works = squeue.read_text()
    squeue.write_text(f"#!/bin/sh\nmv {cluster}/later {squeue}\nexit 1\n")
    (cluster / "later").write_text(works)
    (cluster / "later").chmod(0o755)
    trial = fakes.trial(journal, behaviour="fail")
    launch_missing([trial], store, launcher(store))
    assert statuses([trial], store) == ["failed"]
    assert caplog.text.count("squeue does not answer") == 1


def test_a_machine_without_slurm_is_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="needs SLURM's commands, but there is no sbatch here"):
        launcher(store)


@pytest.mark.evidence
def test_a_study_of_real_trainings_is_launched_from_the_command_line(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["swapformer"])
    (tmp_path / "positions.yaml").write_text(STUDY)
    assert (
        main(["study", "positions.yaml", "hydra/launcher=slurm", "--slots", "1", "hydra.launcher.poll=0.2", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["trials"] == {"finished": 2}
    (script,) = scripts(cluster)
    assert header(script)["array"] == "0-1%1"
