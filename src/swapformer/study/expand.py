"""Arms × seeds → trials, composing each arm once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from swapformer.errors import UsageError, suggest
from swapformer.study import overrides as texts
from swapformer.study.complaint import explained
from swapformer.study.spec import Spec
from swapformer.study.trial import Config, Trial

# An arm is composed once, with this seed, which is then replaced wherever it went: composing takes a hundred times
# longer than replacing. Any number that no config holds by chance will do.
_STANDIN = 2_147_483_629


class Composer(Protocol):
    """What an expansion needs of `swapformer.study.config`."""

    RESULTS_EPOCH: int

    def compose(self, overrides: Sequence[str]) -> Config: ...
    def check(self, config: Config) -> None: ...
    def trial_id(self, config: Config) -> str: ...
    def environment_class(self, config: Config) -> dict[str, Any]: ...
    def task_of(self, config: Config) -> Any: ...


@dataclass(frozen=True)
class Cell:
    """One arm with one seed."""

    arm: str
    seed: int
    trial: Trial
    overrides: tuple[str, ...]
    """What the trial's config is composed from, seed included: what a Hydra launcher is given."""


@dataclass(frozen=True)
class Plan:
    """A study ready to run: its cells, and the arms that cannot be built with the reason."""

    spec: Spec
    cells: tuple[Cell, ...]
    impossible: Mapping[str, str] = field(default_factory=dict)
    longest_trained: int | None = None

    @property
    def trials(self) -> list[Trial]:
        """The distinct trials, seed by seed, so that every arm has results early."""
        cells = sorted(self.cells, key=lambda cell: self.spec.seeds.index(cell.seed))
        return list({cell.trial.id: cell.trial for cell in cells}.values())

    @property
    def shared_config(self) -> Config:
        """The baseline's resolved config, of the first seed."""
        return next(cell.trial.config for cell in self.cells if cell.arm == self.spec.baseline)


def expand(spec: Spec, extra: Sequence[str] = (), composer: Composer | None = None) -> Plan:
    """Compose, check and number the cells of a study; `extra` overrides win over the file's.

    Raises UsageError when an override is wrong, two arms are the same trial, or the baseline is impossible.
    """
    composer = composer or _config()
    if texts.value(extra, "seed") is not None:
        raise UsageError("a study's seeds are set by `seeds`, not by seed=…; give seeds=8 or seeds=[0,1]")
    cells: list[Cell] = []
    impossible: dict[str, str] = {}
    for arm, own in spec.arms.items():
        overrides = texts.merge(spec.overrides, own, extra)
        with explained(overrides, f"arm {arm!r}: "):
            template = composer.compose([*overrides, f"seed={_STANDIN}"])
        try:
            composer.check(template)
        except UsageError as error:
            impossible[arm] = str(error)
            continue
        for seed in spec.seeds:
            config = _with_seed(template, seed)
            cells.append(Cell(arm, seed, make_trial(config, composer), (*overrides, f"seed={seed}")))
    if spec.baseline in impossible:
        raise UsageError(f"the baseline {spec.baseline!r} cannot be built: {impossible[spec.baseline]}")
    _require_different(cells)
    plan = Plan(spec, tuple(cells), impossible, composer.task_of(cells[0].trial.config).longest_trained)
    _check_metrics(plan, composer)
    return plan


def make_trial(config: Config, composer: Composer | None = None) -> Trial:
    """The trial of a resolved config."""
    composer = composer or _config()
    return Trial(
        id=composer.trial_id(config),
        config=config,
        environment=composer.environment_class(config),
        data=config["data"],
        results_epoch=composer.RESULTS_EPOCH,
    )


def _config() -> Composer:
    """Imported late: it brings torch."""
    from swapformer.study import config

    return cast(Composer, config)


def _require_different(cells: Sequence[Cell]) -> None:
    first: dict[str, Cell] = {}
    for cell in cells:
        other = first.setdefault(cell.trial.id, cell)
        if other.arm != cell.arm:
            raise UsageError(f"arms must differ, but {other.arm!r} and {cell.arm!r} are the same trial; remove one")


def _check_metrics(plan: Plan, composer: Composer) -> None:
    """Refuse a metric that no trial of the study could have, before hours are spent."""
    task = composer.task_of(plan.shared_config)
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


def _with_seed(node: Any, seed: int) -> Any:
    if isinstance(node, dict):
        return {key: _with_seed(value, seed) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_seed(value, seed) for value in node]
    if isinstance(node, str):
        return node.replace(str(_STANDIN), str(seed))
    return seed if node == _STANDIN and not isinstance(node, bool) else node
