"""Trials on several devices in a study: torchrun, its ranks, and what becomes of a trial when one of them goes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from study import fakes
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.config.compose import check, compose
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.slots import make_slots
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import make_trial

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=7", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=1", "budget.steps=400", "eval.every=100", "eval.batches=1"),
    *("eval.final_batches=2", "checkpoint_every=20", "trainer.precision=64-true"),
]
TWO = ["trainer.devices=2", "trainer.strategy=ddp"]

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds ranks in /proc")


def ranks(trial: str) -> dict[int, int]:
    """The processes that train a trial, by rank."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if "swapformer.training.rank" in words and any(word.endswith(trial) for word in words):
                environment = (folder / "environ").read_bytes().decode().split("\0")
                found |= {int(word[5:]): int(folder.name) for word in environment if word.startswith("RANK=")}
        except (OSError, ValueError):
            continue
    return found


def places(trial: str) -> set[Path]:
    """The folders that hold what the ranks of a trial report."""
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in ranks(trial).values()]
    return {Path(word).parent / Path(word).name for line in lines for word in line if "swapformer-ranks-" in word}


def files(store: Store, trial: Trial) -> set[str]:
    folder = store.directory(trial.id)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    found = Store(tmp_path_factory.mktemp("store") / "runs")
    found.prepare()
    return found


def trial(*overrides: str) -> Trial:
    config = compose([*TINY, *overrides])
    check(config)
    return make_trial(config)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def record(store: Store, one: Trial) -> Record:
    found = store.read(one.id)
    assert found is not None
    return found


@pytest.mark.evidence
def test_a_trial_on_two_devices_is_started_and_comes_to_what_one_device_does(store: Store) -> None:
    short = ["budget.steps=4", "schedule.warmup_steps=1", "eval.every=4", "checkpoint_every=4"]
    two, alone = trial(*TWO, *short), trial(*short)
    LocalLauncher(store, fakes.PROVENANCE, slots=3)([two, alone])
    found, expected = record(store, two), record(store, alone)
    assert (found.status, expected.status) == ("finished", "finished")
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-9, abs=1e-9)
    assert (found.trainer["devices"], found.trainer["strategy"]) == (2, "ddp")
    assert files(store, two) == files(store, alone) and not ranks(two.id)


def on_two_nodes(overrides: list[str], runs_dir: Path, port: int) -> list[subprocess.Popen[str]]:
    """The same command twice, as on two nodes, which meet at a port of this machine."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "swapformer", "train", *overrides, f"runs_dir={runs_dir}"]
    return [
        subprocess.Popen(command, env=os.environ | place | {"NODE_RANK": str(node)}, stdout=subprocess.PIPE, text=True)
        for node in (1, 0)
    ]


NODES = ["trainer.nodes=2", "trainer.strategy=ddp"]


@pytest.mark.evidence
def test_a_trial_on_two_nodes_comes_to_what_one_device_does(store: Store) -> None:
    short = ["budget.steps=4", "schedule.warmup_steps=1", "eval.every=4", "checkpoint_every=4"]
    two, alone = trial(*NODES, *short), trial(*short)
    for each in (started := on_two_nodes([*TINY, *NODES, *short], store.runs_dir, free_port())):
        assert two.id in each.communicate(timeout=120)[0]
    assert [each.returncode for each in started] == [0, 0]
    LocalLauncher(store, fakes.PROVENANCE, slots=1)([alone])
    found, expected = record(store, two), record(store, alone)
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-9, abs=1e-9)
    assert (found.attempts, found.environment["nodes"], found.environment["devices"]) == (1, 2, 1)
    assert files(store, two) == files(store, alone) - {"log.txt"}, "`train` says it all at once"


@pytest.mark.evidence
def test_when_the_other_node_loses_its_rank_both_begin_again_from_the_last_checkpoint(store: Store) -> None:
    two, alone = trial(*NODES, "seed=3"), trial("seed=3")
    started = on_two_nodes([*TINY, *NODES, "seed=3"], store.runs_dir, free_port())
    wait_until(lambda: (store.directory(two.id) / "checkpoints" / "last.ckpt").exists())
    os.kill(ranks(two.id)[1], signal.SIGKILL)
    for each in started:
        each.communicate(timeout=120)
    LocalLauncher(store, fakes.PROVENANCE, slots=1)([alone])
    found, expected = record(store, two), record(store, alone)
    assert (found.status, found.attempts) == ("finished", 2)
    assert found.notes[0] == "attempt 1 killed: another rank was lost; all were ended"
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-9, abs=1e-9)


@pytest.mark.evidence
def test_a_rank_that_is_killed_costs_its_trial_only_and_the_trial_goes_on_when_started_again(
    store: Store,
) -> None:
    killed, alone = trial(*TWO), trial()
    talked: set[Path] = set()
    ended: list[float] = []

    def strike() -> None:
        wait_until(lambda: (store.directory(killed.id) / "checkpoints" / "last.ckpt").exists())
        talked.update(places(killed.id))
        os.kill(ranks(killed.id)[1], signal.SIGKILL)
        struck = time.monotonic()
        wait_until(lambda: not store.locked(killed.id))
        ended.append(time.monotonic() - struck)

    launch = LocalLauncher(store, fakes.PROVENANCE, slots=3)
    thread = threading.Thread(target=strike)
    thread.start()
    launch([killed, alone])
    thread.join()
    assert [record(store, one).status for one in (killed, alone)] == ["killed", "finished"]
    assert record(store, killed).reason == "rank 1 died of SIGKILL; all were ended"
    assert len(ended) == 1 and ended[0] < 60
    assert not ranks(killed.id)
    assert talked and not any(place.exists() for place in talked)

    launch([killed])
    again, expected = record(store, killed), record(store, alone)
    assert (again.status, again.attempts) == ("finished", 2)
    assert again.metrics == pytest.approx(expected.metrics, rel=1e-9, abs=1e-9)
    assert (again.steps, again.tokens, again.parameters) == (expected.steps, expected.tokens, expected.parameters)
    assert again.environment == {**expected.environment, "devices": 2, "strategy": "ddp"}
    assert (again.trainer["devices"], again.trainer["strategy"]) == (2, "ddp")
    assert (
        files(store, killed)
        == files(store, alone)
        == {
            *("config.yaml", "record.json", "metrics.csv", "items.npz", "checkpoints/last.ckpt", "lock", "log.txt"),
        }
    )
    assert {path.name for path in store.runs_dir.iterdir()} == {"trials", "studies"}


def test_a_trial_on_two_devices_takes_two_cores_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert len(make_slots([trial()])) == 8
    assert len(make_slots([trial(), trial(*TWO)])) == 4


def test_devices_and_strategy_are_another_trial_and_another_environment_class() -> None:
    one, ddp, fsdp = trial(), trial(*TWO), trial(TWO[0], "trainer.strategy=fsdp")
    assert len({one.id, ddp.id, fsdp.id}) == 3
    assert "devices" not in one.environment
    assert [dict(each.environment)["strategy"] for each in (ddp, fsdp)] == ["ddp", "fsdp"]
    classes = [Record(each.id, "finished", environment=dict(each.environment)).environment_class for each in (one, ddp)]
    assert classes[0].startswith("cpu · torch") and classes[1].startswith("2 × cpu · ddp · torch")
