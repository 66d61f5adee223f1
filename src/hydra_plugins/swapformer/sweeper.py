# A shell around swapformer.study. Hydra executes this module while it looks for plugins, twice if it was imported
# before: nothing heavy at the top, and no `from __future__ import annotations`, which breaks dataclasses here.
"""Hydra sweeper `swapformer`: a study's arms × seeds, or a plain sweep, which is recorded as a separate study."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from swapformer.errors import UsageError, quote
from swapformer.ranges import Count, Natural, check, check_settings

if TYPE_CHECKING:
    from swapformer.results.store import Store
    from swapformer.study.launch.launcher import Launch
    from swapformer.study.launch.progress import StudyProgress
    from swapformer.study.launch.trial import Trial
    from swapformer.study.plan import Plan


class StudySweeper(Sweeper):
    """Launches what is missing from the store until nothing is, with whatever launcher Hydra was given."""

    def __init__(
        self,
        study: str | None = None,
        scale: str | None = None,
        seeds: Any = None,
        name: str | None = None,
        metrics: Sequence[str] = ("val/loss",),
        publish: bool = False,
        as_json: bool = False,
        report: bool | None = None,
        max_batch_size: Count | None = None,
        params: dict[str, str] | None = None,
    ) -> None:
        self.max_batch_size, self.params = max_batch_size, params or {}
        self.study, self.scale, self.seeds, self.name = study, scale, seeds, name
        self.metrics, self.publish, self.as_json, self.report = metrics, publish, as_json, report

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: keeps the context, and makes the launcher that was chosen."""
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """The study's answer. Raises UsageError, or StudyFailed when a trial has no result."""
        from swapformer.mirror.process import mirror_trials, study_targets
        from swapformer.results.store import Store
        from swapformer.study.config.resolvers import require_references
        from swapformer.study.equal_arms import check_equal_arms
        from swapformer.study.launch.missing_trials import RETRIES
        from swapformer.study.launch.provenance import current_provenance
        from swapformer.study.run_study import run_study
        from swapformer.tools.studies import show_result

        check_settings(StudySweeper, vars(self), "hydra.sweeper")
        assert self.config is not None, "Hydra calls setup first"
        for node in ("sweeper", "launcher"):
            require_references(OmegaConf.to_container(self.config.hydra[node]), f"hydra.{node}")
        plan = self._plan([*(f"{key}={value}" for key, value in self.params.items()), *arguments])
        store = Store(plan.shared_config["runs_dir"])
        retries = getattr(self.launcher, "retries", RETRIES)
        check(Natural, retries, "hydra.launcher.retries")
        launcher: Any = self.launcher
        if hasattr(launcher, "make_launcher"):
            launcher.make_launcher(store)  # refuses wrong settings before anything is written
        check_equal_arms(plan, store)  # before a mirror leaves anything in the store
        with mirror_trials(study_targets(plan), store):
            found = run_study(
                plan,
                store,
                current_provenance(),
                lambda progress: self._launch(store, progress),
                self.publish,
                quiet=self.as_json,
                retries=retries,
                report=self.report,
            )
        show_result(found, self.as_json)
        found.require_complete()
        return found

    def _plan(self, arguments: list[str]) -> "Plan":
        from swapformer.study.config.overrides import search_path
        from swapformer.study.override_check import check_overrides
        from swapformer.study.spec import load, with_seeds

        assert self.config is not None, "Hydra calls setup first"
        arguments = [*search_path(self.config.hydra.overrides.hydra), *arguments]
        if self.study is not None:
            spec = with_seeds(load(self.study, self.scale), self.seeds)
            check_overrides(spec, arguments)
            from swapformer.study.expand import expand  # late: it brings torch

            return expand(spec, arguments)
        from swapformer.study.expand import expand
        from swapformer.study.run_study import plain_sweep, require_few_jobs

        assert self.hydra_context is not None, "Hydra calls setup first"
        parsed = OverridesParser.create(config_loader=self.hydra_context.config_loader).parse_overrides(arguments)
        require_few_jobs(parsed)
        return expand(plain_sweep(_jobs(parsed), self.name, self.metrics))

    def _launch(self, store: "Store", progress: "StudyProgress") -> "Launch":
        from swapformer.study.config.overrides import of_whole_model

        launcher: Any = self.launcher
        # Ours takes resolved configs; isinstance fails, the class exists twice.
        ours = launcher.make_launcher(store, progress.tick) if hasattr(launcher, "make_launcher") else None
        if ours is not None and self.max_batch_size is None:
            return ours

        def launch(trials: "Sequence[Trial]") -> None:
            size = self.max_batch_size or len(trials)
            for first in range(0, len(trials), max(size, 1)):
                some = trials[first : first + size]
                if ours is not None:
                    ours(some)
                else:
                    launcher.launch([of_whole_model(trial.overrides) for trial in some], initial_job_idx=first)

        return launch


def _jobs(parsed: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job of a sweep: every combination of the values that are listed."""
    values: dict[str, list[str]] = {}
    for each in parsed:
        key = each.get_key_element()
        if each.is_sweep_override() and not each.is_discrete_sweep():
            raise UsageError(f"a sweep lists values or ranges, but {quote(each.input_line)} is neither")
        swept = each.is_sweep_override()
        values[key] = [
            f"{key}={value}" for value in (each.sweep_string_iterator() if swept else [each.get_value_element_as_str()])
        ]
    return [list(job) for job in product(*values.values())]
