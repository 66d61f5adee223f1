"""Runs a study: writes its manifest, launches the trials that the store lacks, and builds its report."""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swapformer.console import Failed
from swapformer.errors import UsageError, quote
from swapformer.results import record as records
from swapformer.results.config import command_of
from swapformer.results.manifest import page_path, write_manifest
from swapformer.results.record import record_path
from swapformer.results.store import Store
from swapformer.study.arm_differences import counts_of, find_differences
from swapformer.study.comparison import MOST_TRIALS
from swapformer.study.config import overrides as texts
from swapformer.study.equal_arms import check_equal_arms
from swapformer.study.launch.launcher import Launch, Launcher
from swapformer.study.launch.missing_trials import RETRIES, launch_missing, trial_status
from swapformer.study.launch.progress import StudyProgress
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Trial, is_complete
from swapformer.study.manifest import find_axis, make_manifest
from swapformer.study.messages import (
    composition_lines,
    device_lines,
    impossible_lines,
    moment_lines,
    resume_line,
    tuning_lines,
)
from swapformer.study.plan import Plan
from swapformer.study.preview import manifest_before, preview
from swapformer.study.spec import Spec, metric_names
from swapformer.study.tune import tuned

if TYPE_CHECKING:
    from swapformer.report.build import Report

log = logging.getLogger(__name__)


class StudyFailed(Failed):
    """Some trials have no result; the message says which."""


@dataclass(frozen=True)
class StudyResult:
    """The result of a run of a study: the status of each trial by id, and its report, unless none was asked for."""

    plan: Plan
    statuses: Mapping[str, str]
    built: Report | None

    @property
    def report(self) -> Report:
        """The report. Raises ValueError where none was built."""
        if self.built is None:
            raise ValueError("this study was run without a report; build one with swapformer.build_report(STUDY)")
        return self.built

    @property
    def failed(self) -> dict[str, str]:
        """The trials without a result, with their status. Diverged is a result."""
        return {trial: status for trial, status in self.statuses.items() if status not in records.FINAL}

    def to_json(self) -> dict[str, Any]:
        """The report for scripts, or without one how many trials have which status; and those that have no result."""
        counted = {"study": self.plan.spec.name, "trials": dict(Counter(self.statuses.values()))}
        found = counted if self.built is None else self.built.as_dict()
        return {**found, "scale": self.plan.spec.scale, "failed": self.failed}

    def require_complete(self) -> None:
        """Raise StudyFailed unless every trial has its result."""
        if self.failed:
            counts = Counter(self.failed.values())
            what = ", ".join(f"{count} {status}" for status, count in counts.items())
            recorded = [trial for trial, status in self.failed.items() if status != records.MISSING]
            why = f"`swapformer trials {recorded[0]}` says why, " if recorded else "none of them has left a record; "
            raise StudyFailed(
                f"{len(self.failed)} of {len(self.statuses)} trials have no result ({what}); {why}"
                "the same command tries again"
            )


def run_study(
    plan: Plan,
    store: Store,
    provenance: Provenance,
    launch: Callable[[StudyProgress], Launch],
    publish: bool = False,
    quiet: bool = False,
    retries: int = RETRIES,
    report: bool | None = None,
) -> StudyResult:
    """Run what is missing and judge it.

    `launch` makes the launcher, given the progress that it should tick. `report`: whether page and figures are written;
    None: where something ran, the study asks something else, or no page shows it all; False: nothing is judged.
    First come the trials that settings are chosen by, if there are any; then those that are reported, look by look.

    Raises:
        UsageError: before anything is trained, if arms that are compared would train the same model.
    """
    find_axis(plan)  # an axis that is none is refused before anything is written
    equal = check_equal_arms(plan, store)
    for line in impossible_lines(plan):
        log.warning("%s", line)
    store.prepare()
    nothing = StudyProgress((), store, quiet=True)
    launcher = launch(nothing)
    launch_missing((), store, launcher, retries=retries)  # wrong settings of a launcher come first
    folder = store.studies / plan.spec.name

    def is_missing(trials: Sequence[Trial]) -> bool:
        return any(not is_complete(trial, store, store.read(trial.id)) for trial in trials)

    before = manifest_before(plan.spec, store)
    plan = tuned(plan, store)
    to_tune = is_missing(plan.tuning_trials)
    counts = counts_of(plan)
    stays = report is None and not publish and _shows_all(page_path(folder), plan.trials, store)
    stays = stays and not to_tune and not is_missing(plan.trials)
    differences = find_differences(plan, counts, before if stays else None)
    if not quiet:
        slots = launcher.slots_here(plan.possible_trials) if isinstance(launcher, Launcher) else 1
        foreseen = preview(plan, store, differences, slots, start=time.process_time())
        does = "measures" if plan.shared_config["measure"] else "trains"
        what = "runs the command" if command_of(plan.shared_config) else f"{does} a model"
        expected = [f"to be expected: {plan.spec.expects}"] if plan.spec.expects else []
        _say([f"{what} for each trial: {foreseen.summary}", *expected], quiet)
    _say([*device_lines(plan), *composition_lines(plan, differences), *equal, *moment_lines(plan, store)], quiet)

    from swapformer.report.statistics.kept_looks import adopt_looks, require_seeds
    from swapformer.report.statistics.sequential import undecided_arms
    from swapformer.report.statistics.statements import note_claims, note_seen

    ran = False

    def attempt(trials: Sequence[Trial], what: str) -> None:
        nonlocal ran
        if not quiet and (resumed := resume_line(trials, store)) is not None:
            _say([resumed], quiet)
        ran = ran or is_missing(trials)
        manifest = make_manifest(plan, provenance, differences)
        require_seeds(folder, manifest)
        note_seen(folder, store)
        write_manifest(folder, manifest)
        if plan.spec.published is not None:
            adopt_looks(folder, store.runs_dir, manifest, plan.spec.published / "results.csv")
        note_claims(folder, store, manifest)
        progress = StudyProgress(trials, store, quiet, what, plan.names)
        start = launch(progress)
        with progress:
            launch_missing(trials, store, start, progress.tick, retries)

    asked_before: set[str] = set()
    # where nothing is to tune, a manifest without reported trials would replace one that has them
    while to_tune and {trial.id for trial in plan.tuning_trials} != asked_before:
        asked_before = {trial.id for trial in plan.tuning_trials}
        attempt(plan.tuning_trials, "tuning trials")
        plan = tuned(plan, store)  # a search in two stages may ask for more
        differences = find_differences(plan, counts)
        to_tune = is_missing(plan.tuning_trials)
    if plan.spec.tune is not None:
        _say(tuning_lines(plan), quiet)
    for turn, seeds in enumerate(plan.spec.looks or (len(plan.spec.seeds),)):
        arms = undecided_arms(folder, store.runs_dir) if turn else None
        if arms is not None and not arms:
            break
        plan = plan.with_seeds_at_look(seeds, arms)
        attempt(plan.trials, "trials")
    manifest = make_manifest(plan, provenance, differences)
    changed = before is None or not before.asks_as(manifest)
    if stays and (ran or changed):  # the page is drawn again
        manifest = make_manifest(plan, provenance, find_differences(plan, counts))
    write_manifest(folder, manifest)
    built = None
    if report is not False:
        from swapformer.report.build import build

        draw = bool(report or publish or ran or changed or not _shows_all(page_path(folder), plan.trials, store))
        built = build(folder, store.runs_dir, plan.spec.published if publish else None, draw=draw)
    asked = [*plan.tuning_trials, *plan.trials]
    return StudyResult(plan, {trial.id: trial_status(trial, store) for trial in asked}, built)


def _shows_all(page: Path, trials: Iterable[Trial], store: Store) -> bool:
    """Whether there is a page, drawn when all trials had their records: a run may have ended before it drew."""
    try:
        drawn = page.stat().st_mtime
        return all(record_path(store.directory(trial.id)).stat().st_mtime <= drawn for trial in trials)
    except OSError:
        return False


def _say(lines: Iterable[str], quiet: bool) -> None:
    for line in () if quiet else lines:
        print(f"swapformer: {line}", file=sys.stderr, flush=True)


def plain_sweep(jobs: Sequence[Sequence[str]], name: str | None = None, metrics: Sequence[str] = ("val/loss",)) -> Spec:
    """The study that a plain Hydra sweep amounts to: its arms are the overrides that differ, apart from the seed."""
    seeds = list(dict.fromkeys(_seed(job) for job in jobs))
    settings = [tuple(override for override in job if texts.key(override) != "seed") for job in jobs]
    shared = tuple(override for override in settings[0] if all(override in setting for setting in settings))
    own = list(dict.fromkeys(tuple(o for o in setting if o not in shared) for setting in settings))
    arms = dict(zip(_arm_names(own), own, strict=True))
    keys = dict.fromkeys(texts.key(override) for setting in own for override in setting)
    digest = hashlib.sha256(repr((sorted(shared), sorted(own), seeds)).encode()).hexdigest()[:8]
    return Spec(
        name=str(name or f"sweep-{digest}"),
        question="",
        scale="",
        baseline=next(iter(arms)),
        arms=arms,
        overrides=shared,
        seeds=tuple(seeds),
        metrics=metric_names(metrics),
        claims=(),
        axis=tuple(keys) if len(keys) > 1 else (),
        published=None,
    )


def require_few_jobs(parsed: Sequence[Any]) -> None:
    """Refuse a sweep of more than MOST_TRIALS jobs, given as Hydra's overrides, before they are listed.

    Raises:
        UsageError: also for a range without a step.
    """
    count = 1
    for override in parsed:
        swept: Any = override.value() if override.is_sweep_override() else None
        if hasattr(swept, "step"):
            if not swept.step:
                raise UsageError(f"a range must have a step other than 0, but {quote(override.input_line)} has none")
            count *= max(0, int((swept.stop - (swept.start or 0)) / swept.step) + 1)
        elif hasattr(swept, "list"):
            count *= len(swept.list)
        if count > MOST_TRIALS:
            raise UsageError(
                f"a sweep must have at most {MOST_TRIALS:,} trials, but {quote(override.input_line)} makes "
                f"{count:,}; ask for fewer"
            )


def _seed(job: Sequence[str]) -> int:
    text = texts.value(job, "seed") or "0"
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"seed must be a whole number of at least 0 and below 10^18, but {quote(text)} was given")
    return int(text)


def _arm_names(arms: Sequence[Sequence[str]]) -> list[str]:
    """`model/position=rope` → `rope`; with several, or where that is ambiguous: `position=rope num_heads=4`."""
    pairs = [[(texts.key(o).replace("/", ".").rpartition(".")[2], o.partition("=")[2]) for o in arm] for arm in arms]
    short = [arm[0][1] if len(arm) == 1 else " ".join(f"{key}={value}" for key, value in arm) for arm in pairs]
    names = short if len(set(short)) == len(arms) else [" ".join(arm) for arm in arms]
    names = [name.replace("/", ".") or "default" for name in names]
    return [name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, start=1)]
