"""Parts of a study file other than its arms: `tune`, `match`, `grid` and `seeds`, parsed and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from swapformer.errors import UsageError, quote, suggest
from swapformer.results.arms import Measure
from swapformer.study.config import overrides as texts
from swapformer.yaml_reader import Spelled

FIRST_TUNING_SEED = 1_000_000
"""Tuning seeds begin here unless they are named: no study reports seeds as large."""
TUNING_SEEDS = 3
_OF_TUNE = ("seeds", "first_stage", "metric")
"""The keys of `tune` that are no settings."""
MOST_TRIALS = 100_000
"""A study with more is an error of typing, or several studies."""
MATCH_TOLERANCE = 0.05
"""The relative difference of cost that a match may leave, unless the study says `within`."""

Values = Mapping[str, tuple[str, ...]]
"""Key → the values that it takes, in the words of overrides."""


@dataclass(frozen=True)
class SearchSpace:
    """The settings of `tune`: each arm gets the best of them, chosen on seeds that are not reported.

    `first_stage`: the share of the steps at which all settings are tried with one seed first; then the best one and its
    neighbours are tried at all of them. None: all settings are tried at all steps. `metric`: what chooses; empty: see
    `Spec.tuned_by`.
    """

    values: Values
    seeds: tuple[int, ...]
    first_stage: float | None = None
    metric: str = ""


@dataclass(frozen=True)
class Matching:
    """Each arm's `key` is solved so that it costs what the baseline does, to within a fraction `within`.

    `arms`: arm → its own key, where that is not the same for all; arms without one are left as they are.
    """

    measure: Measure
    key: str
    within: float
    arms: Mapping[str, str] | None = None

    def of(self, arm: str) -> Matching | None:
        """The number that is solved for an arm; None where nothing is."""
        if self.arms is None:
            return self
        return Matching(self.measure, self.arms[arm], self.within) if arm in self.arms else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are solved for some arm."""
        return (self.key,) if self.arms is None else tuple(dict.fromkeys(self.arms.values()))


def combinations(values: Values | None) -> list[tuple[str, ...]]:
    """Every combination as overrides, the last key varying fastest; one without overrides where there is nothing."""
    keys = [[f"{key}={value}" for value in choices] for key, choices in (values or {}).items()]
    return list(product(*keys))


def require_one_role(roles: Mapping[str, Collection[str]]) -> None:
    """Refuse a key that two of `tune`, `match` and `grid` set."""
    role_of: dict[str, str] = {}
    for role, keys in roles.items():
        for key in keys:
            if key in role_of:
                raise UsageError(f"{key} must have one role, but `{role_of[key]}` and `{role}` both set it")
            role_of[key] = role


def require_free(roles: Mapping[str, Collection[str]], overrides: Sequence[str], where: str) -> None:
    """Refuse overrides of a key that `tune` or `grid` sets."""
    for role, keys in roles.items():
        for key in keys:
            if role != "match" and texts.value(overrides, key) is not None:
                raise UsageError(f"{where} must not set {key}, which `{role}` sets for all arms; take it out of one")


def require_keys(raw: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    """Raise UsageError for a key that a mapping of the study file cannot have."""
    for name in raw:
        if name not in known:
            raise UsageError(f"unknown key {quote(name)} in {where}{suggest(str(name), known)}")


def parse_tune(raw: object) -> SearchSpace | None:
    """`{optim.lr: [3e-4, 1e-3, 3e-3], seeds: 3, first_stage: 0.25, metric: val/loss}`; `seeds`: a number or a list."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise UsageError(
            f"`tune` must map keys to the values to try, such as {{optim.lr: [3e-4, 1e-3]}}, not {quote(raw)}"
        )
    seeds = raw.get("seeds", TUNING_SEEDS)
    numbered = isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1
    _require_few(seeds if numbered else 0, "`seeds` of `tune`")
    chosen = tuple(FIRST_TUNING_SEED + i for i in range(seeds)) if numbered else _seed_list(seeds)
    values = _values({key: held for key, held in raw.items() if key not in _OF_TUNE}, "tune")
    metric = raw.get("metric", "")
    if not isinstance(metric, str) or (metric and not metric.startswith("val/")):
        raise UsageError(f"`metric` of `tune` must be one of validation, such as val/loss, not {quote(metric)}")
    share = raw.get("first_stage")
    if share is not None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise UsageError(
                "`first_stage` of `tune` must be a share of the steps above 0 and below 1, such as 0.25, not "
                f"{quote(share)}"
            )
        _require_numbers(values)
    return SearchSpace(values, chosen, None if share is None else float(share), metric)


def _require_numbers(values: Values) -> None:
    """A first stage looks at the neighbours of the best value."""
    for key, choices in values.items():
        if any(number(choice) is None for choice in choices):
            raise UsageError(
                f"`first_stage` of `tune` looks at the neighbours of the best value, so {key} must have numbers, not "
                f"{', '.join(choices)}; leave `first_stage` out"
            )


def parse_grid(raw: object) -> Values | None:
    """`{model/size: [nano, micro]}`."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise UsageError(f"`grid` must map keys to values, such as {{model/size: [nano, micro]}}, not {quote(raw)}")
    return _values(raw, "grid")


def parse_match(raw: object) -> Matching | None:
    """`{params: model.ffn.width, within: 0.05}`; `{pairs: {window: model.pattern.before}}` for some arms only."""
    if raw is None:
        return None
    measures = get_args(Measure)
    if not isinstance(raw, dict):
        raise UsageError(f"`match` must name a cost and a size, such as {{params: model.ffn.width}}, not {quote(raw)}")
    for key in raw:
        if key not in (*measures, "within"):
            raise UsageError(f"`match` has no cost {quote(key)}{suggest(str(key), measures)}")
    named = [measure for measure in measures if measure in raw]
    given = raw[named[0]] if len(named) == 1 else None
    arms = {str(arm): key for arm, key in given.items()} if isinstance(given, dict) and given else None
    if not all(isinstance(key, str) and "/" not in key for key in (arms.values() if arms else [given])):
        raise UsageError(
            f"`match` must give exactly one of {', '.join(measures)} and the key of the size that is adjusted, such as "
            f"{{params: model.ffn.width}}, or of each arm's own, not {quote(raw)}"
        )
    within = raw.get("within", MATCH_TOLERANCE)
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 < within < math.inf:
        raise UsageError(f"`within` of `match` must be a fraction above 0, such as 0.05, not {quote(within)}")
    return Matching(named[0], "" if arms else str(given), float(within), arms)


def parse_seeds(raw: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Seeds, and the looks of a sequential study: `8` → 0 … 7; `[3, 5]`; `{looks: [8, 14, 20]}` → 0 … 19, looks."""
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 1:
        _require_few(raw, "`seeds`")
        return tuple(range(raw)), ()
    if isinstance(raw, list):
        return _seed_list(raw), ()
    if isinstance(raw, dict) and list(raw) == ["looks"]:
        looks = raw["looks"]
        if not isinstance(looks, list) or not looks or looks != sorted(set(_whole(looks))) or looks[0] < 2:
            raise UsageError(
                f"`looks` must be growing numbers of seeds from 2, such as [8, 14, 20], not {quote(looks)}"
            )
        _require_few(looks[-1], "`looks`")
        return tuple(range(looks[-1])), tuple(looks)
    raise UsageError(
        "`seeds` must be a number of at least 1, a list of different integers >= 0 or {looks: [8, 14, 20]}, "
        f"not {quote(raw)}"
    )


def _require_few(count: int, what: str) -> None:
    if count > MOST_TRIALS:
        raise UsageError(f"{what} must be at most {MOST_TRIALS:,}, but {quote(count)} was given; ask for fewer")


def require_few_trials(arms: int, seeds: int, tune: SearchSpace | None, grid: Values | None) -> None:
    """Refuse a study of more than MOST_TRIALS trials, before any is composed."""
    tuned = math.prod(map(len, tune.values.values())) * len(tune.seeds) if tune else 0
    conditions = math.prod(map(len, (grid or {}).values()))
    if (count := arms * conditions * (seeds + tuned)) > MOST_TRIALS:
        parts = [f"{arms:,} arms", *([f"{conditions:,} conditions"] if grid else []), f"{seeds:,} seeds"]
        parts += [f"{tuned:,} tuning trials of each arm"] if tune else []
        raise UsageError(
            f"a study must have at most {MOST_TRIALS:,} trials, but {', '.join(parts)} make {count:,}; ask for fewer, "
            "or split it into several studies"
        )


def _seed_list(raw: object) -> tuple[int, ...]:
    seeds = _whole(raw) if isinstance(raw, list) else []
    if not seeds or len(set(seeds)) != len(seeds):
        raise UsageError(
            f"`seeds` must be a number of at least 1 or a list of different integers >= 0, not {quote(raw)}"
        )
    return tuple(seeds)


def _whole(raw: list[Any]) -> list[int]:
    """The list if it holds whole numbers of at least 0 and of 64 bits, else an empty one."""
    fine = all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 for value in raw)
    return raw if fine else []


def _values(raw: Mapping[Any, Any], what: str) -> Values:
    found: dict[str, tuple[str, ...]] = {}
    for key, values in raw.items():
        if not isinstance(key, str) or texts.key(key) == "seed":
            raise UsageError(
                f"`{what}` must map configuration keys other than the seed to values, but has {quote(key)}"
            )
        if not isinstance(values, list) or len(values) < 2:
            raise UsageError(f"`{what}` needs a list of at least two values for {key}, not {quote(values)}")
        found[key] = tuple(map(_spelled, values))
        if len(set(found[key])) != len(values):
            raise UsageError(f"`{what}` must have different values for {key}, not {', '.join(found[key])}")
    if not found:
        raise UsageError(f"`{what}` must have at least one key and its values")
    return found


def _spelled(value: object) -> str:
    """A value of the file as an override spells it; 3e-4 as the file spells it."""
    if isinstance(value, float):
        return value.text if isinstance(value, Spelled) else repr(value)
    return value if isinstance(value, str) else json.dumps(value)


def number(text: str) -> float | None:
    """The number that an override's value spells; None if not."""
    try:
        return float(text)
    except ValueError:
        return None
