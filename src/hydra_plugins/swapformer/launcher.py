# Shells around swapformer.study's launchers. Hydra executes this module while it looks for plugins, twice if it was
# imported before: nothing heavy at the top, and no `from __future__ import annotations`, which breaks dataclasses here.
"""Hydra launchers `local`, `ray` and `slurm`: trials side by side on this machine, or on many."""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from swapformer.results.store import Store
    from swapformer.study.launch.launcher import Launch
    from swapformer.study.launch.trial import Trial


class TrialLauncher(Launcher):
    """Runs each job's config as a trial; the task function itself is not used, and results come from the store.

    `retries` is for the loop around it; all other settings are those of the launcher behind it.

    Attributes:
        launcher: the class behind it, as a dotted name: it is imported late.
    """

    launcher: str

    def __init__(self, retries: int = 1, **settings: Any) -> None:
        self.retries, self.settings = retries, settings
        self.search_path: list[str] = []
        self.fixed: list[str] = []
        self.best = (math.inf, "")

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: keeps the places where Hydra looks for options."""
        from swapformer.study.config.overrides import search_path

        self.search_path = search_path(config.hydra.overrides.hydra)
        self.fixed = [str(each) for each in config.hydra.overrides.task]

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """For sweepers of others: run the jobs and return each one's first metric, or the reason why it has none."""
        from swapformer.mirror.follower import Target
        from swapformer.mirror.process import mirror_trials
        from swapformer.results.artifacts import probe_keys
        from swapformer.results.store import Store
        from swapformer.study.config.compose import check, compose
        from swapformer.study.launch.missing_trials import launch_missing
        from swapformer.study.plan import make_trial

        configs = [compose([*self.search_path, *overrides]) for overrides in job_overrides]
        for resolved in configs:
            check(resolved)
        trials = [make_trial(resolved) for resolved in configs]
        store = Store(configs[0]["runs_dir"])
        targets = [(Target(trial.id, probes=probe_keys(trial.config)), trial.config) for trial in trials]
        with mirror_trials(targets, store):
            launch_missing(trials, store, self.make_launcher(store), retries=self.retries)
        returns = [_job_return(trial, store, list(job)) for trial, job in zip(trials, job_overrides, strict=True)]
        for trial, job in zip(trials, returns, strict=True):
            self._tell(trial.id, [each for each in job.overrides or () if each not in self.fixed], job)
        if self.best[1]:
            print(f"best so far: {self.best[1]}", flush=True)
        return returns

    def _tell(self, trial: str, chosen: Sequence[str], job: JobReturn) -> None:
        """Print the result of a job, since the sweeper may not do so."""
        what = " ".join(chosen) or "as given"
        if job.status == JobStatus.FAILED:
            print(f"{what}: {job._return_value}", flush=True)
            return
        text = f"{what}: val/loss {job.return_value:.4g} (trial {trial})"
        self.best = min(self.best, (job.return_value, text))
        print(text, flush=True)

    def make_launcher(self, store: "Store", tick: "Launch | None" = None) -> "Launch":
        """The launcher that attempts resolved trials. Raises UsageError for wrong settings."""
        from swapformer.study.launch.provenance import current_provenance

        module, _, name = self.launcher.rpartition(".")
        return getattr(import_module(module), name)(store, current_provenance(), tick=tick, **self.settings)


class HydraLocalLauncher(TrialLauncher):
    """Runs trials on this machine."""

    launcher = "swapformer.study.launch.local.LocalLauncher"


class HydraRayLauncher(TrialLauncher):
    """Runs trials as tasks of Ray."""

    launcher = "swapformer.study.launch.ray.RayLauncher"


class HydraSlurmLauncher(TrialLauncher):
    """Runs trials as tasks of SLURM job arrays."""

    launcher = "swapformer.study.launch.slurm.SlurmLauncher"


def _job_return(trial: "Trial", store: "Store", overrides: list[str]) -> JobReturn:
    from swapformer.train import TrialFailed, objective

    job = JobReturn(overrides=overrides, task_name="train", working_dir=str(store.directory(trial.id)))
    try:
        value: Any = objective(trial, store)
        job.status = JobStatus.COMPLETED
    except TrialFailed as error:
        value = error
        job.status = JobStatus.FAILED
    job.return_value = value
    return job
