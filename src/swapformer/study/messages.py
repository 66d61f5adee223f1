"""Lines for the terminal about a plan: what was left out, solved, chosen, and what its seeds would see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from swapformer.results import record as records
from swapformer.results.arms import ArmDifference, arm_name
from swapformer.results.moments import at_moment, steps_of
from swapformer.results.store import Store
from swapformer.results.tuning import Choice
from swapformer.study.arm_differences import axes
from swapformer.study.config import budget
from swapformer.study.launch.slots import visible_gpus
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import Plan, Setting


def impossible_lines(plan: Plan) -> Iterator[str]:
    """Lines for the terminal about arms that were left out, with the reasons."""
    for where, reason in plan.impossible.items():
        yield f"arm {arm_name(*where)} is impossible and left out: {reason}"
    for (where, setting), reason in plan.refused.items():
        yield f"arm {arm_name(*where)} cannot have {', '.join(setting)}, which is not tried: {reason}"
    left = Counter(each.arm_condition for each in plan.templates)
    refused = dict.fromkeys(where for where, _ in plan.refused)
    yield from (
        f"arm {arm_name(*where)} is left with one setting, so nothing is tuned" for where in refused if left[where] < 2
    )


def composition_lines(plan: Plan, differences: Sequence[ArmDifference]) -> Iterator[str]:
    """Lines for the terminal about numbers that were solved while composing."""
    for (arm, condition), matched in plan.matched.items():
        yield f"{arm_name(arm, condition)}: {matched.text}"
    steps: dict[str, list[str]] = {}
    for each in plan.templates:
        for text in budget.lines(each.config) if "budget" in each.config else ():
            steps.setdefault(text, []).append(arm_name(*each.arm_condition))
    for text, names in steps.items():
        who = f" ({', '.join(dict.fromkeys(names))})" if len(names) < len(plan.templates) else ""
        yield text + who
    for found in differences:
        if found.beyond:
            says = ", ".join(axes(plan.spec, found.arm)) or "it says"
            yield (
                f"{arm_name(found.arm, found.condition)} differs in more than {says}: {', '.join(found.beyond)}; "
                "name what is compared on purpose with `axis: [...]` in the study file"
            )


def device_lines(plan: Plan) -> Iterator[str]:
    """That this machine has GPUs which a study on the CPU leaves idle, in a line for the terminal."""
    if plan.shared_config.get("trainer", {}).get("accelerator") == "cpu" and (found := visible_gpus()):
        yield (
            f"this machine has {len(found)} GPU{'' if len(found) == 1 else 's'}, and these trials run on the CPU; "
            "trainer=gpu uses them"
        )


def moment_lines(plan: Plan, store: Store) -> Iterator[str]:
    """A line for the terminal about trials that are trained again because a probe looks within their training."""
    watched = {
        at_moment(name, step): None
        for each in plan.templates
        for name, settings in (each.config.get("probes") or {}).items()
        for step in steps_of(settings)
    }
    if not watched:
        return
    unwatched = [plan.composer.trial_id({**trial.config, "probes": {}}) for trial in plan.trials]
    records = [(store.read(trial.id), store.read(other)) for trial, other in zip(plan.trials, unwatched, strict=True)]
    if anew := sum(other is not None and other.final and (own is None or not own.final) for own, other in records):
        yield (
            f"{anew} trial{'' if anew == 1 else 's'} that had a result without {', '.join(watched)} will be trained "
            "anew: what happens within a training can be seen only while it lasts"
        )


def resume_line(trials: Sequence[Trial], store: Store) -> str | None:
    """A line for the terminal about trials that resume from a checkpoint; None where none does."""
    from swapformer.training.weights import checkpoint_step

    begun = [
        trial.id
        for trial in trials
        if (found := store.read(trial.id)) and not found.final and found.status != records.FAILED
    ]
    steps = [step for trial in begun if (step := checkpoint_step(store.directory(trial)))]
    if not steps:
        return None
    at = " and ".join(filter(None, (", ".join(map(str, steps[:-1])), str(steps[-1]))))
    return f"1 trial resumes, at step {at}" if len(steps) == 1 else f"{len(steps)} trials resume, at steps {at}"


def tuning_lines(plan: Plan) -> Iterator[str]:
    """Lines for the terminal about the settings that tuning chose."""
    settings = {each.arm_condition: each.setting for each in plan.reported}
    for where in dict.fromkeys(each.arm_condition for each in plan.templates):
        choice = plan.chosen.get(where)
        yield f"{arm_name(*where)}: {_chosen(choice, settings[where]) if choice else 'not tuned, trials are missing'}"


def _chosen(choice: Choice, setting: Setting) -> str:
    text = ", ".join(setting)
    if choice.diverged:
        return f"every setting that was tried diverged; {text} is only the first; put other values into `tune`"
    return text + (" (at the edge of what was tried)" if choice.edges else "")
