"""The SLURM launcher: runs trials as the tasks of job arrays, submitted and queued again by submitit.

The jobs do not need the process that has submitted them: a file for each array names its trials, so that a later
command waits for them instead of submitting them again. It is written before a stop is heard.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.ranges import Count, Natural, Positive
from swapformer.results.files import write_atomic
from swapformer.study.launch.launcher import Launcher, library
from swapformer.study.launch.other_node import nodes_of
from swapformer.study.launch.remote_job import RemoteJob
from swapformer.study.launch.signals import deferred_signals
from swapformer.study.launch.slots import cores_of, devices_of
from swapformer.study.launch.trial import Trial, is_complete
from swapformer.training.signals import SigtermReceived

log = logging.getLogger(__name__)

POLL = 1.0
"""Seconds between looks at the store."""


@dataclass
class SlurmLauncher(Launcher):
    """Runs each trial as one task of an array, which a preemption or the end of its time queues again.

    Attributes:
        slots: how many tasks run at a time; None: as many as the cluster lets.
        array: the most tasks in one array; more trials wait for the next one.
        poll: seconds between looks at the queue.
        timeout: minutes that one start of a job may take.
        timeouts: how often a job that has used them up is queued again.
        signal_delay: seconds before that at which the trial is asked for its checkpoint.
        cpus_per_task: None: the threads of the trials.
        gpus_per_node: None: the GPUs that the trials use.
        name, mem_gb, partition, account, qos, constraint: what `sbatch` calls so; None: the cluster's default.
        more: further options of `sbatch` by name.
        setup: lines of shell before the trial.

    Raises UsageError for settings out of their range, without submitit, and without SLURM.
    """

    array: Count = 1000
    poll: Positive = 30.0
    timeout: Count = 60
    timeouts: Natural = 3
    signal_delay: Natural = 120
    cpus_per_task: Count | None = None
    gpus_per_node: Natural | None = None
    name: str = "swapformer"
    mem_gb: Positive | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    setup: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._submitit = library("submitit", "slurm")
        for command in ("sbatch", "srun", "squeue", "scontrol"):
            if shutil.which(command) is None:
                raise UsageError(f"hydra/launcher=slurm needs SLURM's commands, but there is no {command} here")

    def __call__(self, trials: Sequence[Trial]) -> None:
        """Attempt each trial once and return when their jobs have left the queue. Ctrl-C leaves the jobs to go on."""
        for first in range(0, len(trials), self.array):
            part = trials[first : first + self.array]
            jobs = self._joined(part)
            try:
                self._submit([trial for trial in part if trial.id not in jobs], jobs)
                self._wait(part, jobs)
            except (KeyboardInterrupt, SigtermReceived):
                arrays = " ".join(sorted({job.partition("_")[0] for job in jobs.values()}))
                if arrays:
                    log.warning("the jobs go on, the same command waits for them; to end them: scancel %s", arrays)
                raise

    @property
    def _folder(self) -> Path:
        """The folder for submitit's files and the trials of each array."""
        return self.store.runs_dir / "slurm"

    def _joined(self, trials: Sequence[Trial]) -> dict[str, str]:
        """The trials that have a job already, by id: submitted by a command that is gone, or runs elsewhere."""
        asked = {trial.id for trial in trials}
        submitted = {job: trial for job, trial in read_jobs(self._folder).items() if trial in asked}
        if not submitted:
            return {}
        while (listed := queued_jobs()) is None:
            time.sleep(self.poll)
        return {trial: job for job, trial in submitted.items() if job in listed}

    def _submit(self, trials: Sequence[Trial], jobs: dict[str, str]) -> None:
        """Give the trials jobs, and add these to `jobs`."""
        if not trials:
            return
        executor = self._submitit.AutoExecutor(self._folder, cluster="slurm", slurm_max_num_timeout=self.timeouts)
        executor.update_parameters(**self._parameters(trials))
        job = RemoteJob(
            str(self.store.runs_dir), self.provenance, self.time_limit, self.work, grace=0.8 * self.signal_delay
        )
        with deferred_signals():
            submitted = executor.map_array(job, trials)
            made = {one.job_id: trial.id for one, trial in zip(submitted, trials, strict=True)}
            jobs |= {trial: number for number, trial in made.items()}
            write_jobs(self._folder, made)
        log.info("submitted %d trials as SLURM job %s", len(trials), jobs[trials[0].id].partition("_")[0])

    def _parameters(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """The settings from which submitit makes the header of the script."""
        cpus = cores_of(trials) if self.cpus_per_task is None else self.cpus_per_task
        gpus = devices_of(trials) if self.gpus_per_node is None else self.gpus_per_node
        asked = {
            "gpus_per_node": gpus or None,
            "mem_gb": self.mem_gb,
            "slurm_partition": self.partition,
            "slurm_account": self.account,
            "slurm_qos": self.qos,
            "slurm_constraint": self.constraint,
            "slurm_setup": list(self.setup) or None,
        }
        return {
            "name": self.name,
            "timeout_min": self.timeout,
            "cpus_per_task": cpus,
            "nodes": nodes_of(trials),
            "tasks_per_node": 1,
            "stderr_to_stdout": True,
            "slurm_array_parallelism": self.slots or len(trials),
            "slurm_signal_delay_s": self.signal_delay,
            "slurm_additional_parameters": {"requeue": True, **self.more},
            **{key: value for key, value in asked.items() if value is not None},
        }

    def _wait(self, trials: Sequence[Trial], jobs: Mapping[str, str]) -> None:
        """Until each trial has its result, or its job is gone from the queue."""
        waiting = list(trials)
        asked = time.monotonic()
        while waiting:
            time.sleep(min(POLL, self.poll))
            waiting = [t for t in waiting if not is_complete(t, self.store, self.store.read(t.id))]
            if waiting and time.monotonic() - asked >= self.poll:
                asked = time.monotonic()
                listed = queued_jobs()
                waiting = [trial for trial in waiting if listed is None or jobs[trial.id] in listed]
            if self.tick is not None:
                self.tick([trial for trial in waiting if self.store.locked(trial.id)])


def write_jobs(folder: Path, jobs: Mapping[str, str]) -> None:
    """Write the file of a submitted array: which trial each job (`100_0`, …) has."""
    number = next(iter(jobs)).partition("_")[0]
    write_atomic(folder / f"{number}.json", json.dumps(dict(jobs)))


def read_jobs(folder: Path) -> dict[str, str]:
    """The trial of every job that was ever submitted, whether it is over or not."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found |= {str(job): str(trial) for job, trial in json.loads(path.read_bytes()).items()}
        except (OSError, ValueError, AttributeError) as error:
            log.warning("%s does not say which jobs were submitted (%s)", path, error)
    return found


def queued_jobs() -> set[str] | None:
    """The user's jobs that wait or run, tasks of arrays one by one; None where SLURM does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("squeue does not answer (%s); asking again", error)
        return None
    return set(done.stdout.split())
