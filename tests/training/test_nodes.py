"""Where the nodes of a trial meet: by the environment, or as the nodes of a job of SLURM."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose
from swapformer.study.config.identity import environment_class
from swapformer.training.nodes import Meeting, meeting, ranks_of

NAMES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURM_JOB_NUM_NODES")
GIVEN = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500", "NODE_RANK": "1"}
JOB = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NODEID": "2", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_ID": "1234567"}


@pytest.fixture(autouse=True)
def _no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def given(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_the_environment_says_where_and_which(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, GIVEN)
    found = meeting(2)
    assert found == Meeting("n1", 29500, 2, 1) and not found.local
    assert {"--nnodes=2", "--node-rank=1", "--master-addr=n1", "--master-port=29500"} <= set(found.arguments)


def test_a_job_of_slurm_says_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-3]" ] && printf "n1\\nn2\\nn3\\n"\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    given(monkeypatch, JOB)
    assert meeting(3) == Meeting("n1", 34_567, 3, 2)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "trainer.nodes=2 needs a place where the nodes meet: .* MASTER_ADDR .* or use hydra/launcher=slurm"),
        (GIVEN | {"NODE_RANK": "2"}, "NODE_RANK must be from 0 to 1 with trainer.nodes=2, but it is 2"),
        (GIVEN | {"MASTER_PORT": "http"}, "MASTER_PORT must be a whole number where nodes meet, but it is 'http'"),
        (
            {"MASTER_ADDR": "n1", "MASTER_PORT": "1"},
            "NODE_RANK must be a whole number where nodes meet, but it is None",
        ),
        (JOB, "trainer.nodes=2 needs a job of as many nodes, but this one has 3"),
        (
            JOB | {"SLURM_JOB_NUM_NODES": "2", "PATH": "/nowhere"},
            r"which node of n\[1-3\] is the first",
        ),
    ],
)
def test_what_nodes_cannot_meet_by_is_said(
    environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, environment)
    with pytest.raises(UsageError, match=message):
        meeting(2)


def test_nodes_count_as_devices_that_share_a_trial() -> None:
    two = ["task=copy", "trainer.nodes=2", "trainer.devices=3", "trainer.strategy=ddp"]
    config = compose(two)
    assert ranks_of(config["trainer"]) == 6 and ranks_of({"devices": 2}) == 2
    assert environment_class(config) | {"devices": 3, "nodes": 2, "strategy": "ddp"} == environment_class(config)
    assert "nodes" not in environment_class(compose(["task=copy"]))
    for overrides, message in (
        (two[:2], "trainer.devices=1 and trainer.nodes=2 must share a trial in some way: add trainer.strategy=ddp"),
        ([*two, "task.batch_size=5"], "cannot be cut into .* for trainer.devices=3 and trainer.nodes=2"),
        ([*two, "model/norm=batchnorm"], "of which each of 6 devices would see its own sequences alone"),
    ):
        with pytest.raises(UsageError, match=message):
            check(compose(overrides))
