"""The address at which the machines (nodes) of one trial meet. It imports no torch, since it also checks settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swapformer.errors import UsageError

TIMEOUT = 600
"""Seconds that the nodes wait for each other."""


def ranks_of(trainer: Mapping[str, Any]) -> int:
    """The processes that train one trial together: one for each device of each node."""
    return int(trainer["devices"]) * int(trainer.get("nodes", 1))


@dataclass(frozen=True)
class Meeting:
    """The address at which the nodes of a trial meet, and the number of this node.

    Attributes:
        host, port: of the first node, which all can reach.
        nodes: how many there are.
        node: this one, from 0. The first one holds the trial's lock and writes its files.
    """

    host: str
    port: int
    nodes: int
    node: int

    @property
    def arguments(self) -> list[str]:
        """Arguments of torchrun."""
        return [
            *(f"--nnodes={self.nodes}", f"--node-rank={self.node}"),
            *(f"--master-addr={self.host}", f"--master-port={self.port}", f"--rdzv-conf=timeout={TIMEOUT}"),
        ]

    @property
    def local(self) -> bool:
        """Whether all nodes are this machine."""
        return self.host in ("localhost", "127.0.0.1", "::1")


def meeting(nodes: int) -> Meeting:
    """The meeting of so many nodes: as MASTER_ADDR, MASTER_PORT and NODE_RANK say, or as the job of SLURM does.

    Raises:
        UsageError: where neither says it, or a job has another number of nodes.
    """
    given = os.environ
    if "MASTER_ADDR" in given:
        host, port, node = given["MASTER_ADDR"], _number("MASTER_PORT"), _number("NODE_RANK")
    elif "SLURM_JOB_NODELIST" in given and "SLURM_NODEID" in given:
        if (there := _number("SLURM_JOB_NUM_NODES")) != nodes:
            raise UsageError(f"trainer.nodes={nodes} needs a job of as many nodes, but this one has {there}")
        host = _first_host(given["SLURM_JOB_NODELIST"])
        port, node = 20_000 + _number("SLURM_JOB_ID") % 20_000, _number("SLURM_NODEID")
    else:
        raise UsageError(
            f"trainer.nodes={nodes} needs a place where the nodes meet: give the same command on each of them, with "
            "MASTER_ADDR and MASTER_PORT (of the first) and NODE_RANK (0, 1, …) in its environment, or use "
            "hydra/launcher=slurm"
        )
    if not 0 <= node < nodes:
        raise UsageError(f"NODE_RANK must be from 0 to {nodes - 1} with trainer.nodes={nodes}, but it is {node}")
    return Meeting(host, port, nodes, node)


def _first_host(listed: str) -> str:
    """The first node of a list as SLURM writes it: n[1-3] → n1."""
    command = ["scontrol", "show", "hostnames", listed]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise UsageError(
            f"scontrol must say which node of {listed} is the first, but it does not ({error}); give MASTER_ADDR, "
            "MASTER_PORT and NODE_RANK"
        ) from error


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        value = os.environ.get(name)
        raise UsageError(f"{name} must be a whole number where nodes meet, but it is {value!r}") from None
