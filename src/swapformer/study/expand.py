"""Arms × conditions × settings → templates, each composed and checked once."""

from __future__ import annotations

from collections.abc import Sequence

from swapformer.errors import UsageError, suggest
from swapformer.study import overrides as texts
from swapformer.study import roles
from swapformer.study.complaint import explained
from swapformer.study.dropped import require_comparison, require_values
from swapformer.study.fairness import combinations
from swapformer.study.match import Matched, solve
from swapformer.study.plan import STANDIN, Cell, Composer, Place, Plan, Setting, Template, make_trial, real_composer
from swapformer.study.spec import Spec
from swapformer.study.trial import Config

__all__ = ["Cell", "Plan", "expand", "make_trial"]


def expand(spec: Spec, extra: Sequence[str] = (), composer: Composer | None = None) -> Plan:
    """Compose, check and number the cells of a study; `extra` overrides win over the file's.

    Raises UsageError when an override is wrong, two arms are the same trial, no arm can take a value that is tuned, or
    the baseline, or every other arm, is impossible.
    """
    composer = composer or real_composer()
    if texts.value(extra, "seed") is not None:
        raise UsageError("a study's seeds are set by `seeds`, not by seed=…; give seeds=8 or seeds=[0,1]")
    roles.require_free(spec, extra, "the command line")
    found = _Expansion(spec, composer, extra)
    for condition, overrides in spec.conditions.items():
        found.compose(condition, overrides)
    require_comparison(spec, found.templates, found.impossible)
    require_values(spec, found.templates, found.refused)
    _require_different(found.templates, composer)
    longest = composer.task_of(found.templates[0].config).longest_trained
    plan = Plan(
        spec, composer, tuple(found.templates), found.impossible, found.refused, found.matched, longest_trained=longest
    )
    _check_metrics(plan)
    return plan


class _Expansion:
    """What has been composed so far."""

    def __init__(self, spec: Spec, composer: Composer, extra: Sequence[str]) -> None:
        self.spec, self.composer, self.extra = spec, composer, extra
        self.templates: list[Template] = []
        self.impossible: dict[Place, str] = {}
        self.refused: dict[tuple[Place, Setting], str] = {}
        self.matched: dict[Place, Matched] = {}

    def compose(self, condition: str, overrides: Sequence[str]) -> None:
        """All arms in a condition."""
        spec = self.spec
        texts_of = {arm: texts.merge(spec.overrides, overrides, own, self.extra) for arm, own in spec.arms.items()}
        target = self._target(condition, texts_of[spec.baseline])
        for arm, own in texts_of.items():
            solved: tuple[str, ...] = ()
            if spec.match is not None and arm != spec.baseline:
                config = self._config(arm, own)
                try:
                    self.composer.check(config)
                    self.matched[arm, condition] = solve(spec.match, config, target, self.composer.cost)
                except UsageError as error:
                    self.impossible[arm, condition] = str(error)
                    continue
                solved = self.matched[arm, condition].override
            self._settings(arm, condition, texts.merge(own, solved))
        if reason := self.impossible.get((spec.baseline, condition)):
            raise self._no_baseline(condition, reason)

    def _target(self, condition: str, own: Sequence[str]) -> int:
        """What the baseline costs, where others are to cost the same."""
        if self.spec.match is None:
            return 0
        config = self._config(self.spec.baseline, own)
        try:
            self.composer.check(config)
            return self.composer.cost(config, self.spec.match.measure)
        except UsageError as error:
            raise self._no_baseline(condition, str(error)) from None

    def _settings(self, arm: str, condition: str, own: Sequence[str]) -> None:
        """A template for every setting of what is tuned that the arm can have."""
        reasons: dict[tuple[Place, Setting], str] = {}
        before = len(self.templates)
        for setting in combinations(self.spec.tune.values if self.spec.tune else None):
            overrides = texts.merge(own, setting)
            config = self._config(arm, overrides)
            try:
                self.composer.check(config)
            except UsageError as error:
                reasons[(arm, condition), setting] = str(error)
                continue
            self.templates.append(Template(arm, condition, setting, tuple(overrides), config))
        if len(self.templates) == before:
            self.impossible[arm, condition] = next(iter(reasons.values()))
        else:
            self.refused |= reasons

    def _config(self, arm: str, overrides: Sequence[str]) -> Config:
        with explained(overrides, f"arm {arm!r}: "):
            return self.composer.compose([*overrides, f"seed={STANDIN}"])

    def _no_baseline(self, condition: str, reason: str) -> UsageError:
        where = f" with {condition}" if condition else ""
        return UsageError(f"the baseline {self.spec.baseline!r} cannot be built{where}: {reason}")


def _require_different(templates: Sequence[Template], composer: Composer) -> None:
    first: dict[str, Template] = {}
    for each in templates:
        other = first.setdefault(composer.trial_id(each.config), each)
        if other.arm != each.arm:
            raise UsageError(f"arms must differ, but {other.arm!r} and {each.arm!r} are the same trial; remove one")
        if other is not each:
            names = [" with ".join(filter(None, (one.arm, one.condition, *one.setting))) for one in (other, each)]
            raise UsageError(f"{names[0]} and {names[1]} must differ, but are the same trial; remove one value")


def _check_metrics(plan: Plan) -> None:
    """Refuse a metric that no trial of the study could have, before hours are spent."""
    task = plan.composer.task_of(plan.shared_config)
    for metric in plan.spec.metrics:
        split, _, name = metric.partition("/")
        if split == "probe":
            if not plan.shared_config.get("probes"):
                raise UsageError(f"the metric {metric} needs a probe: put probes=… into the study's `overrides`")
        elif split in ("val", "test"):
            known = {f"{base}{part.name}" for part in task.evaluation(split) for base in task.directions}
            known |= set(task.summaries)
            if name not in known:
                raise UsageError(f"no metric {metric!r} in this task{suggest(metric, {f'{split}/{k}' for k in known})}")
        else:
            raise UsageError(f"a metric begins with val/, test/ or probe/, but {metric!r} does not")
