"""Expands a study into arms × conditions × settings, each composed and checked once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swapformer.errors import UsageError, suggest
from swapformer.interface import MAIN
from swapformer.results.arms import UNITS, ArmCondition, MatchedSize, arm_name
from swapformer.results.history import UTILISATION
from swapformer.results.moments import moment_text, moments_of, split_moment
from swapformer.results.store import Store
from swapformer.study.comparison import Matching, combinations
from swapformer.study.config import overrides as texts
from swapformer.study.config.cost import once
from swapformer.study.config.hydra_errors import explained
from swapformer.study.launch.trial import Config
from swapformer.study.match import overrides as size_overrides
from swapformer.study.match import solve_as_built, unset
from swapformer.study.override_check import check_extra
from swapformer.study.plan import SEED_PLACEHOLDER, Composer, Plan, Setting, Template, real_composer
from swapformer.study.spec import Spec, claims_of


def expand(spec: Spec, extra: Sequence[str] = (), composer: Composer | None = None) -> Plan:
    """Compose, check and number the cells of a study; `extra` overrides win over the file's.

    Raises UsageError when an override is wrong, two arms are the same trial, no arm can take a value that is tuned, or
    the baseline, or every other arm, is impossible, or a claim compares losses of tokens that are not the same.
    """
    composer = composer or real_composer()
    check_extra(spec, extra)
    found = _Expansion(spec, composer, extra)
    for condition in spec.conditions:
        found.compose(condition)
    _require_comparison(spec, found.templates, found.impossible)
    _require_values(spec, found.templates, found.refused)
    _require_different(found.templates, composer)
    plan = Plan(
        spec, composer, tuple(found.templates), found.impossible, found.refused, found.matched,
        longest_trained=_longest_trained(found.templates, composer),
    )  # fmt: skip
    _check_metrics(plan)
    _require_one_unit(plan)
    return plan


def _longest_trained(templates: Sequence[Template], composer: Composer) -> int | None:
    """The longest length of training; None where nothing is trained, or arms or conditions differ in it."""
    if composer.measured_metrics(templates[0].config):
        return None
    lengths = {composer.task_of(each.config).longest_trained for each in templates}
    return lengths.pop() if len(lengths) == 1 else None


@dataclass(frozen=True)
class CostTarget:
    """The cost that an arm has with `setting` and so must have with every other; `solved` sets the matched size."""

    cost: int
    setting: Setting
    solved: tuple[str, ...] = ()


class _Expansion:
    """The configurations that have been composed so far."""

    def __init__(self, spec: Spec, composer: Composer, extra: Sequence[str]) -> None:
        self.spec, self.composer, self.extra = spec, composer, extra
        self._cost = once(composer.cost)
        self.templates: list[Template] = []
        self.impossible: dict[ArmCondition, str] = {}
        self.refused: dict[tuple[ArmCondition, Setting], str] = {}
        self.matched: dict[ArmCondition, MatchedSize] = {}
        self._names_checked = False

    def compose(self, condition: str) -> None:
        """All arms in a condition."""
        spec = self.spec
        overrides = [*spec.conditions[condition].overrides, *self._budget(condition)]
        texts_of = {arm: texts.merge(spec.overrides, overrides, own, self.extra) for arm, own in spec.arms.items()}
        target = self._level(spec.baseline, condition, texts_of[spec.baseline])
        self._require_baseline(condition)
        for arm, own in texts_of.items():
            level = target if arm == spec.baseline else self._level(arm, condition, own, target)
            if (arm, condition) not in self.impossible:
                self._settings(arm, condition, own, level)
        self._require_baseline(condition)

    def _budget(self, condition: str) -> tuple[str, ...]:
        """The tokens that every arm has at a rung of a ladder, by all parameters of the baseline there."""
        spec = self.spec
        if spec.ladder is None or spec.ladder.ratio is None:
            return ()
        own = texts.merge(spec.overrides, spec.conditions[condition].overrides, spec.arms[spec.baseline], self.extra)
        for template, reason in self._composed(spec.baseline, condition, own):
            if reason is None:
                count = self._cost(template.config, "params")
                return (f"budget.tokens={round(spec.ladder.ratio * count)}",)
            self.impossible[spec.baseline, condition] = reason
        self._require_baseline(condition)
        raise AssertionError("a baseline that cannot be composed was refused")

    def _level(
        self, arm: str, condition: str, own: Sequence[str], target: CostTarget | None = None
    ) -> CostTarget | None:
        """The cost that an arm must have, its size solved for the target if any, with its first possible setting.

        None where nothing is matched, and where the arm is impossible, which is noted.
        """
        matching = self.spec.match if target is None or self.spec.match is None else self.spec.match.of(arm)
        reasons = list[str]()
        if matching is None:
            return None
        for template, reason in self._composed(arm, condition, own):
            if reason is not None:
                reasons.append(reason)
                continue
            if target is not None:
                self._require_unset(template, matching.key)
            try:
                if target is None:
                    return CostTarget(self._cost(template.config, matching.measure), template.setting)
                matched, size = self._solved(matching, template, target.cost)
            except UsageError as error:
                reasons = [str(error)]
                break
            self.matched[template.arm_condition] = matched
            return CostTarget(matched.cost, template.setting, size)
        self.impossible[arm, condition] = reasons[0]
        return None

    def _require_unset(self, template: Template, key: str) -> None:
        """Refuse an arm that sets what the size would take the place of."""
        for other in map(texts.key, unset(template.config, key)):
            if texts.value(self.spec.arms[template.arm], other) is not None:
                raise UsageError(
                    f"arm {template.arm!r} must not set {other}, which {key} takes the place of, and `match` solves "
                    f"that; take {other} out of the arm, or match another size"
                )

    def _solved(self, matching: Matching, template: Template, target: int) -> tuple[MatchedSize, tuple[str, ...]]:
        """The size with which an arm costs what the baseline does, and the overrides that set it."""

        def compose(size: tuple[str, ...]) -> Config:
            return self._config(template.arm, texts.merge(template.overrides, size))

        found = solve_as_built(matching, template.config, target, self._cost, compose)
        return found, size_overrides(found, template.config)

    def _settings(self, arm: str, condition: str, own: Sequence[str], level: CostTarget | None) -> None:
        """A template for every setting of what is tuned that the arm can have."""
        reasons: dict[tuple[ArmCondition, Setting], str] = {}
        before = len(self.templates)
        for template, reason in self._composed(arm, condition, texts.merge(own, level.solved if level else ())):
            if reason is not None:
                reasons[template.arm_condition, template.setting] = reason
                continue
            if level is not None:
                self._require_level(template, level)
            self.templates.append(template)
        if len(self.templates) == before:
            self.impossible[arm, condition] = next(iter(reasons.values()))
        else:
            self.refused |= reasons

    def _composed(self, arm: str, condition: str, own: Sequence[str]) -> Iterator[tuple[Template, str | None]]:
        """Every setting of what is tuned, and why the arm cannot have it (None: it can)."""
        passed: Config | None = None
        for setting in combinations(self.spec.tune.values if self.spec.tune else None):
            overrides = texts.merge(own, setting)
            template = Template(arm, condition, setting, tuple(overrides), self._config(arm, overrides))
            self._check_names(template)
            try:
                self.composer.check(template.config, passed, self._has_result(template))
            except UsageError as error:
                yield template, str(error)
            else:
                passed = template.config
                yield template, None

    def _has_result(self, template: Template) -> bool:
        """Whether a trial of the first seed, or of the first that settings are chosen on, has its result."""
        trials = [template.trial(self.spec.seeds[0], self.composer)]
        if self.spec.tune is not None:
            trials.append(template.without_probes.trial(self.spec.tune.seeds[0], self.composer))
        records = (Store(template.config["runs_dir"]).peek(trial.id) for trial in trials)
        return any(record is not None and record.final for record in records)

    def _check_names(self, template: Template) -> None:
        """Refuse a wrong name of a metric before the first check, whose optimiser takes a second to import."""
        if self._names_checked or template.arm != self.spec.baseline or template.config.get("measure"):
            return
        self._names_checked = True
        try:
            task = self.composer.task_of(template.config)
        except UsageError:  # the check says it, and what it is about
            return
        _check_evaluations(self.spec, task)

    def _require_level(self, template: Template, level: CostTarget) -> None:
        """Arms may choose different settings, so that what is matched must hold with each of them."""
        assert self.spec.match is not None, "there is a level where something is matched"
        measure = self.spec.match.measure
        name = arm_name(*template.arm_condition)
        try:
            cost = self._cost(template.config, measure)
        except UsageError as error:
            raise UsageError(f"arm {name} with {', '.join(template.setting)} cannot be matched: {error}") from None
        if cost != level.cost:
            keys = [texts.key(one) for one, other in zip(template.setting, level.setting, strict=True) if one != other]
            raise UsageError(
                f"`tune` must leave the {UNITS[measure]} that `match` makes equal as they are, but arm {name} has "
                f"{cost:,} with {', '.join(template.setting)} and {level.cost:,} with {', '.join(level.setting)}; tune "
                f"what costs nothing, such as optim.lr, and put {', '.join(keys)} into `grid`: it is matched there"
            )

    def _config(self, arm: str, overrides: Sequence[str]) -> Config:
        with explained(overrides, f"arm {arm!r}: "):
            return self.composer.compose([*overrides, f"seed={SEED_PLACEHOLDER}"])

    def _require_baseline(self, condition: str) -> None:
        if reason := self.impossible.get((self.spec.baseline, condition)):
            where = f" with {condition}" if condition else ""
            raise UsageError(f"the baseline {self.spec.baseline!r} cannot be built{where}: {reason}")


def _require_comparison(spec: Spec, templates: Sequence[Template], impossible: Mapping[ArmCondition, str]) -> None:
    """Refuse a study of several arms of which only the baseline is left."""
    if len(spec.arms) == 1 or any(each.arm != spec.baseline for each in templates):
        return
    arms_of: dict[str, list[str]] = {}
    for (arm, _), reason in impossible.items():
        arms_of.setdefault(reason, []).append(arm)
    reasons = "; ".join(f"{', '.join(dict.fromkeys(arms))}: {reason}" for reason, arms in arms_of.items())
    raise UsageError(f"a study needs an arm other than its baseline {spec.baseline!r}, but none is possible: {reasons}")


def _require_values(
    spec: Spec, templates: Sequence[Template], refused: Mapping[tuple[ArmCondition, Setting], str]
) -> None:
    """Refuse a value of what is tuned that no arm can take."""
    taken = {override for each in templates for override in each.setting}
    for key, values in (spec.tune.values if spec.tune else {}).items():
        for override in (f"{key}={value}" for value in values):
            if override not in taken:
                reason = next(reason for (_, setting), reason in refused.items() if override in setting)
                raise UsageError(f"no arm can take {override}, which `tune` lists: {reason}")


def _require_different(templates: Sequence[Template], composer: Composer) -> None:
    first: dict[str, Template] = {}
    for each in templates:
        other = first.setdefault(each.trial(SEED_PLACEHOLDER, composer).id, each)
        if other.arm != each.arm:
            raise UsageError(f"arms must differ, but {other.arm!r} and {each.arm!r} are the same trial; remove one")
        if other is not each:
            names = [" with ".join(filter(None, (one.arm, one.condition, *one.setting))) for one in (other, each)]
            raise UsageError(f"{names[0]} and {names[1]} must differ, but are the same trial; remove one value")


def _check_metrics(plan: Plan) -> None:
    """Refuse a metric that no trial of the study could have, before hours are spent."""
    measured = plan.composer.measured_metrics(plan.shared_config)
    if not measured:
        _check_evaluations(plan.spec, plan.composer.task_of(plan.shared_config))
    for metric in plan.spec.metrics:
        if metric in plan.spec.derive:
            continue
        split = metric.partition("/")[0]
        if measured:
            if metric not in measured:
                raise UsageError(f"this measurement gives no metric {metric!r}{suggest(metric, measured)}")
        elif split == "probe":
            probes = plan.shared_config.get("probes")
            if not probes:
                raise UsageError(f"the metric {metric} needs a probe: put probes=… into the study's `overrides`")
            moments = {moment for settings in probes.values() for moment in moments_of(settings)}
            if (moment := split_moment(metric)[1]) not in moments:
                raise UsageError(
                    f"the metric {metric} is measured {moment_text(moment)}, when no probe of the study looks; put "
                    f"probes.NAME.at=[{moment}, …] into its `overrides`"
                )
        elif split not in ("val", "test") and metric != UTILISATION:
            raise UsageError(
                f"a metric begins with val/, test/ or probe/, or is {UTILISATION}, but {metric!r} is none of these; "
                "others are measured: put measure=… into the study's `overrides`"
            )


def _check_evaluations(spec: Spec, task: Any) -> None:
    """Refuse a metric of an evaluation that a task does not have."""
    for metric in dict.fromkeys([*spec.metrics, *([spec.tuned_by] if spec.tune else [])]):
        split, _, name = metric.partition("/")
        if metric in spec.derive or split not in ("val", "test"):
            continue
        known = {f"{base}{part.name}" for part in task.evaluation(split) for base in task.directions}
        known |= set(task.summaries)
        if name not in known:
            raise UsageError(f"no metric {metric!r} in this task{suggest(metric, {f'{split}/{k}' for k in known})}")


def _require_one_unit(plan: Plan) -> None:
    """Refuse a claim on what is counted per token between arms, or conditions, whose tokens are not the same."""
    from swapformer.report.derive import derivations  # late: it brings NumPy

    tasks = {each.arm_condition: plan.composer.task_of(each.config) for each in plan.templates}
    if len({task.unit for task in tasks.values()}) == 1:
        return
    derived: dict[str, list[str]] = {}
    for each in derivations(plan.spec.derive):
        inputs = each.inputs if each.LIKE_INPUTS else []
        derived[each.name] = [name for held in inputs for name in derived.get(held, [held])]
    compared = [
        ([cell for cell in sorted(claim.cells(condition, ())) if cell in tasks], metric)
        for claim in claims_of(plan.spec)
        for condition in plan.spec.conditions
        for stated in claim.metrics
        for metric in derived.get(stated, [stated])
    ]
    for cells, metric in compared:
        for first, other in ((cells[0], each) for each in cells[1:]):
            one, two = tasks[first], tasks[other]
            if one.unit == two.unit:
                continue
            lossy = [arm_name(*cell) for cell in (first, other) if not _writes_all(tasks[cell])]
            if lossy and _is_per_byte(metric):
                raise UsageError(
                    f"{metric} counts each <unk> as one byte, so it cannot compare tokenisers where one leaves "
                    f"characters out, as that of {lossy[0]} does; set task.tokeniser.min_count=1 there, or use one "
                    "tokeniser in both"
                )
            if _is_per_token(one, metric):
                split, _, name = metric.partition("/")
                known = not lossy and "bits_per_byte" in one.directions and "bits_per_byte" in two.directions
                whole = not any(map(_skips_first_tokens, (one, two)))
                instead = f"{split}/bits_per_byte{''.join(name.partition('@')[1:])}"
                remedy = f"compare {instead}, which counts bytes of text" if known else "use one tokeniser in both"
                if known and not whole:
                    remedy += (
                        ", with task.packing=blocks: the first tokens of documents, which are not asked for, differ"
                    )
                raise UsageError(
                    f"a claim must compare like with like, but {metric} is counted per token, and the tokens of "
                    f"{arm_name(*first)} and {arm_name(*other)} are not the same; {remedy}"
                )


def _skips_first_tokens(task: Any) -> bool:
    """Whether the first token of each document is no target, which is more of the text where tokens are longer."""
    return task.predicts_next and getattr(task, "packing", "blocks") == "documents"


def _is_per_token(task: Any, metric: str) -> bool:
    """Whether a metric of a task is an average over tokens, whatever they are."""
    metric = metric.removeprefix("log(").removeprefix("capped(").removesuffix(")")
    split, _, name = metric.partition("/")
    readouts = task.interface.readouts
    answer = next((one for one in readouts if one and name.startswith(f"{one}_")), MAIN)
    per_position = readouts[answer].per == "position"
    per_byte = _is_per_byte(metric) and not _skips_first_tokens(task)
    return split in ("val", "test") and per_position and not per_byte


def _is_per_byte(metric: str) -> bool:
    return metric.partition("/")[2].partition("@")[0] == "bits_per_byte"


def _writes_all(task: Any) -> bool:
    """Whether every character of a task's texts has a token."""
    tokeniser = getattr(task, "tokeniser", None)
    return tokeniser is None or tokeniser.learned.unknown is None
