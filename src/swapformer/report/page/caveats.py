"""Caveats of a report: how the study was judged, what limits its verdicts, and what may be less fair."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

import numpy as np

from swapformer.errors import cut
from swapformer.report import number_format
from swapformer.report.figures.condition_view import View
from swapformer.report.records import Records
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.estimates import IdenticalEstimate
from swapformer.report.statistics.exchange_rate import exchange_sentences
from swapformer.report.statistics.ladder_summary import ladder_summaries
from swapformer.report.statistics.look_path import look_path
from swapformer.report.statistics.sequential import trials_saved
from swapformer.report.statistics.statements import seeds_seen
from swapformer.report.tuning import stages_text
from swapformer.results.arms import arm_name, is_timed
from swapformer.results.config import command_of
from swapformer.results.moments import INIT, split_moment

MOST_REMARKS = 10
"""How many notes of trials' records a report repeats."""
NOISY = 0.1
"""How far the rounds of a timing may lie apart, over their median, before the report says so."""
MOST_NOISY = 3
"""How many of them it names."""
LONGEST_REMARK = 300
"""Characters of a note that it shows."""


def design_sentences(records: Records, views: Sequence[View]) -> list[str]:
    """The way from the trials to the verdicts: what differences are worth, looks, tuning."""
    manifest = records.manifest
    verdicts = [verdict for view in views for verdict in view.verdicts]
    found = []
    found += exchange(views)
    found += ladder_sentences(views)
    path = look_path(claims_of(manifest), records)
    if manifest.looks or len(path.looks) > 1:
        counts = number_format.listed([str(len(seeds)) for seeds in path.seeds])
        portions = number_format.listed([number_format.percent(look.error) for look in path.looks])
        text = f"Judged at {counts} seeds, with {portions} of error; in all {number_format.percent(path.error)}"
        spared = trials_saved(records, verdicts)
        saved = f"; {f'{spared} trials were not needed' if spared else 'no trial was saved'}" if manifest.looks else ""
        found.append(f"{text}{saved}.")
    if tuning := manifest.tuning:
        chosen = f"{number_format.listed(tuning.keys)} {'was' if len(tuning.keys) == 1 else 'were'} chosen for each arm"
        seeds = ", ".join(map(str, tuning.seeds))
        found.append(f"{chosen} by the mean of {tuning.metric} over seeds that are not reported ({seeds}).")
        found += stages_text(tuning)
    return found


def exchange(views: Sequence[View]) -> list[str]:
    """The worth of differences in a loss in steps of the baseline, condition by condition."""
    found = []
    for view in views:
        where = f"With {view.condition}: " if view.condition else ""
        found += [where + each for each in exchange_sentences(view.data.records, view.rows, view.data.evidence)]
    return found


def ladder_sentences(views: Sequence[View]) -> list[str]:
    """The findings of a ladder: laws, speed-ups, how they go with size, and how its rungs would have decided."""
    evidence = {view.condition: view.data.evidence for view in views}
    found = ladder_summaries(views[0].data.records.manifest, evidence) if views else []
    return [line for summary in found for line in summary.lines()]


def caveats(records: Records, views: Sequence[View]) -> list[str]:
    """Everything that a reader must know before believing the numbers."""
    found = []
    rows = [row for view in views for row in view.rows]
    verdicts = [verdict for view in views for verdict in view.verdicts]
    unfinished = records.cells["status"].value_counts().drop("finished", errors="ignore")
    if len(unfinished):
        counts = ", ".join(f"{n} {status}" for status, n in unfinished.items())
        lost = int(unfinished.sum())
        initial = [metric for metric in records.manifest.metrics if split_moment(metric)[1] == INIT]
        but = f" but in {number_format.listed(initial)}, measured before training" if initial else ""
        found.append(f"{lost} of {len(records.cells)} trials have no result ({counts}); none is averaged{but}.")
    flattered = [
        arm_name(row.arm, view.condition)
        for view in views
        for row in view.rows
        if row.counts.get("finished") and any(_survivors(view, row.arm, metric) for metric in row.summaries)
    ]
    if flattered:
        found.append(
            f"Means of {', '.join(flattered)} are over surviving trials and flatter; "
            "their intervals are open on the flattering side."
        )
    if verdicts and records.manifest.ledger.unknown:
        found.append(
            f"Looks before are unknown, because {records.manifest.ledger.unknown}: if there were any, wrong verdicts "
            "are likelier than stated."
        )
    found += _statements(records) if verdicts else []
    found += (
        _same_models(records, views)
        + _unmeasured(views)
        + _seedless(records)
        + _cut_off(views)
        + _noise(views)
        + evaluation_caveats(views)
        + _fairness(records)
        + _remarks(records)
        + _older(records)
        + _origins(records)
    )
    summaries = [summary for row in rows for summary in row.summaries.values()]
    alike = [c.estimate for verdict in verdicts for c in verdict.contrasts if isinstance(c.estimate, IdenticalEstimate)]
    compared = [one.comparison.individual for one in summaries if one.comparison is not None]
    if alike or any(len(each) > 1 and np.ptp(each) == 0 for each in compared):
        found.append(
            "Some differences are the same number with every seed, where a t interval would have no width. Of values "
            "with a known range the interval allows for rare others that these seeds have not shown; else nothing is "
            "known."
        )
    told = {_measure(metric) for verdict in verdicts if verdict.elsewhere for metric in verdict.claim.metrics}
    noisy = {each.metric for each in summaries if each.evaluation_error > 2 * each.seed_error}
    of_measure = {_measure(metric): metric for metric in sorted(noisy, reverse=True)}
    coarse = sorted(metric for measure, metric in of_measure.items() if measure not in told)
    if coarse:
        found.append(
            f"In {', '.join(coarse)} the evaluation set's standard error is over twice that of the seeds for some arm: "
            "the differences hold for this evaluation set, and a larger one would say more than further seeds."
        )
    pairs = [verdict.pairs for verdict in verdicts if verdict.contrasts]
    pairs += [each.comparison.pairs for each in summaries if each.comparison is not None]
    if any(2 <= count < 5 for count in pairs):  # an arm without the metric has no pairs, and no interval
        found.append("Intervals from fewer than 5 seeds lean heavily on the assumption of normal differences.")
    scale = f" (scale {records.manifest.scale})" if records.manifest.scale else ""
    if command_of(records.manifest.shared_config) or not records.cells["environment"].ne("").any():
        found.append(
            "Intervals cover the randomness of these runs; that they share data, budget and tuning is not known."
        )
        return found
    if is_measured(records):
        found.append(f"Nothing was trained: each seed is a round of measuring, with the model of that seed{scale}.")
        return found
    found.append(
        f"Intervals cover the randomness of seeds, for this task, size and budget{scale}; {_evaluation_sets(records)}, "
        "and its own standard error stands beside."
    )
    return found


def _statements(records: Records) -> list[str]:
    """What is known of when claims were stated, where their verdicts do not say it."""
    if records.whole:
        return [
            "The claims were stated with the results at hand: the best of many differences looks better than it is."
        ]
    units = look_path(claims_of(records.manifest), records).units
    if all(seeds_seen(records.manifest.ledger, identity) is not None for identity in units.values()):
        return []
    return ["Date of statement not recorded: which results had been seen when the claims were stated is not known."]


def _measure(metric: str) -> str:
    """A metric under one name with those that say the same: a loss per token, per byte, and its perplexity."""
    return metric.replace("/bits_per_byte", "/loss").replace("/perplexity", "/loss")


def _survivors(view: View, arm: str, metric: str) -> bool:
    """Whether trials of the arm that diverged have no value in a metric."""
    evidence = view.data.evidence
    return bool((evidence.diverged[arm] & evidence.lost(arm, metric)).any())


def evaluation_caveats(views: Sequence[View]) -> list[str]:
    """Arms that were evaluated on other data than the baseline that they are compared with."""
    about: dict[tuple[str, str, str], list[str]] = {}
    for view in views:
        evidence, baseline = view.data.evidence, view.data.records.manifest.baseline
        for row in view.rows:
            apart = {metric: sorted(evidence.evaluated_apart(row.arm, baseline, metric)) for metric in row.summaries}
            if metrics := [metric for metric, sets in apart.items() if sets]:
                sets = dict.fromkeys(name for each in apart.values() for name in each)
                key = baseline, ", ".join(sets), ", ".join(metrics)
                about.setdefault(key, []).append(arm_name(row.arm, view.condition))
    return [
        f"{number_format.listed(arms)} {_were(arms)} evaluated on other data than {baseline} ({sets}): differences in "
        f"{metrics} are of the data too."
        for (baseline, sets, metrics), arms in about.items()
    ]


def _were(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"


def _same_models(records: Records, views: Sequence[View]) -> list[str]:
    """Arms that a claim or the table compares, and that trained the same model."""
    about: dict[str, list[str]] = {}
    for view in views:
        pairs = {frozenset((c.arm, c.than)): (c.arm, c.than) for verdict in view.verdicts for c in verdict.contrasts}
        for row in view.rows if records.manifest.baseline in view.data.evidence.arms else ():
            if not row.is_baseline:
                pairs.setdefault(frozenset((row.arm, records.manifest.baseline)), (row.arm, records.manifest.baseline))
        for arm, other in pairs.values():
            if view.data.evidence.same_model(arm, other, "val/loss"):
                apart = view.data.evidence.settings_apart(arm, other)
                why = f": {number_format.listed(apart)} did nothing" if apart else ""
                where = f" with {view.condition}" if view.condition else ""
                about.setdefault(f"{where}{why}", []).append(f"{arm} and {other}")
    return [
        f"{'; '.join(pairs)} trained the same model{said}. All their losses are equal to the last digit with every "
        "seed, so that they agree is no evidence."
        for said, pairs in about.items()
    ]


def _evaluation_sets(records: Records) -> str:
    """A description of the sets that arms were evaluated on."""
    finished = int((records.cells["status"] == "finished").sum())
    if len(records.evaluations) < finished:
        return "each trial's evaluation set is fixed (some trials do not say of which data it is)"
    sets: dict[tuple[str, str], set[str]] = {}
    for (condition, _, _), known in records.evaluations.items():
        for name, items in known.items():
            sets.setdefault((condition, name), set()).add(items)
    if any(len(items) > 1 for items in sets.values()):
        return "each arm's evaluation set is fixed, but not all arms have the same"
    return "the evaluation set is fixed, the same for all arms"


def _unmeasured(views: Sequence[View]) -> list[str]:
    """Trials that finished without a finite value of a metric that others have."""
    about: dict[str, list[str]] = {}
    for view in views:
        evidence = view.data.evidence
        for arm, metric in ((row.arm, metric) for row in view.rows for metric in row.summaries):
            if lost := int(evidence.unmeasured(arm, metric).sum()):
                of = f"{lost} of its {int(evidence.finished[arm].sum())} finished trials"
                about.setdefault(f"{metric} in {of}", []).append(arm_name(arm, view.condition))
    return [
        f"{number_format.listed(arms)} {'has' if len(arms) == 1 else 'have each'} no finite {what}; none is averaged, "
        f"and {'its' if len(arms) == 1 else 'their'} intervals are open on the flattering side."
        for what, arms in about.items()
    ]


def _cut_off(views: Sequence[View]) -> list[str]:
    """The times to a target that are cut off, arm by arm."""
    found = []
    for view in views:
        evidence = view.data.evidence
        for (arm, metric), seeds in evidence.unreached.items():
            if metric in view.data.records.manifest.metrics and seeds.any():
                found.append(
                    f"{arm_name(arm, view.condition)} does not reach the target of {metric} in {int(seeds.sum())} of "
                    f"{int(evidence.finished[arm].sum())} trials: they count with the shortest horizon of all trials, "
                    "so the mean is one of min(T, horizon), and a lower bound of the time."
                )
    return found


def _noise(views: Sequence[View]) -> list[str]:
    """Timings whose rounds lie far apart: the largest less the smallest, over their median."""
    spreads: dict[str, float] = {}
    for view in views:
        evidence = view.data.evidence
        for arm, metric in evidence.values:
            values = (
                [float(x) for x in evidence.seed_values(arm, metric) if math.isfinite(x)] if is_timed(metric) else []
            )
            if len(values) > 1 and (middle := median(values)):
                spreads[f"{metric} of {arm_name(arm, view.condition)}"] = (max(values) - min(values)) / middle
    noisy = sorted((name for name, each in spreads.items() if each > NOISY), key=spreads.__getitem__, reverse=True)
    if not noisy:
        return []
    worst = number_format.listed([f"{name} ({100 * spreads[name]:.0f} %)" for name in noisy[:MOST_NOISY]])
    more = f", and {len(noisy) - MOST_NOISY} more" if len(noisy) > MOST_NOISY else ""
    return [
        f"Noisy timings: the rounds of {len(noisy)} of {len(spreads)} lie apart by more than "
        f"{number_format.percent(NOISY)} of their median: {worst}{more}."
    ]


def is_measured(records: Records) -> bool:
    """Whether a study measured models that it did not train."""
    names = records.metrics["metric"]
    return len(names) > 0 and not names.str.startswith(("val/", "test/", "probe/")).any()


def _fairness(records: Records) -> list[str]:
    """Comparisons that may be less fair than they look."""
    manifest = records.manifest
    chosen = manifest.tuning.chosen if manifest.tuning else ()
    found = []
    lost = [
        (arm_name(each.arm, each.condition), ", ".join(f"{key}={value}" for key, value in each.values.items()))
        for each in chosen
        if each.diverged
    ]
    if lost:
        firsts = "; ".join(f"{arm} ({setting})" for arm, setting in lost)
        found.append(
            f"Every setting that was tried diverged, so the first was taken: {firsts}; put others into `tune`."
        )
    at_edges: dict[str, list[str]] = {}
    for each in chosen:
        for key in each.edges:
            at_edges.setdefault(f"{key}={each.values[key]}", []).append(arm_name(each.arm, each.condition))
    if at_edges:
        settings = "; ".join(f"{setting} of {number_format.listed(arms)}" for setting, arms in at_edges.items())
        found.append(
            f"Chosen settings lie at the edge of what was tried, so better ones may lie beyond: {settings}; widen the "
            "grid of `tune`."
        )
    counts = Counter((each.arm, each.condition) for each in (manifest.tuning.tried if manifest.tuning else ()))
    if alone := [arm_name(*at) for at, number in counts.items() if number < 2]:
        found.append(
            f"{number_format.listed(alone)} could have one setting of those that `tune` lists, so nothing was chosen "
            f"for {'it' if len(alone) == 1 else 'them'}."
        )
    beyond: dict[str, list[str]] = {}
    for fairness in manifest.fairness:
        if fairness.beyond:
            beyond.setdefault(", ".join(fairness.beyond), []).append(arm_name(fairness.arm, fairness.condition))
    found += [
        f"{number_format.listed(arms)} {'differs' if len(arms) == 1 else 'differ'} from {manifest.baseline} in more "
        f"than {'its' if len(arms) == 1 else 'their'} axis: {keys}; name what is compared on purpose with "
        "`axis: [...]`."
        for keys, arms in beyond.items()
    ]
    if manifest.looks:
        found.append("A sequential study stops when differences look large: they are a little smaller than they look.")
    return found


def _older(records: Records) -> list[str]:
    """Findings of probes that the store has in the form of an older version."""
    if not records.older:
        return []
    trials = ", ".join(f"{cut(probe, 40)} of {count} trials" for probe, count in sorted(records.older.items()))
    return [
        f"What probes found is stored in the form of an older version, and is not drawn: {trials}. Their numbers "
        "count; to draw them, remove these trials' artifacts and run the study again."
    ]


def _seedless(records: Records) -> list[str]:
    """Arms of a command whose seeds all gave the same numbers: it may ignore its seed."""
    if not command_of(records.manifest.shared_config):
        return []
    alike = []
    for (arm, condition), rows in records.metrics.groupby(["arm", "condition"], sort=False):
        seeds = rows.pivot_table(index="seed", columns="metric", values="value")
        if len(seeds) > 1 and (seeds.nunique() == 1).all():
            alike.append(arm_name(str(arm), str(condition)))
    if not alike:
        return []
    return [
        f"Every seed of {number_format.listed(alike)} gave the same numbers to the last digit: the command seems to "
        "ignore its seed, and then its trials are one trial."
    ]


def _remarks(records: Records) -> list[str]:
    """Further remarks in the records of trials: each remark once, with the arms that it is about."""
    about: dict[str, list[str]] = {}
    for (condition, arm, _), remarks in records.remarks.items():
        for remark in remarks:
            about.setdefault(cut(remark, LONGEST_REMARK), []).append(arm_name(arm, condition))
    found = []
    for remark, arms in list(about.items())[:MOST_REMARKS]:
        trials = f"{len(arms)} trial{'' if len(arms) == 1 else 's'}"
        found.append(f"Noted in {trials} of {number_format.listed(list(dict.fromkeys(arms)))}: {remark}.")
    if (more := len(about) - MOST_REMARKS) > 0:
        found.append(f"{more} more notes stand in the records of trials.")
    return found


def _origins(records: Records) -> list[str]:
    """Trials from several environments or commits, or from an uncommitted tree."""
    classes, processors, commits = (
        sorted({x for x in records.cells[name] if x}) for name in ("environment", "processor", "commit")
    )
    found = []
    if len(classes) > 1:
        found.append(
            f"Trials ran in {len(classes)} environment classes ({'; '.join(classes)}). "
            "Differences are paired only within one class; seeds that lie apart are left out of them."
        )
    if len(processors) > 1:
        found.append(
            f"Trials ran on {len(processors)} kinds of processors ({'; '.join(processors)}), on which a training ends "
            "with other numbers; arms whose seeds lie on different ones differ by that too."
        )
    if len(commits) > 1:
        found.append(f"Trials come from {len(commits)} commits: {', '.join(commit[:10] for commit in commits)}.")
    if records.cells["dirty"].any():
        found.append("Some trials ran with uncommitted changes in the working tree.")
    return found
