"""Ray, the real one, on this machine: a tier of its own, for Ray is an extra."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from study.parents import PATH, parent, read, statuses, wait_until
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.ray import RayLauncher

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'swapformer[ray]'"),
    pytest.mark.filterwarnings("default"),  # Ray's own
]


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


@pytest.fixture(scope="module", autouse=True)
def _path() -> Iterator[None]:
    """Ray's processes are to know these tests; the ones that it starts here end with the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATH)
        yield
        import ray

        ray.shutdown()


def launcher(store: Store, **settings: Any) -> RayLauncher:
    return RayLauncher(store, fakes.PROVENANCE, **{"work": fakes.WORK, **settings})


def worker(trial: str) -> int:
    """The process of Ray that runs the task of a trial."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(f"ray::trial {trial}".encode()):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no worker runs {trial}")


def test_trials_of_all_fates_are_recorded_and_none_takes_the_others_with_it(store: Store, journal: Path) -> None:
    behaviours = ["finish", "killed", "diverge", "fail", "killed once", "misuse", "exit", "finish"]
    trials = [fakes.trial(journal, seed=seed, behaviour=behaviour) for seed, behaviour in enumerate(behaviours)]
    running: list[int] = []
    launch_missing(trials, store, launcher(store, slots=2, tick=lambda now: running.append(len(now))))
    expected = ["finished", "killed", "diverged", "failed", "finished", "failed", "interrupted", "finished"]
    assert statuses(trials, store) == expected
    attempts = Counter(fakes.runs(journal))
    assert [attempts[trial.id] for trial in trials] == [1, 2, 1, 1, 2, 1, 1, 1]
    assert "SIGKILL" in str(read(store, trials[1].id).reason)
    assert max(running) <= 2


def test_one_task_at_a_time_where_a_trial_takes_all_cores(store: Store, journal: Path) -> None:
    trials = [fakes.trial(journal, seed=seed, sleep=0.5) for seed in range(2)]
    running: list[int] = []
    cores = os.cpu_count() or 1
    launch_missing(trials, store, launcher(store, num_cpus=cores, tick=lambda now: running.append(len(now))))
    assert statuses(trials, store) == ["finished"] * 2 and max(running) == 1


def test_what_this_machine_does_not_have_is_refused_instead_of_waited_for(store: Store, journal: Path) -> None:
    with pytest.raises(UsageError, match=r"num_cpus=1000, but Ray has \d+ here; give hydra.launcher.num_cpus"):
        launch_missing([fakes.trial(journal)], store, launcher(store, num_cpus=1000))
    with pytest.raises(UsageError, match=r"num_gpus=0.5"):
        launch_missing([fakes.trial(journal)], store, launcher(store, num_gpus=0.5))
    with pytest.raises(ValueError, match="bogus"):
        launcher(store, options={"bogus": 1})([fakes.trial(journal)])


def test_a_trial_that_runs_into_its_limit_is_interrupted_alone(store: Store, journal: Path) -> None:
    trials = [fakes.trial(journal, 0, "hang"), fakes.trial(journal, 1)]
    launch_missing(trials, store, launcher(store, time_limit=0.05))
    assert statuses(trials, store) == ["interrupted", "finished"]
    assert read(store, trials[0].id).reason == "it ran into the time limit of 0.05 minutes"


def test_a_worker_that_is_killed_costs_its_trial_an_attempt_and_the_others_nothing(store: Store, journal: Path) -> None:
    entries = [{"journal": str(journal), "behaviour": "hang once"}, {"journal": str(journal), "seed": 1, "sleep": 1.0}]
    process = parent(store, entries, kind="ray")
    trials = [fakes.trial(journal, behaviour="hang once"), fakes.trial(journal, seed=1, sleep=1.0)]
    wait_until(lambda: trials[0].id in fakes.runs(journal), 60)
    os.kill(worker(trials[0].id), signal.SIGKILL)
    assert process.wait(timeout=90) == 0
    assert statuses(trials, store) == ["finished", "finished"]
    assert read(store, trials[0].id).notes == ("attempt 1 killed: the process that had started it was killed",)
    assert Counter(fakes.runs(journal))[trials[1].id] == 1


def test_trials_stop_with_the_process_that_has_started_ray_and_can_be_resumed(store: Store, journal: Path) -> None:
    process = parent(store, [{"journal": str(journal), "behaviour": "hang once"}], kind="ray")
    trial = fakes.trial(journal, behaviour="hang once")
    wait_until(lambda: len(fakes.runs(journal)) == 1, 60)
    process.kill()
    process.wait()
    wait_until(lambda: not store.locked(trial.id), 60)
    assert statuses([trial], store) == ["killed"]
    launch_missing([trial], store, launcher(store))
    assert statuses([trial], store) == ["finished"]


@pytest.mark.parametrize(
    ("stop", "number"), [(os.kill, signal.SIGTERM), (os.killpg, signal.SIGINT), (os.killpg, signal.SIGTERM)]
)
def test_a_stop_ends_the_running_trials_where_they_can_be_resumed(
    store: Store, journal: Path, stop: Callable[[int, int], None], number: signal.Signals
) -> None:
    """SIGTERM to the whole group, a scheduler's stop, ends Ray itself too."""
    entries = [{"journal": str(journal), "seed": seed, "behaviour": "hang"} for seed in range(3)]
    process = parent(store, entries, slots=1, kind="ray")
    wait_until(lambda: len(fakes.runs(journal)) == 1, 60)
    stop(process.pid, number)
    assert process.wait(timeout=60) != 0
    trials = [fakes.trial(journal, seed=seed, behaviour="hang") for seed in range(3)]
    wait_until(lambda: not any(store.locked(trial.id) for trial in trials), 60)
    ended, *others = sorted(statuses(trials, store))
    assert others == ["missing", "missing"]
    assert ended == "interrupted" or (ended, stop, number) == ("killed", os.killpg, signal.SIGTERM)


def test_a_study_of_real_trainings_is_launched_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["swapformer"])
    (tmp_path / "positions.yaml").write_text(STUDY)
    assert main(["study", "positions.yaml", "hydra/launcher=ray", "--slots", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == {"finished": 2}
