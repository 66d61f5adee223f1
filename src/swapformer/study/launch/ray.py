"""The Ray launcher: runs trials as tasks of Ray, here or on a cluster whose machines share the store's file system."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swapformer.errors import UsageError
from swapformer.ranges import NonNegative, Positive
from swapformer.study.launch.launcher import Launcher, library
from swapformer.study.launch.remote_job import RemoteJob
from swapformer.study.launch.signals import collected_signals
from swapformer.study.launch.slots import cores_of, devices_of
from swapformer.study.launch.trial import Trial

log = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between looks at signals and progress while tasks run."""


@dataclass
class RayLauncher(Launcher):
    """Runs each trial as one task, which Ray does not start again: a trial that dies costs only itself.

    Attributes:
        slots: how many tasks are given to Ray at a time; None: all, and its resources decide.
        num_cpus: cores that a task takes; None: those that its trial computes with.
        num_gpus: GPUs that a task takes, also a part of one; None: those that its trial uses.
        init: arguments of `ray.init`, such as the address of a cluster.
        options: further arguments of `ray.remote`, such as memory.

    Raises UsageError for less than one slot, no time, or without Ray.
    """

    num_cpus: Positive | None = None
    num_gpus: NonNegative | None = None
    init: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ray = library("ray", "ray")

    def __call__(self, trials: Sequence[Trial]) -> None:
        """Attempt each trial once and return when all tasks have ended.

        The first SIGINT or SIGTERM stops the trials, the second kills them; both end in KeyboardInterrupt.
        """
        ray = self._ray
        self._connect()
        self._require_room(trials)
        remote = ray.remote(max_retries=0, max_calls=0)(_run)  # 0: a worker is kept, also one that has held a GPU
        job = RemoteJob(str(self.store.runs_dir), self.provenance, self.time_limit, self.work)
        waiting = deque(trials)
        tasks: dict[Any, Trial] = {}
        with collected_signals() as stops:
            while waiting or tasks:
                while waiting and not stops and len(tasks) < (self.slots or len(trials)):
                    trial = waiting.popleft()
                    options = {**self._demand(trial), **self.options, "name": f"trial {trial.id}"}
                    tasks[remote.options(**options).remote(job, trial)] = trial
                if stops:
                    waiting.clear()
                    if not any(self.store.locked(trial.id) for trial in tasks.values()):
                        break  # Ray may be gone itself, for it gets what is sent to the group of processes
                for task in ray.wait(list(tasks), num_returns=1, timeout=POLL)[0] if tasks else ():
                    self._note(task, tasks.pop(task))
                for number, stop in enumerate(stops[:2]):
                    for task in tasks if stop else ():
                        ray.cancel(task, force=bool(number))
                    stops[number] = 0
                if self.tick is not None:
                    self.tick([trial for trial in tasks.values() if self.store.locked(trial.id)])
            if stops:
                raise KeyboardInterrupt

    def _connect(self) -> None:
        """Join the cluster that `init` names, or start Ray on this machine."""
        if self._ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        alone = {} if self._on_cluster else {"include_dashboard": False}
        self._ray.init(**{"log_to_driver": False, "logging_level": logging.WARNING, **alone, **self.init})

    @property
    def _on_cluster(self) -> bool:
        return "address" in self.init or "RAY_ADDRESS" in os.environ

    def _demand(self, trial: Trial) -> dict[str, float]:
        cpus = cores_of([trial]) if self.num_cpus is None else self.num_cpus
        gpus = devices_of([trial]) if self.num_gpus is None else self.num_gpus
        return {"num_cpus": cpus, "num_gpus": gpus}

    def _require_room(self, trials: Sequence[Trial]) -> None:
        """Ray waits for ever for what this machine does not have; a cluster may still grow."""
        have = self._ray.cluster_resources()
        for trial in () if self._on_cluster else trials:
            for name, needed in self._demand(trial).items():
                if needed > (there := have.get(name.removeprefix("num_").upper()[:3], 0)):
                    raise UsageError(
                        f"a trial needs {name}={needed:g}, but Ray has {there:g} here; give hydra.launcher.{name}=…"
                    )

    def _note(self, task: Any, trial: Trial) -> None:
        try:
            self._ray.get(task)
        except UsageError:
            raise
        except Exception as error:
            log.warning("Ray's task of trial %s ended with %s", trial.id, str(error).strip().split("\n")[-1])


def _run(job: RemoteJob, trial: Trial) -> None:
    """The work of a task."""
    job(trial)
