# Shells around swapformer.study's launchers. Hydra executes this module while it looks for plugins, twice if it was
# imported before: nothing heavy at the top, and no `from __future__ import annotations`, which breaks dataclasses here.
"""Hydra launchers `local`, `ray` and `slurm`: trials side by side on this machine, or on many."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from swapformer.results.store import Store
    from swapformer.study.launch.missing_trials import Launch
    from swapformer.study.launch.trial import Trial

Tick = Callable[[Sequence["Trial"]], None]


class TrialLauncher(Launcher):
    """Runs each job's config as a trial; the task function itself is not used, and results come from the store.

    `retries` is for the loop around it; all other settings are those of the launcher behind it.
    """

    def __init__(self, retries: int = 1, **settings: Any) -> None:
        self.retries, self.settings = retries, settings
        self.search_path: list[str] = []

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: keeps where Hydra was told to look for options."""
        from swapformer.study.config.overrides import search_path

        self.search_path = search_path(config.hydra.overrides.hydra)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """For sweepers of others: run the jobs and return each one's first metric, or the reason why it has none."""
        from swapformer.mirror.follower import Target
        from swapformer.mirror.process import mirror_trials
        from swapformer.results.store import Store
        from swapformer.study.config.compose import check, compose
        from swapformer.study.expand import make_trial
        from swapformer.study.launch.missing_trials import run

        configs = [compose([*self.search_path, *overrides]) for overrides in job_overrides]
        for resolved in configs:
            check(resolved)
        trials = [make_trial(resolved) for resolved in configs]
        store = Store(configs[0]["runs_dir"])
        with mirror_trials([(Target(trial.id), trial.config) for trial in trials], store):
            run(trials, store, self.starter(store), retries=self.retries)
        return [_job_return(trial, store, list(job)) for trial, job in zip(trials, job_overrides, strict=True)]

    @abstractmethod
    def starter(self, store: "Store", tick: "Tick | None" = None) -> "Launch":
        """What attempts each trial once, without composing anything again. Raises UsageError for wrong settings."""


class LocalLauncher(TrialLauncher):
    """On this machine."""

    def starter(self, store: "Store", tick: "Tick | None" = None) -> "Launch":
        """See `swapformer.study.launch.local`."""
        from swapformer.study.launch.local import LocalLauncher as Local
        from swapformer.study.launch.provenance import here

        return Local(store, here(), tick=tick, **self.settings)


class RayLauncher(TrialLauncher):
    """As tasks of Ray."""

    def starter(self, store: "Store", tick: "Tick | None" = None) -> "Launch":
        """See `swapformer.study.launch.ray`."""
        from swapformer.study.launch.provenance import here
        from swapformer.study.launch.ray import RayLauncher as Ray

        return Ray(store, here(), tick=tick, **self.settings)


class SlurmLauncher(TrialLauncher):
    """As tasks of a SLURM job array."""

    def starter(self, store: "Store", tick: "Tick | None" = None) -> "Launch":
        """See `swapformer.study.launch.slurm`."""
        from swapformer.study.launch.provenance import here
        from swapformer.study.launch.slurm import SlurmLauncher as Slurm

        return Slurm(store, here(), tick=tick, **self.settings)


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
