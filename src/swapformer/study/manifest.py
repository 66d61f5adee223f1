"""The manifest of a plan: what a report needs to know about the study, other than its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from swapformer.errors import UsageError
from swapformer.exercises import studies_of
from swapformer.results.arms import ArmDifference, Cell, ShownFigure
from swapformer.results.artifacts import probe_keys
from swapformer.results.config import leaves
from swapformer.results.manifest import Axis, Manifest
from swapformer.results.tuning import Refused, Tried, Tuning
from swapformer.study.config import overrides as texts
from swapformer.study.launch.provenance import Provenance
from swapformer.study.plan import Plan, PlannedTrial
from swapformer.study.spec import NAMELESS, Spec
from swapformer.yaml_reader import read_yaml


def make_manifest(plan: Plan, provenance: Provenance, differences: Sequence[ArmDifference] = ()) -> Manifest:
    """The manifest of a plan; `differences` as in `arm_differences`."""
    return replace(
        asked(plan.spec),
        axis=find_axis(plan),
        cells=tuple(_cell(each) for each in plan.cells),
        settings={each.arm_condition: plan.id_of(each) for each in plan.reported},
        impossible_at=dict(plan.impossible),
        tuning=_tuning(plan),
        fairness=tuple(differences),
        command=provenance.command,
        commit=provenance.commit or "",
        longest_trained=plan.longest_trained,
        shared_config=plan.shared_config,
    )


def asked(spec: Spec) -> Manifest:
    """The question of a study, without the trials that answer it."""
    return Manifest(
        name=spec.name,
        scale=spec.scale,
        question=spec.question,
        baseline=spec.baseline,
        metrics=tuple(spec.metrics),
        arms={arm: tuple(overrides) for arm, overrides in spec.arms.items()},
        seeds=tuple(spec.seeds),
        claims=tuple(spec.claims),
        looks=tuple(spec.looks),
        conditions={name: each.values for name, each in spec.conditions.items()},
        cells=(),
        derive=spec.derive,
        exact=spec.exact,
        published=spec.literature,
        figures=tuple(_with_lines(each, spec.must_beat) for each in spec.figures),
        ranges=spec.ranges,
        must_beat=spec.must_beat,
        later_claims=spec.later_claims,
        palette=_palette(spec),
    )


def _with_lines(figure: ShownFigure, must_beat: Mapping[str, Mapping[str, float]]) -> ShownFigure:
    """A figure of a metric with a line at each number that the baseline must beat in it; none among differences."""
    found: dict[str, float] = {}
    for metric, numbers in must_beat.items():
        if figure.name.endswith("_" + metric.replace("/", "_")) and not figure.name.startswith("forest_"):
            found |= numbers
    return replace(figure, lines={**found, **figure.lines})


def _palette(spec: Spec) -> tuple[str, ...]:
    """The arms of all parts of the study's exercise, if it is a part of one, in the order of the parts."""
    if spec.published is None or "/" not in spec.name:
        return ()
    results = spec.published if spec.scale in NAMELESS else spec.published.parent
    files = [read_yaml(path) for path in studies_of(results.parent.parent).values()]
    arms = [list(file["arms"]) for file in files if isinstance(file, dict) and isinstance(file.get("arms"), dict)]
    return tuple(dict.fromkeys(str(arm) for each in arms for arm in each))


def _cell(planned: PlannedTrial) -> Cell:
    keys = probe_keys(planned.trial.config)
    return Cell(planned.arm, planned.seed, planned.trial.id, planned.condition, keys)


def _tuning(plan: Plan) -> Tuning | None:
    """The settings that were tried, with their seeds, and the chosen one."""
    tune = plan.spec.tune
    if tune is None:
        return None
    return Tuning(
        metric=plan.spec.tuned_by,
        keys=tuple(tune.values),
        seeds=tune.seeds,
        tried=tuple(
            Tried(
                *each.template.arm_condition, each.template.values, tuple(trial.id for trial in each.trials), each.share
            )
            for each in plan.tuning
        ),
        refused=tuple(
            Refused(*where, texts.values(setting), reason) for (where, setting), reason in plan.refused.items()
        ),
        chosen=tuple(plan.chosen.values()),
    )


def find_axis(plan: Plan) -> Axis | None:
    """The one config key that tells the arms apart by different numbers, with each arm's value; None without one."""
    named = plan.spec.axis
    keys = named or list({texts.key(override) for overrides in plan.spec.arms.values() for override in overrides})
    if len(keys) != 1 or "/" in keys[0]:
        return None
    (key,) = keys
    values = {each.arm: dict(leaves(each.config)).get(key) for each in reversed(plan.templates)}
    values = {arm: values[arm] for arm in plan.spec.arms if arm in values}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    if numbers and len(set(values.values())) == len(values) > 1:
        return Axis(key, values)
    if named:
        raise UsageError(f"`axis` must name a key whose number differs in every arm, but {key} has {values}")
    return None
