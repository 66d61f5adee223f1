"""A study from question to answer: its manifest, its missing trials, its report."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swapformer.console import Failed
from swapformer.errors import UsageError
from swapformer.study import overrides as texts
from swapformer.study import record as records
from swapformer.study.expand import Plan
from swapformer.study.manifest import write_manifest
from swapformer.study.progress import Progress
from swapformer.study.provenance import Provenance
from swapformer.study.run import Launch, run, status
from swapformer.study.spec import Spec
from swapformer.study.store import Store

if TYPE_CHECKING:
    from swapformer.report.build import Report

log = logging.getLogger(__name__)


class StudyFailed(Failed):
    """Some trials have no result; the message says which."""


@dataclass(frozen=True)
class Answer:
    """What a study came to.

    Attributes:
        statuses: of each trial, by id.
    """

    plan: Plan
    statuses: Mapping[str, str]
    report: Report

    @property
    def failed(self) -> dict[str, str]:
        """The trials without a result, with their status. Diverged is a result."""
        return {trial: status for trial, status in self.statuses.items() if status not in records.FINAL}

    def to_json(self) -> dict[str, Any]:
        """The report for scripts, with the trials that have no result."""
        return {**self.report.as_dict(), "scale": self.plan.spec.scale, "failed": self.failed}

    def require_complete(self) -> None:
        """Raise StudyFailed unless every trial has its result."""
        if self.failed:
            counts = Counter(self.failed.values())
            what = ", ".join(f"{count} {status}" for status, count in counts.items())
            raise StudyFailed(
                f"{len(self.failed)} of {len(self.statuses)} trials have no result ({what}); "
                f"`swapformer trials {next(iter(self.failed))}` says why, the same command tries again"
            )


def answer(
    plan: Plan,
    store: Store,
    provenance: Provenance,
    launch: Callable[[Progress], Launch],
    publish: bool = False,
    quiet: bool = False,
) -> Answer:
    """Run what is missing and build the report. `launch` makes the launcher, given the progress that it should tick."""
    for arm, reason in plan.impossible.items():
        log.warning("arm %s is impossible and left out: %s", arm, reason)
    store.prepare()
    write_manifest(plan, store, provenance)
    progress = Progress(plan.trials, store, quiet)
    start = launch(progress)
    if plan.spec.claims and not quiet:
        print(f"swapformer: {decidable(plan.spec)}", file=sys.stderr, flush=True)
    with progress:
        run(plan.trials, store, start, progress.tick)
    write_manifest(plan, store, provenance)
    folder = store.studies / plan.spec.name
    from swapformer.report.build import build

    report = build(folder, store.runs_dir, plan.spec.published if publish else None)
    return Answer(plan, {trial.id: status(trial, store) for trial in plan.trials}, report)


def decidable(spec: Spec) -> str:
    """How many of the study's claims its seeds could decide, for effects of two standard deviations."""
    from swapformer.report.claims import parse as parse_claims
    from swapformer.report.power import plan as power_plan

    planned = power_plan(parse_claims(list(spec.claims), list(spec.arms), list(spec.metrics)), len(spec.seeds))
    return f"if true differences lie two standard deviations off their margins, {planned}"


def plain_sweep(jobs: Sequence[Sequence[str]], name: str | None = None) -> Spec:
    """The study that a plain Hydra sweep amounts to: its arms are the overrides that differ, apart from the seed."""
    seeds = list(dict.fromkeys(_seed(job) for job in jobs))
    settings = [tuple(override for override in job if texts.key(override) != "seed") for job in jobs]
    shared = tuple(override for override in settings[0] if all(override in setting for setting in settings))
    own = list(dict.fromkeys(tuple(o for o in setting if o not in shared) for setting in settings))
    arms = dict(zip(_arm_names(own), own, strict=True))
    digest = hashlib.sha256(repr((sorted(shared), sorted(own), seeds)).encode()).hexdigest()[:8]
    return Spec(
        name=name or f"sweep-{digest}",
        question="",
        scale="sweep",
        baseline=next(iter(arms)),
        arms=arms,
        overrides=shared,
        seeds=tuple(seeds),
        metrics=("val/loss",),
        claims=(),
        axis=None,
        published=None,
    )


def _seed(job: Sequence[str]) -> int:
    text = texts.value(job, "seed") or "0"
    if not text.isdecimal():
        raise UsageError(f"seed must be a whole number of at least 0, but {text} was given")
    return int(text)


def _arm_names(arms: Sequence[Sequence[str]]) -> list[str]:
    """`model/position=rope` → `rope`; with several, or where that is ambiguous: `position=rope num_heads=4`."""
    pairs = [[(texts.key(o).replace("/", ".").rpartition(".")[2], o.partition("=")[2]) for o in arm] for arm in arms]
    short = [arm[0][1] if len(arm) == 1 else " ".join(f"{key}={value}" for key, value in arm) for arm in pairs]
    names = short if len(set(short)) == len(arms) else [" ".join(arm) for arm in arms]
    return [name.replace("/", ".") or "default" for name in names]
