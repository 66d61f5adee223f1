"""How a machine is shared out among trials. No GPU is needed: what the driver's tool would say is written down."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from study import fakes
from study.parents import statuses
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study import messages
from swapformer.study.config.compose import compose
from swapformer.study.config.cost import bytes_of_a_step
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.slots import make_slots, visible_gpus
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import make_trial

FOUR = "".join(f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3{i})\n" for i in range(4))
PARTITIONED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 3g.20gb     Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-d1c2b3a4-0000-1111-2222-333344445555)
"""
"""As NVIDIA's MIG user guide prints `nvidia-smi -L`."""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `nvidia-smi` that prints what is in a file, here four GPUs, and an environment that chooses none of them."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "says").write_text(FOUR)
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\nexec cat {folder}/says\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder / "says"


def on_gpus(journal: Path, devices: int = 1, **more: int) -> Trial:
    trial = fakes.trial(journal, **more)
    trial.config["trainer"] |= {"accelerator": "gpu", "devices": devices}
    return trial


def devices(*arguments: object) -> list[str | None]:
    return [slot.devices for slot in make_slots(*arguments)]  # type: ignore[arg-type]


def test_slots_are_cores_over_threads_unless_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    two = fakes.trial(tmp_path)
    two.config["trainer"]["threads"] = 2
    assert len(make_slots([two])) == 4
    two.config["trainer"]["devices"] = 2
    assert len(make_slots([two])) == 2, "each device has its threads"
    two.config["trainer"]["devices"] = 1
    two.config["trainer"]["threads"] = 16
    assert len(make_slots([two])) == 1
    assert len(make_slots([two], 3)) == 3


@pytest.mark.parametrize("setting", ["slots", "slots_per_gpu"])
def test_less_than_one_slot_is_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(UsageError, match=f"launcher.{setting}` must be a whole number of at least 1"):
        LocalLauncher(Store(tmp_path), fakes.PROVENANCE, **{setting: 0})


def test_slots_are_devices_on_a_machine_that_has_them(tmp_path: Path, driver: Path) -> None:
    trial = on_gpus(tmp_path)
    assert devices([trial]) == ["0", "1", "2", "3"]
    assert devices([trial], 6) == ["0", "1", "2", "3", "0", "1"]
    assert devices([trial], 2) == ["0", "1"]
    assert devices([on_gpus(tmp_path, devices=2)]) == ["0,1", "2,3"]
    assert devices([trial, on_gpus(tmp_path, devices=3)]) == ["0,1,2"], "the largest trial decides"
    with pytest.raises(UsageError, match=r"trainer.devices=5 needs 5 GPUs, but there are 4"):
        make_slots([on_gpus(tmp_path, devices=5)])


def test_several_trials_share_a_gpu_when_they_are_told_to(tmp_path: Path, driver: Path) -> None:
    trial = on_gpus(tmp_path)
    assert devices([trial], None, 2) == ["0", "1", "2", "3", "0", "1", "2", "3"]
    assert devices([trial], 5, 2) == ["0", "1", "2", "3", "0"], "slots is a limit"
    assert devices([trial], 9, 2) == devices([trial], None, 2)
    assert devices([on_gpus(tmp_path, devices=2)], None, 2) == ["0,1", "2,3", "0,1", "2,3"]


def test_the_gpus_to_use_can_be_chosen_among_those_that_are_visible(
    tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = on_gpus(tmp_path)
    assert devices([trial], None, None, [3, 1]) == ["3", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3,-1,0")
    assert devices([trial]) == ["2", "3"], "CUDA ignores what follows -1"
    assert devices([trial], None, None, [3]) == ["3"]
    for wrong in ([0], [], [3, 3]):
        with pytest.raises(UsageError, match=r"visible here \(2, 3\), each once"):
            make_slots([trial], gpus=wrong)


def test_no_more_trials_share_a_gpu_than_its_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(compose(["task=copy", "model/size=nano", "trainer=gpu"]))
    peak = bytes_of_a_step(trial.config)
    monkeypatch.setattr("swapformer.study.config.sizes.memory", lambda accelerator: 3.5 * peak)
    launcher = LocalLauncher(Store(tmp_path), fakes.PROVENANCE, slots_per_gpu=3)
    assert launcher.slots_here([trial]) == 3
    launcher.slots_per_gpu = 4
    with pytest.raises(UsageError, match=r"^4 trials on a GPU take .* at a time, but it has .*--slots-per-gpu 3, or"):
        launcher.slots_here([trial])


@pytest.mark.parametrize("setting", [{"gpus": [0]}, {"slots_per_gpu": 2}])
def test_a_setting_of_gpus_is_refused_for_trials_that_use_none(tmp_path: Path, setting: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=rf"settings of GPUs \({next(iter(setting))}\) need trials"):
        make_slots([fakes.trial(tmp_path)], **setting)  # type: ignore[arg-type]


def test_partitions_of_a_gpu_count_each_and_a_machine_without_a_driver_has_none(
    tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.write_text(PARTITIONED)
    first = ["MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"]
    assert visible_gpus() == [*first, "1"]
    with pytest.raises(UsageError, match=r"trainer.devices=2 needs whole GPUs, .*\(MIG\), but there are MIG-c7384736"):
        make_slots([on_gpus(tmp_path, devices=2)])
    assert devices([on_gpus(tmp_path)]) == [*first, "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    assert visible_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", "")
    assert visible_gpus() == []


def test_without_a_gpu_that_can_be_seen_one_trial_runs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices([on_gpus(tmp_path)]) == [None]
    with pytest.raises(UsageError, match=r"visible here \(none\), each once, but \['0'\] is given"):
        make_slots([on_gpus(tmp_path)], gpus=[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are CUDA devices")
def test_nothing_starts_on_gpus_that_are_not_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    trial = make_trial(compose(["task=copy", "model/size=nano", "trainer=gpu", f"runs_dir={store.runs_dir}"]))
    with pytest.raises(UsageError, match=r"trainer.devices=1 needs as many CUDA devices, but there are 0 here"):
        launch_missing([trial], store, LocalLauncher(store, fakes.PROVENANCE))
    assert not store.directory(trial.id).exists()


def test_gpus_that_are_named_are_believed_where_the_driver_has_no_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", "")
    assert devices([on_gpus(tmp_path)], None, None, [1]) == ["1"]


def test_a_trial_sees_its_own_devices_alone(tmp_path: Path, driver: Path) -> None:
    store = Store(tmp_path / "runs")
    trials = [on_gpus(tmp_path / "journal", seed=seed) for seed in range(2)]
    for trial in trials:
        trial.config["behaviour"] = "show devices"
    launch_missing(trials, store, LocalLauncher(store, fakes.PROVENANCE, work=fakes.WORK, gpus=[2, 0]))
    assert statuses(trials, store) == ["finished", "finished"]
    seen = [(store.directory(trial.id) / "devices").read_text() for trial in trials]
    assert sorted(seen) == ["0 PCI_BUS_ID", "2 PCI_BUS_ID"]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize(
    ("accelerator", "gpus", "said"),
    [
        ("cpu", ["0", "1"], "has 2 GPUs, and these trials run on the CPU; trainer=gpu"),
        ("cpu", [], ""),
        ("gpu", ["0"], ""),
    ],
)
def test_a_study_on_the_cpu_says_that_there_are_gpus(
    accelerator: str, gpus: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "visible_gpus", lambda: gpus)
    plan: Any = SimpleNamespace(shared_config={"trainer": {"accelerator": accelerator}})
    assert said in "".join(messages.device_lines(plan)) and bool(said) == bool([*messages.device_lines(plan)])
