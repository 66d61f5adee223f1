# A shell around swapformer.study.launcher. Hydra executes this module while it looks for plugins, twice if it was
# imported before: nothing heavy at the top, and no `from __future__ import annotations`, which breaks dataclasses here.
"""Hydra launcher `local`: trials side by side on this machine."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from swapformer.study.store import Store
    from swapformer.study.trial import Trial


class LocalLauncher(Launcher):
    """Runs each job's config as a trial; the task function itself is not used, and results come from the store."""

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots
        self.search_path: list[str] = []

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: keeps where Hydra was told to look for options."""
        from swapformer.study.overrides import search_path

        self.search_path = search_path(config.hydra.overrides.hydra)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """For sweepers of others: run the jobs and return each one's first metric, or the reason why it has none."""
        from swapformer.mirror.follow import Target
        from swapformer.mirror.process import mirrored
        from swapformer.study import config
        from swapformer.study.expand import make_trial
        from swapformer.study.run import run
        from swapformer.study.store import Store

        configs = [config.compose([*self.search_path, *overrides]) for overrides in job_overrides]
        for resolved in configs:
            config.check(resolved)
        trials = [make_trial(resolved) for resolved in configs]
        store = Store(configs[0]["runs_dir"])
        with mirrored([(Target(trial.id), trial.config) for trial in trials], store):
            run(trials, store, lambda missing: self.start(missing, store))
        return [_job_return(trial, store, list(job)) for trial, job in zip(trials, job_overrides, strict=True)]

    def start(
        self,
        trials: "Sequence[Trial]",
        store: "Store",
        tick: "Callable[[Sequence[Trial]], None] | None" = None,
    ) -> None:
        """Attempt each trial once, without composing anything again."""
        from swapformer.study.launcher import LocalLauncher as Local
        from swapformer.study.provenance import here

        Local(store, here(), self.slots, tick=tick)(trials)


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
