"""A trial on a machine that another launcher has found for it: a local launcher with one slot does the work there.

So a trial has a process of its own, a time limit, and somebody to record its death, whoever has started the job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch.child import GRACE
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Trial, Work
from swapformer.targets import VARIABLE, allowed


@dataclass
class Job:
    """What runs a trial in a job, whose process it is alone in. Nothing is returned: results are in the store.

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
                f"runs_dir must lie on a file system that all machines share, but {store.runs_dir} is not to be seen "
                "from the one that was to run a trial; choose another with runs_dir=…"
            )
        self.local = LocalLauncher(store, self.provenance, 1, self.work, time_limit=self.time_limit, tied=True)
        self.local([trial])

    def checkpoint(self, trial: Trial) -> Any:
        """Submitit's hook for a job that is preempted, or has no time left: what to run when it is queued again."""
        if self.local is not None:
            self.local.wind_up("its job was preempted or out of time", self.grace)
            self.local = None
        return library("submitit", "slurm").helpers.DelayedSubmission(self, trial)


def library(name: str, launcher: str) -> Any:
    """The package that a launcher stands on, which is an extra of the same name as the launcher.

    Raises:
        UsageError: if it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UsageError(
            f"hydra/launcher={launcher} needs the package {name}, which is not installed; "
            f"pip install 'swapformer[{launcher}]'"
        ) from None
