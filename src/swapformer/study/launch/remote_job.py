"""Runs a trial as a job on a machine that Ray or SLURM has found for it, by a local launcher with one slot.

So a trial has a process of its own, a time limit, and somebody to record its death, whoever has started the job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch.child import GRACE
from swapformer.study.launch.launcher import library
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.other_node import is_other_node, take_part
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Trial, Work
from swapformer.targets import VARIABLE, allowed


@dataclass
class RemoteJob:
    """A job that runs one trial and has its process to itself. Nothing is returned: results are in the store.

    Attributes:
        runs_dir: the store, on a file system that this machine shares with the one that has made the job.
        time_limit: minutes that one start of the trial may take.
        work: what a trial does, for tests; None: train.
        path: where to look for modules besides: parts of the user's own.
        grace: seconds that a trial has for its checkpoint when the job has to end.
        packages: whose classes the user allows configurations to name.
    """

    runs_dir: str
    provenance: Provenance
    time_limit: float | None = None
    work: Work | None = None
    path: Sequence[str] = field(default_factory=lambda: tuple(sys.path))
    grace: float = GRACE
    packages: str = field(default_factory=allowed)
    local: LocalLauncher | None = field(default=None, init=False, repr=False)

    def __call__(self, trial: Trial) -> None:
        """Attempt the trial once.

        Raises:
            UsageError: where the store is not to be seen.
            KeyboardInterrupt: when it was stopped.
        """
        os.environ[VARIABLE] = self.packages
        sys.path += [entry for entry in self.path if entry not in sys.path]
        store = Store(self.runs_dir)
        if not store.trials.is_dir():
            raise UsageError(
                f"runs_dir must be on a file system that all machines share, but {store.runs_dir} is not to be seen "
                "from the one that was to run a trial; choose another with runs_dir=…"
            )
        if is_other_node([trial]):
            take_part([trial], store)
            return
        self.local = LocalLauncher(store, self.provenance, 1, self.work, time_limit=self.time_limit, tied=True)
        self.local([trial])

    def checkpoint(self, trial: Trial) -> Any:
        """Submitit's hook for a job that is preempted, or has no time left: what to run when it is queued again."""
        if self.local is not None:
            self.local.shutdown("its job was preempted or out of time", self.grace)
            self.local = None
        return library("submitit", "slurm").helpers.DelayedSubmission(self, trial)
