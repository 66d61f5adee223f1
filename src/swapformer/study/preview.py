"""The cost of a study and what it could show, before it trains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from swapformer.errors import UsageError
from swapformer.report import number_format as f
from swapformer.report.statistics.claim_identity import digest_of_all, identify
from swapformer.report.statistics.look_path import next_error, units_of
from swapformer.report.statistics.power import detectable
from swapformer.results.arms import ArmCondition, ArmDifference, arm_name
from swapformer.results.ledger import are_same
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.store import Store
from swapformer.study.arm_differences import flops_of_a_step
from swapformer.study.launch.progress import human
from swapformer.study.launch.trial import Trial, is_complete
from swapformer.study.manifest import asked
from swapformer.study.plan import Plan, Template
from swapformer.study.spec import Spec, claims_of
from swapformer.study.trial_times import TrialTimes
from swapformer.study.tune import expected_attempts, tuned


@dataclass(frozen=True)
class ArmTrials:
    """The trials of an arm in a condition, with one setting of what is tuned.

    Attributes:
        setting: of what is tuned; empty for reported trials whose setting is still to be chosen.
        what: `reported`, or `tuning` for those that a setting is chosen by, `first stage` for those of a first stage.
        trials: their ids, in the order of the seeds.
        done: those that have their result.
        operations: of the training of one, in matrix products; nan where they cannot be counted.
        seconds: that one takes on this machine; nan where nothing that was run here says so.
    """

    arm: str
    condition: str
    setting: tuple[str, ...]
    what: str
    trials: tuple[str, ...]
    done: tuple[str, ...]
    operations: float
    seconds: float

    @property
    def left(self) -> int:
        """The number of trials that are still to be run."""
        return len(self.trials) - len(self.done)


@dataclass(frozen=True)
class StudyPreview:
    """The cost of a study, and what its seeds could show.

    Attributes:
        study: its name.
        asked: the trials by arm, condition and setting; one that two of them share is counted with the first.
        slots: how many run at a time on this machine; None: others run them.
        bytes: the peak of a training step of the largest trial, counted; None if it was not.
        largest: the arm that this trial is of, with its condition.
        memory: bytes of this machine; None where trials run on others, or on devices.
        start: seconds of processor time that this process took until now.
        seeds: of each arm, at the first look of a sequential study.
        later: the numbers of seeds that later looks may ask for.
        distance: from a margin that these seeds would find with a power of 80 %, in standard deviations of a seed's
            difference; None without claims.
        more: larger numbers of seeds, each with what they would find.
        baseline: the arm that every part of the study would have.
    """

    study: str
    asked: tuple[ArmTrials, ...]
    slots: int | None
    bytes: int | None
    seeds: int
    later: tuple[int, ...]
    distance: float | None
    largest: str = ""
    memory: int | None = None
    start: float = 0.0
    more: tuple[tuple[int, float], ...] = ()
    baseline: str = ""

    def count(self, what: str, *, left: bool = False) -> int:
        """The number of trials that are asked for, or still to be run."""
        return sum(each.left if left else len(each.trials) for each in self.asked if each.what == what)

    @property
    def seconds(self) -> float:
        """Until all have ended and the report is drawn; nan where some arm's time is not known.

        To start a process that trains, and to draw, take about as long as it took to come here.
        """
        left = sum(each.left for each in self.asked)
        known = sum(each.left * each.seconds for each in self.asked if each.left)
        return known / max(1, min(self.slots or 1, left)) + (2 * self.start if left else 0.0)

    @property
    def parts(self) -> list[list[str]]:
        """The arms beside the baseline in parts of a working session; one part where all fits in, or cannot be cut.

        The baseline trains in each of them. An arm that alone takes longer is a part of its own.
        """
        times: dict[str, float] = {}
        for each in self.asked:
            times[each.arm] = times.get(each.arm, 0.0) + each.left * each.seconds / (self.slots or 1)
        first = times.pop(self.baseline, 0.0)
        if not self.seconds > SESSION:
            return [list(times)]
        found: list[list[str]] = []
        held = math.inf
        for arm, seconds in times.items():
            if held + seconds > SESSION:
                found.append([])
                held = first
            found[-1].append(arm)
            held += seconds
        return found

    @property
    def operations(self) -> float:
        """The operations of all training that is still to be done; nan where some of it cannot be counted."""
        return math.fsum(each.left * each.operations for each in self.asked if each.left)

    @property
    def summary(self) -> str:
        """One line: trials, time, and what difference would be seen."""
        reported, tuning, first = (self.count(what) for what in ("reported", "tuning", FIRST))
        kept = reported - self.count("reported", left=True)
        text = f"{reported} trial{'' if reported == 1 else 's'}"
        text += f" ({'all' if kept == reported else kept} in the store)" if kept else ""
        if tuning:
            again = tuning + first - self.count("tuning", left=True) - self.count(FIRST, left=True)
            stages = f"{first} of a first stage and {tuning} at all steps" if first else str(tuning)
            text += f", {stages} more to choose settings by" + (f" ({again} in the store)" if again else "")
        text += f", up to {self.later[-1]} seeds where claims stay undecided" if self.later else ""
        if any(each.left for each in self.asked):
            text += f", about {human(self.seconds)}" if math.isfinite(self.seconds) else ""
        return f"{text}; {self.sight}"

    @property
    def sight(self) -> str:
        """The difference that these seeds would see."""
        if self.distance is None:
            return "there are no claims, so nothing is judged"
        if not math.isfinite(self.distance):
            return "with one seed nothing is decided but what is exact"
        text = (
            f"with {self.most} seeds, a claim is decided in 4 of 5 studies if the true difference lies "
            f"{self.distance:.2g} standard deviations of a single seed's difference beyond the margin"
        )
        enough = [f"with {seeds} seeds {distance:.2g}" for seeds, distance in self.more if seeds > self.most]
        return f"{text}; {f.listed(enough)} are enough" if enough else text

    @property
    def most(self) -> int:
        """Seeds of each arm at the last look."""
        return self.later[-1] if self.later else self.seeds

    def lines(self) -> Iterable[str]:
        """All of it, for people: a table of the trials, then what they take and could show."""
        rows = [("arm", "setting", "trials", "in the store", "operations each", "time each")]
        tuned = {each.arm for each in self.asked if each.what in ("tuning", FIRST)}
        for (*arm, what), found in groupby(self.asked, key=lambda each: (each.arm, each.condition, each.what)):
            first, *others = found
            setting = ", ".join(first.setting)
            if what in ("tuning", FIRST):
                setting = f"{len(others) + 1} to choose from"
            elif arm[0] in tuned and not setting:
                setting = "the best of them"
            trials = sum(len(each.trials) for each in (first, *others))
            done = sum(len(each.done) for each in (first, *others))
            cells = (str(trials), str(done), f.scaled(first.operations), f.duration(first.seconds))
            rows.append((arm_name(*arm), setting, *cells))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        yield ""
        yield self.summary
        if any(each.left for each in self.asked):
            yield f"operations of the training to be done, counted: {f.scaled(self.operations)}"
            if self.slots is None:
                yield "time: unknown, the launcher takes trials to other machines"
            elif math.isnan(self.seconds):
                yield "time: unknown, no trial of this machine is like these; after the first there is an estimate"
            else:
                starts = f", {human(2 * self.start)} of it to start and to draw" if self.start >= 1 else ""
                yield f"time on this machine: about {human(self.seconds)} with {self.slots} at a time{starts}"
                yield from self._cut()
        if self.bytes is not None:
            yield f"memory of a step of the largest trial, beside its libraries: about {f.size(self.bytes)}"
            at_a_time = max(1, min(self.slots or 1, sum(each.left for each in self.asked)))
            if self.memory is not None and self.bytes * at_a_time > self.memory:
                yield (
                    f"that does not fit: {at_a_time} of {self.largest} at a time need {f.size(self.bytes * at_a_time)} "
                    f"and this machine has {f.size(self.memory)}; ask for fewer --slots or smaller batches, or leave "
                    "out the largest size"
                )

    def _cut(self) -> Iterator[str]:
        """What to do about a study that takes longer than a working session."""
        if not self.seconds > SESSION:
            return
        parts = self.parts
        smaller = "fewer seeds, fewer settings of `tune`, or a smaller budget"
        if len(parts) < 2:
            yield f"that is more than {human(SESSION)}: ask for {smaller}"
            return
        shown = "; ".join(", ".join(part) for part in parts)
        yield (
            f"that is more than {human(SESSION)}, after which a machine may be gone: cut it into {len(parts)} parts, "
            f"each with a study file and the baseline {self.baseline} of its own ({shown}), or ask for {smaller}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for `--json`; nan becomes None."""
        kinds = ["reported", "tuning", *([FIRST] if self.count(FIRST) else [])]
        return {
            "study": self.study,
            "trials": {what: self.count(what) for what in kinds},
            "to_run": {what: self.count(what, left=True) for what in kinds},
            "slots": self.slots,
            "seconds": _number(self.seconds),
            "parts": self.parts,
            "operations": _number(self.operations),
            "bytes": self.bytes,
            "seeds": self.seeds,
            "later": list(self.later),
            "summary": self.summary,
            "asked": [
                {**asdict(each), "operations": _number(each.operations), "seconds": _number(each.seconds)}
                for each in self.asked
            ],
        }


FIRST = "first stage"
"""What trials of the first of two stages are for."""
SESSION = 90 * 60.0
"""Seconds that a part of a study should take at most, so that what it has found is kept before its machine is gone."""
_MORE = (5, 8)
"""Numbers of seeds of which a study with fewer is told what they would find."""
_RATES = ("optim.", "schedule.")
"""Settings that change no operations of a training."""


def preview(
    plan: Plan,
    store: Store,
    differences: Sequence[ArmDifference],
    slots: int | None,
    *,
    memory: bool = False,
    start: float = 0.0,
) -> StudyPreview:
    """Everything that is known of a plan before it is run; nothing is written.

    Args:
        plan: of a study; an arm is counted with the setting that its tuning trials in the store choose, and one that is
            still to be tuned with the first of its settings.
        store: where its trials lie, if there are any.
        differences: as `find_differences` gives them: they hold the operations of each arm.
        slots: how many trials this machine runs at a time; None: others run them, whose times are not known.
        memory: whether to count the bytes of a training step, which takes a while.
        start: seconds of processor time that this process took until now.
    """
    spec = plan.spec
    plan = tuned(plan, store)
    before = manifest_before(spec, store)
    if before is not None and spec.looks:
        plan = replace(plan, reach=_reach(plan, before))
    counts = {(each.arm, each.condition): each.flops for each in differences}

    def operations(template: Template) -> float:
        """Those of its arm, or of its own setting where that is more than a rate."""
        if all(key.startswith(_RATES) for key in template.values):
            return counts.get(template.arm_condition, math.nan)
        step, steps = flops_of_a_step(plan, template.config), int(template.config["budget"]["steps"])
        return math.nan if step is None else float(step * steps)

    times = TrialTimes(plan, store, operations)
    found, seen = list[ArmTrials](), set[str]()

    def add(template: Template, trials: Sequence[Trial], what: str, share: float = 1.0) -> None:
        own = [trial for trial in trials if trial.id not in seen]
        seen.update(trial.id for trial in own)
        done = tuple(trial.id for trial in own if is_complete(trial, store, store.peek(trial.id)))
        ids = tuple(trial.id for trial in own)
        if own:
            counted = share * operations(template)
            known = what != "reported" or spec.tune is None or template.arm_condition in plan.chosen
            seconds = math.nan if slots is None else share * times.seconds(template)
            setting = template.setting if known else ()
            found.append(ArmTrials(*template.arm_condition, setting, what, ids, done, counted, seconds))

    for each in [*plan.tuning, *expected_attempts(plan)]:
        add(each.template, each.trials, "tuning" if each.share == 1 else FIRST, each.share)
    reported = plan.one_each
    for template in reported:
        add(template, plan.trials_of(template), "reported")
    largest = _largest(plan, reported) if memory else None
    error = _next_error(plan, before)
    here = slots is not None and plan.shared_config.get("trainer", {}).get("accelerator") == "cpu"
    return StudyPreview(
        study=spec.name,
        asked=tuple(found),
        slots=slots,
        bytes=largest[0] if largest else None,
        largest=largest[1] if largest else "",
        memory=_memory() if here else None,
        start=start,
        seeds=spec.looks[0] if spec.looks else len(spec.seeds),
        later=tuple(spec.looks[1:]),
        distance=resolution(spec, error) if spec.claims else None,
        more=tuple((seeds, detectable(seeds, _strictest(spec, error))) for seeds in _MORE) if spec.claims else (),
        baseline=spec.baseline,
    )


def manifest_before(spec: Spec, store: Store) -> Manifest | None:
    """The manifest of an earlier run of the study; None if it is missing or cannot be read."""
    try:
        return read_manifest(store.studies / spec.name)
    except UsageError:
        return None


def _reach(plan: Plan, before: Manifest) -> dict[ArmCondition, int]:
    """The number of seeds of each arm that the looks until now have asked for."""
    asked = {cell.trial for cell in before.cells}
    every = replace(plan, reach=dict.fromkeys((each.arm_condition for each in plan.reported), len(plan.spec.seeds)))
    counts = {each.arm_condition: sum(trial.id in asked for trial in every.trials_of(each)) for each in every.reported}
    return {arm: count for arm, count in counts.items() if count > plan.spec.looks[0]}


def _next_error(plan: Plan, before: Manifest | None) -> float:
    """The error of the look that a run would take, or has taken where it adds no seed."""
    spec = plan.spec
    trials: dict[int, list[str]] = {}
    for cell in plan.cells:
        trials.setdefault(cell.seed, []).append(cell.trial.id)
    settings = frozenset(plan.id_of(each) for each in plan.reported)
    known = before.ledger.about(trials, settings) if before else None
    looks = known.looks if known and not spec.looks else ()
    if before is not None and looks and set(spec.seeds) <= {seed for look in looks for seed in look.trials}:
        seen = " ".join(look.claims for look in looks).split()
        stated = replace(asked(spec), settings={each.arm_condition: plan.id_of(each) for each in plan.reported})
        claims = claims_of(spec)
        own = [identify(claims[number], where, stated, {}) for where, number in units_of(claims, stated)]
        if all(any(are_same(each, one) for one in seen) for each in own) or digest_of_all(claims) in seen:
            return looks[-1].error
    return next_error([look.error for look in looks], True, len(spec.looks), reserved=spec.later_claims)


def resolution(spec: Spec, error: float | None = None) -> float:
    """The distance from a margin, in standard deviations, at which a study's seeds decide the strictest claim.

    `error`: of the look at them; None for that of a first look.
    """
    error = next_error((), True, len(spec.looks)) if error is None else error
    return detectable(len(spec.seeds), _strictest(spec, error))


def _strictest(spec: Spec, error: float) -> float:
    """The error of the claim that is decided last, where all claims of a look share `error`."""
    claims = [claim for claim in claims_of(spec) if not claim.exact]
    judged = sum(
        claim.at is None or condition in claim.at
        for claim in claims
        for condition in (list(spec.conditions)[:1] if claim.spans else spec.conditions)
    )
    return error / max(judged, 1) / (2 if any(claim.is_about_zero for claim in claims) else 1)


def _largest(plan: Plan, templates: Sequence[Template]) -> tuple[int, str] | None:
    """The peak of a training step of the largest arm, and its name; None where no arm can be counted."""
    found = list[tuple[int, str]]()
    for each in templates:
        try:
            found.append((plan.composer.bytes_of_a_step(each.config), arm_name(*each.arm_condition)))
        except UsageError:
            continue
    return max(found, default=None)


def _memory() -> int | None:
    """Bytes that trials may use on this machine; None where the system does not say."""
    from swapformer.study.config.sizes import memory  # late: it brings torch

    return int(memory()) if math.isfinite(memory()) else None


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
