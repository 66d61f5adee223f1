"""The plan of a study: its composed configurations, and the trials that follow from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Protocol, cast

from swapformer.results.arms import ArmCondition, MatchedSize, Measure, arm_name
from swapformer.results.tuning import Choice
from swapformer.study.config import overrides as texts
from swapformer.study.launch.trial import Config, Trial
from swapformer.study.spec import Spec

SEED_PLACEHOLDER = 2_147_483_629
"""Templates are composed with this seed, which is then replaced wherever it went: composing takes a hundred times
longer than replacing. Any number that no config holds by chance will do."""

Setting = tuple[str, ...]
"""One override for each key that is tuned; empty where nothing is."""


class Composer(Protocol):
    """The functions of `swapformer.study.config.compose` that an expansion needs."""

    RESULTS_EPOCH: int

    def compose(self, overrides: Sequence[str]) -> Config: ...
    def check(self, config: Config, like: Config | None = None, trained: bool = False) -> None: ...
    def trial_id(self, config: Config) -> str: ...
    def environment_class(self, config: Config) -> dict[str, Any]: ...
    def task_of(self, config: Config) -> Any: ...
    def cost(self, config: Mapping[str, Any], what: Measure) -> int: ...
    def flops_of_a_step(self, config: Mapping[str, Any]) -> int: ...
    def seconds_of_a_step(self, config: Mapping[str, Any]) -> float: ...
    def bytes_of_a_step(self, config: Mapping[str, Any]) -> int: ...
    def shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]: ...
    def at_share(self, config: Mapping[str, Any], share: float) -> list[str]: ...
    def measured_metrics(self, config: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def same_training(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None: ...


def real_composer() -> Composer:
    """The composer that composes by Hydra. Imported late: it brings torch."""
    from swapformer.study.config import compose

    return cast(Composer, compose)


@dataclass(frozen=True)
class Template:
    """An arm in a condition with a setting of what is tuned: composed, with a placeholder for the seed."""

    arm: str
    condition: str
    setting: Setting
    overrides: tuple[str, ...]
    config: Config
    _trials: dict[int, Trial] = field(init=False, repr=False, compare=False, default_factory=dict)
    _shorter: dict[float, Template] = field(init=False, repr=False, compare=False, default_factory=dict)

    def trial(self, seed: int, composer: Composer) -> Trial:
        """The trial of a seed, made once."""
        if seed not in self._trials:
            config = with_seed(self.config, seed)
            self._trials[seed] = make_trial(config, composer, (*self.overrides, f"seed={seed}"))
        return self._trials[seed]

    @cached_property
    def without_probes(self) -> Template:
        """The same without probes, as trials that choose settings are asked for."""
        return replace(self, config={**self.config, "probes": {}})

    def with_setting(self, setting: Setting, composer: Composer) -> Template:
        """The same arm with another setting of what is tuned. Raises UsageError where it cannot have that."""
        return self._with(setting, setting, composer)

    def shorter(self, share: float, composer: Composer) -> Template:
        """The same without probes at a share of the steps, with a schedule of its own: its warm-up is shorter too."""
        if share not in self._shorter:
            made = self._with(composer.at_share(self.config, share), self.setting, composer)
            self._shorter[share] = made.without_probes
        return self._shorter[share]

    def _with(self, changes: Sequence[str], setting: Setting, composer: Composer) -> Template:
        overrides = texts.merge(self.overrides, changes)
        config = composer.compose([*overrides, f"seed={SEED_PLACEHOLDER}"])
        composer.check(config, self.config)
        return Template(self.arm, self.condition, setting, tuple(overrides), config)

    @property
    def arm_condition(self) -> ArmCondition:
        """The arm in its condition."""
        return self.arm, self.condition

    @property
    def text(self) -> str:
        """What is tuned, in the words of overrides."""
        return " ".join(self.setting)

    @property
    def values(self) -> Mapping[str, str]:
        """Key → value of what is tuned."""
        return texts.values(self.setting)


@dataclass(frozen=True)
class Attempt:
    """A setting that an arm is tried with, and its trials on the tuning seeds: at a `share` of the steps, only one."""

    template: Template
    trials: tuple[Trial, ...]
    share: float = 1.0


@dataclass(frozen=True)
class PlannedTrial:
    """One arm with one seed in one condition, and the trial that answers it."""

    arm: str
    seed: int
    trial: Trial
    condition: str = ""


@dataclass(frozen=True)
class Plan:
    """The trials that a study runs.

    Attributes:
        templates: all that was composed, condition by condition, arm by arm, setting by setting.
        impossible: the arms that cannot be built, or not made to cost what the baseline does, with the reason.
        refused: of what is tuned, the settings that an arm cannot have, with the reason.
        matched: what arms cost after their size was solved.
        longest_trained: the longest length in training; None where arms or conditions differ in it.
        chosen: the setting of each arm, once its tuning trials have their results.
        searched: what a search in two stages has asked for until now; None before it begins, and without one.
        reach: how many seeds each arm has in a sequential study, where it is more than at the first look.
    """

    spec: Spec
    composer: Composer
    templates: tuple[Template, ...]
    impossible: Mapping[ArmCondition, str] = field(default_factory=dict)
    refused: Mapping[tuple[ArmCondition, Setting], str] = field(default_factory=dict)
    matched: Mapping[ArmCondition, MatchedSize] = field(default_factory=dict)
    longest_trained: int | None = None
    chosen: Mapping[ArmCondition, Choice] = field(default_factory=dict)
    searched: tuple[Attempt, ...] | None = None
    reach: Mapping[ArmCondition, int] = field(default_factory=dict)

    @cached_property
    def reported(self) -> tuple[Template, ...]:
        """The reported templates, one for each arm and condition; none for an arm that is still to be tuned."""
        if self.spec.tune is None:
            return self.templates
        chosen = {where: choice.values for where, choice in self.chosen.items()}
        return tuple(each for each in self.templates if chosen.get(each.arm_condition) == each.values)

    @cached_property
    def cells(self) -> tuple[PlannedTrial, ...]:
        """The trials that the report is about."""
        return tuple(
            PlannedTrial(each.arm, seed, trial, each.condition)
            for each in self.reported
            for seed, trial in zip(self.spec.seeds, self.trials_of(each), strict=False)
        )

    def trials_of(self, template: Template) -> tuple[Trial, ...]:
        """The trials that the report is about if an arm has this setting, seed by seed, as far as it came to."""
        first = self.spec.looks[0] if self.spec.looks else len(self.spec.seeds)
        seeds = self.spec.seeds[: self.reach.get(template.arm_condition, first)]
        return tuple(template.trial(seed, self.composer) for seed in seeds)

    @property
    def possible_cells(self) -> tuple[PlannedTrial, ...]:
        """The trials that the report could be about: every seed of every setting that could be chosen."""
        return tuple(
            PlannedTrial(each.arm, seed, each.trial(seed, self.composer), each.condition)
            for each in self.templates
            for seed in self.spec.seeds
        )

    @cached_property
    def tuning(self) -> tuple[Attempt, ...]:
        """What is tried on the tuning seeds, as far as it is known: a search in two stages goes on from its results."""
        if self.spec.tune is None:
            return ()
        if self.searched is not None:
            return self.searched
        return tuple(self.attempt(each, self.spec.tune.first_stage is not None) for each in self.templates)

    def attempt(self, template: Template, first: bool = False) -> Attempt:
        """The trials of a setting on the tuning seeds, without probes: all of them, or the one of the first stage."""
        tune = self.spec.tune
        assert tune is not None, "only a study that tunes tries settings"
        if first and tune.first_stage is not None:
            short = template.shorter(tune.first_stage, self.composer)
            return Attempt(template, (short.trial(tune.seeds[0], self.composer),), tune.first_stage)
        plain = template.without_probes
        return Attempt(template, tuple(plain.trial(seed, self.composer) for seed in tune.seeds))

    @property
    def trials(self) -> list[Trial]:
        """The distinct trials that are reported, seed by seed, so that every arm has results early."""
        order = {seed: index for index, seed in enumerate(self.spec.seeds)}
        cells = sorted(self.cells, key=lambda cell: order[cell.seed])
        return list({cell.trial.id: cell.trial for cell in cells}.values())

    @property
    def tuning_trials(self) -> list[Trial]:
        """The distinct trials that settings are chosen by, seed by seed."""
        columns = zip_longest(*(each.trials for each in self.tuning))
        return list({trial.id: trial for column in columns for trial in column if trial is not None}.values())

    @property
    def names(self) -> dict[str, str]:
        """Id → `h8 seed 3` of the trials that run; one by which a setting is chosen has the setting too."""
        named = {each.trial.id: _name(each.arm, each.condition, (), each.seed) for each in self.cells}
        seeds = self.spec.tune.seeds if self.spec.tune else ()
        for each in self.tuning:
            of, stage = each.template, ("first stage",) if each.share < 1 else ()
            tried = zip(seeds, each.trials, strict=False)
            named |= {trial.id: _name(of.arm, of.condition, (*of.setting, *stage), seed) for seed, trial in tried}
        return named

    @property
    def one_each(self) -> list[Template]:
        """A template for each arm and condition: the chosen one, or the first before anything is chosen."""
        found = {each.arm_condition: each for each in reversed(self.templates)}
        found |= {each.arm_condition: each for each in self.reported}
        return [found[where] for where in dict.fromkeys(each.arm_condition for each in self.templates)]

    def id_of(self, template: Template) -> str:
        """The id of what a template trains, whatever the seed."""
        return template.trial(SEED_PLACEHOLDER, self.composer).id

    @property
    def possible_trials(self) -> list[Trial]:
        """One trial of each setting that could be asked for: what launchers need to know of sizes and devices."""
        return [each.trial(self.spec.seeds[0], self.composer) for each in self.templates]

    @property
    def shared_config(self) -> Config:
        """The baseline's resolved config, in the first condition and of the first seed."""
        baseline = [each for each in self.templates if each.arm == self.spec.baseline]
        reported = [each for each in self.reported if each.arm == self.spec.baseline]
        return with_seed((reported or baseline)[0].config, self.spec.seeds[0])

    def with_seeds_at_look(self, seeds: int, arms: Collection[ArmCondition] | None) -> Plan:
        """The plan with the first `seeds` seeds of some arms in their conditions, or of all."""
        chosen = {each.arm_condition for each in self.templates if arms is None or each.arm_condition in arms}
        return replace(self, reach={**self.reach, **dict.fromkeys(chosen, seeds)})


def _name(arm: str, condition: str, setting: Setting, seed: int) -> str:
    return " ".join([arm_name(arm, condition), *setting, f"seed {seed}"])


def make_trial(config: Config, composer: Composer | None = None, overrides: tuple[str, ...] = ()) -> Trial:
    """The trial of a resolved config."""
    composer = composer or real_composer()
    return Trial(
        id=composer.trial_id(config),
        config=config,
        environment=composer.environment_class(config),
        data=config["data"],
        results_epoch=composer.RESULTS_EPOCH,
        overrides=overrides,
    )


def with_seed(node: Any, seed: int) -> Any:
    """A node that was composed with the placeholder, with a seed in its where."""
    if isinstance(node, dict):
        return {key: with_seed(value, seed) for key, value in node.items()}
    if isinstance(node, list):
        return [with_seed(value, seed) for value in node]
    if isinstance(node, str):
        return node.replace(str(SEED_PLACEHOLDER), str(seed))
    return seed if node == SEED_PLACEHOLDER and not isinstance(node, bool) else node
