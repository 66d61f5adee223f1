"""Parses `study.yaml`, the file of one question, and refuses what is wrong with it before anything is composed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from swapformer.errors import UsageError, quote, suggest
from swapformer.exercises import find, shipped, study_name
from swapformer.results.arms import PublishedNumber, ShownFigure
from swapformer.study import comparison
from swapformer.study import ladder as ladders
from swapformer.study.command import with_command
from swapformer.study.config import overrides as texts
from swapformer.study.design import with_design
from swapformer.study.stated_numbers import parse_figures, parse_must_beat, parse_published, parse_ranges
from swapformer.yaml_reader import parse_yaml, read_yaml

if TYPE_CHECKING:
    from swapformer.report.statistics.claims import Claim

DEFAULT_SCALE = "cpu"
NAMELESS = (DEFAULT_SCALE, "")
"""Scales that stand in no name of a report or folder: the default one, and that of a study without scales."""
OWN_KEYS = (
    "seeds", "overrides", "tune", "match", "grid", "ladder", "claims", "figures", "must_beat", "metrics", "expects"
)  # fmt: skip
"""What each scale may have for itself. All but `overrides` replace the study's; null is none."""
ARMS = "arms"
"""What a scale may have too: those of the study's arms that it trains."""
LONGEST_NAME = 200
"""Bytes of a study's name: file systems take 255, and reports put suffixes behind it."""
KEYS = (
    "question",
    "baseline",
    "arms",
    "derive",
    "exact",
    "scales",
    "axis",
    "published",
    "ranges",
    "design",
    "later_claims",
    *OWN_KEYS,
)


@dataclass(frozen=True)
class Spec:
    """A study at one scale.

    Attributes:
        arms: the overrides of each arm; the common ones are in `overrides`.
        overrides: what all arms share, the scale's included.
        seeds: the seeds of each arm.
        axis: the config keys in which arms differ on purpose, when the file names them.
        claims: as in the file, already checked against arms and metrics.
        scale: its name; empty in a study without scales.
        name: the file's, and the scale's behind a point unless it is the default: each scale has a report of its own.
        published: where `--publish` puts results: beside the file, in `results/` or `results/<scale>/`.
        looks: the numbers of seeds at which a sequential study is judged; empty for one that has all its seeds at once.
        ladder: the sizes at which every arm is trained (see `swapformer.study.ladder`).
        tune, match, grid: see `swapformer.study.comparison`.
        derive: what is derived from the metrics (see `swapformer.report.derive`); its names are among `metrics`.
        exact: the metrics that are the same with every seed.
        ranges: the values that a metric can take, where that is known: seeds that are all equal decide only then.
        later_claims: whether half of the error waits for claims that are stated later.
        must_beat: metric → name → number that the baseline must be better than, or no claim is judged.
        literature: numbers from papers, the key `published` of the file.
        figures: those that `--publish` writes.
        expects: what it should show, said before anything trains.
    """

    name: str
    question: str
    scale: str
    baseline: str
    arms: Mapping[str, tuple[str, ...]]
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    claims: tuple[Mapping[str, Any], ...]
    axis: tuple[str, ...]
    published: Path | None
    looks: tuple[int, ...] = ()
    tune: comparison.SearchSpace | None = None
    match: comparison.Matching | None = None
    grid: comparison.Values | None = None
    ladder: ladders.Ladder | None = None
    derive: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exact: tuple[str, ...] = ()
    literature: tuple[PublishedNumber, ...] = ()
    figures: tuple[ShownFigure, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    must_beat: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    later_claims: bool = False
    expects: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError for a name that no folder can have in `runs_dir/studies`, or in an exercise's there."""
        exercise, _, part = self.name.rpartition("/")
        if "/" in exercise or not all(map(_is_folder_name, [exercise, part] if exercise else [self.name])):
            raise UsageError(
                f"a study's name, which its file and its scale have, must be of at most {LONGEST_NAME} letters, "
                f"digits, points, underscores, hyphens and spaces between them, but it is {quote(self.name)}; rename it"
            )

    @property
    def conditions(self) -> dict[str, ladders.Condition]:
        """The cells of the grid at every rung of the ladder, by name; one without a name where there is neither."""
        return ladders.conditions(self.ladder, comparison.combinations(self.grid))

    @property
    def tuned_by(self) -> str:
        """The metric that settings are chosen by: what `tune` names, else the first of the study.

        With two stages it is by default the first one of validation that a claim judges.
        """
        if self.tune is not None and self.tune.metric:
            return self.tune.metric
        if self.tune is not None and self.tune.first_stage is not None:
            judged = (metric for claim in claims_of(self) for metric in claim.metrics)
            return next((metric for metric in judged if metric.startswith("val/")), self.metrics[0])
        return self.metrics[0]

    @property
    def roles(self) -> dict[str, Collection[str]]:
        """Role → the keys that the study itself sets in it, not its arms."""
        return {
            "tune": self.tune.values if self.tune else (),
            "match": self.match.keys if self.match else (),
            "grid": self.grid or (),
            "ladder": self.ladder.keys if self.ladder else (),
        }


def locate(name: str) -> Path:
    """The study file that `name` means (see `swapformer.exercises.find`). Raises UsageError where it has parts."""
    found = find(name)
    if not found.one:
        raise UsageError(f"one study has to be named, but {quote(name)} has parts: {', '.join(found.studies)}")
    return next(iter(found.studies.values()))


def _is_folder_name(name: str) -> bool:
    fine = all(letter.isalnum() or letter in "._- " for letter in name) and bool(name.strip(". "))
    return fine and name == name.strip() and len(name.encode()) <= LONGEST_NAME


def published_folder(name: str) -> Path:
    """The folder where `--publish` puts the results of a shipped study. Raises UsageError for any other."""
    known = shipped()
    study, _, scale = name.partition(".")
    if study not in known:
        raise UsageError(f"only a shipped study can be published from its name, but {quote(name)} is not one")
    return _results(known[study].parent, scale or DEFAULT_SCALE)


def _results(folder: Path, scale: str) -> Path:
    return folder / "results" if scale in NAMELESS else folder / "results" / scale


def load(name: str, scale: str | None = None) -> Spec:
    """Read and check the study that `name` means (see `locate`) at a scale. Raises UsageError."""
    path = locate(name)
    raw = read_yaml(path, "the study file")
    try:
        return parse(raw, study_name(path), scale, path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def parse(raw: object, name: str, scale: str | None = None, folder: Path | None = None) -> Spec:
    """The study `name` from the content of its file in `folder`. Raises UsageError for what is wrong first."""
    if not isinstance(raw, dict):
        raise UsageError("a study file must be a mapping with at least `baseline` and `arms`, or a `design`")
    raw = with_command(with_design(raw))
    comparison.require_keys(raw, KEYS, "a study")
    chosen, section = _scale(raw.get("scales"), scale)
    every = _arms(raw.get("arms"))
    arms = _chosen_arms(section[ARMS], every, chosen) if ARMS in section else every
    if "baseline" not in raw:
        raise UsageError(f"`baseline` must name the arm that the others are compared with, one of {', '.join(arms)}")
    baseline = raw["baseline"]
    if not isinstance(baseline, str) or baseline not in arms:
        raise UsageError(
            f"the baseline must be one of the arms, but {quote(baseline)} is not{suggest(str(baseline), arms)}"
        )
    own = {**raw, **section}
    metrics, every_metric = (metric_names(asked.get("metrics", ["val/loss"])) for asked in (own, raw))
    derive = _derive(raw["derive"], tuple({*metrics, *every_metric}), arms) if "derive" in raw else {}
    metrics = metrics if "metrics" in section else tuple(dict.fromkeys([*metrics, *derive]))
    seeds, looks = comparison.parse_seeds(own.get("seeds", 5))
    question, expects = (own.get(key) or "" for key in ("question", "expects"))
    for key, text in (("question", question), ("expects", expects)):
        if not isinstance(text, str):
            raise UsageError(f"`{key}` must be a text, not {quote(text)}")
    if not isinstance(raw.get("later_claims", False), bool):
        raise UsageError(
            "`later_claims` must be true where half of the error waits for claims that are stated later, or false, not "
            f"{quote(raw['later_claims'])}"
        )
    spec = Spec(
        name=name if chosen in NAMELESS else f"{name}.{chosen}",
        question=question,
        expects=expects,
        scale=chosen,
        baseline=baseline,
        arms=arms,
        overrides=tuple(
            texts.merge(
                _overrides(raw.get("overrides", []), "`overrides`"),
                _overrides(section.get("overrides", []), f"`overrides` of scale {chosen}"),
            )
        ),
        seeds=seeds,
        metrics=metrics,
        claims=(),
        derive=derive,
        exact=_exact(raw.get("exact", []), metrics),
        literature=tuple(
            each for each in parse_published(raw.get("published", []), every, metrics) if each.arm in (None, *arms)
        ),
        figures=parse_figures(own.get("figures")),
        ranges=parse_ranges(raw.get("ranges", {}), metrics),
        must_beat=parse_must_beat(own.get("must_beat"), metrics),
        later_claims=raw.get("later_claims", False),
        axis=_axis(raw.get("axis")),
        published=None if folder is None else _results(folder, chosen),
        looks=looks,
        tune=comparison.parse_tune(own.get("tune")),
        match=comparison.parse_match(own.get("match")),
        grid=comparison.parse_grid(own.get("grid")),
        ladder=ladders.parse_ladder(own.get("ladder")),
    )
    spec = replace(spec, claims=_claims([] if own.get("claims") is None else own["claims"], spec))
    _check_roles(spec)
    return spec


def with_seeds(spec: Spec, seeds: object) -> Spec:
    """The study with other seeds, given as in the file; with its own when `seeds` is None."""
    if seeds is None:
        return spec
    if isinstance(seeds, str):
        with suppress(yaml.YAMLError, ValueError):  # what is no YAML is refused as the text that it is
            seeds = parse_yaml(seeds)
    reported, looks = comparison.parse_seeds(seeds)
    found = replace(spec, seeds=reported, looks=looks)
    _check_roles(found)
    return found


def _check_roles(spec: Spec) -> None:
    """Refuse a key with two roles, too many trials, tuning seeds that are reported, and looks without claims."""
    comparison.require_one_role(spec.roles)
    rungs = len(spec.ladder.sizes) if spec.ladder else 1
    comparison.require_few_trials(len(spec.arms) * rungs, len(spec.seeds), spec.tune, spec.grid)
    comparison.require_free(spec.roles, spec.overrides, "`overrides`")
    for arm, overrides in spec.arms.items():
        comparison.require_free(spec.roles, overrides, f"arm {quote(arm)}")
        solved = spec.match.of(arm) if spec.match and arm != spec.baseline else None
        if solved and texts.value(overrides, solved.key) is not None:
            raise UsageError(f"arm {quote(arm)} must not set {solved.key}, which `match` solves; take it out of one")
    for arm in spec.match.arms or () if spec.match else ():
        if arm not in spec.arms or arm == spec.baseline:
            hint = suggest(arm, [each for each in spec.arms if each != spec.baseline])
            raise UsageError(
                f"`match` solves a size of arms other than the baseline, but {quote(arm)} is not one{hint}"
            )
    if spec.match and len(spec.arms) == 1:
        raise UsageError("`match` makes arms cost what the baseline does, but this study has no other arm; add one")
    if spec.tune and not spec.tuned_by.startswith("val/"):
        raise UsageError(
            f"`tune` chooses by the first metric, which must be one of validation (val/…), not {spec.tuned_by}; put "
            "another one first, or say `metric: val/loss` in `tune`"
        )
    if spec.tune and (shared := sorted(set(spec.tune.seeds) & set(spec.seeds))):
        raise UsageError(
            f"seeds that tune must not be reported, but {', '.join(map(str, shared))} would be; choose others"
        )
    if spec.looks and not spec.claims:
        raise UsageError("`looks` add seeds while claims are undecided, but this study has no claims; give seeds: N")


def _scale(scales: object, wanted: str | None) -> tuple[str, Mapping[str, Any]]:
    """The chosen scale's name and section; both are empty where a study has no scales."""
    if scales is None:
        if wanted is not None:
            raise UsageError(f"this study has no scales, but scale={wanted} was given; remove it")
        return "", {}
    if not isinstance(scales, dict) or not all(isinstance(section or {}, dict) for section in scales.values()):
        raise UsageError("`scales` must map names to {seeds: …, overrides: […]}")
    for scale, section in scales.items():
        comparison.require_keys(section or {}, (*OWN_KEYS, ARMS), f"scale {quote(scale)}")
    chosen = DEFAULT_SCALE if wanted is None else wanted
    if chosen not in scales:
        raise UsageError(f"this study has no scale {quote(chosen)}{suggest(chosen, scales)}")
    return chosen, scales[chosen] or {}


def _chosen_arms(raw: object, arms: Mapping[str, tuple[str, ...]], scale: str) -> dict[str, tuple[str, ...]]:
    """The arms that a scale trains, in the study's order."""
    if not isinstance(raw, list) or not raw or not set(map(str, raw)) <= arms.keys():
        raise UsageError(f"`arms` of scale {scale} must list some of {', '.join(arms)}, not {quote(raw)}")
    return {name: overrides for name, overrides in arms.items() if name in map(str, raw)}


def _arms(raw: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(raw, dict) or not raw:
        raise UsageError("`arms` must map at least one name to a list of overrides, e.g. {rope: [model/position=rope]}")
    arms: dict[str, tuple[str, ...]] = {}
    for name, overrides in raw.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise UsageError(f"an arm's name must be a text without slashes, not {quote(name)}; put it in quotes")
        arms[name] = _overrides(overrides if overrides is not None else [], f"arm {quote(name)}")
    return arms


def _overrides(raw: object, where: str) -> tuple[str, ...]:
    """`raw` as overrides that do not set the seed."""
    found = texts.check(raw, where)
    if texts.value(found, "seed") is not None:
        raise UsageError(f"{where} must not set the seed: `seeds` does")
    return found


def metric_names(raw: object) -> tuple[str, ...]:
    """`raw` as the metrics of a report; UsageError unless they are different names."""
    named = isinstance(raw, list | tuple) and all(isinstance(metric, str) and "/" in metric for metric in raw)
    if not isinstance(raw, list | tuple) or not raw or not named:
        raise UsageError(
            f"`metrics` must be a list of names such as val/loss or probe/head_similarity, not {quote(raw)}"
        )
    if len(set(raw)) != len(raw):
        raise UsageError(f"`metrics` must differ, but are {', '.join(raw)}")
    return tuple(raw)


def _claims(raw: object, spec: Spec) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(raw, list):
        raise UsageError(f"`claims` must be a list, not {quote(raw)}")
    if raw:
        claims_of(replace(spec, claims=tuple(raw)))
    return tuple(raw)


def claims_of(spec: Spec) -> list[Claim]:
    """The study's claims, parsed."""
    from swapformer.report.derive import exact_of, ways_of
    from swapformer.report.statistics.claim_grammar import parse as parse_claims

    conditions = {name: each.values for name, each in spec.conditions.items()}
    exact = exact_of(ways_of(spec.derive, spec.claims), spec.exact, spec.metrics)
    return parse_claims(list(spec.claims), spec.arms, list(spec.metrics), conditions, exact)


def _derive(raw: object, metrics: tuple[str, ...], arms: Collection[str]) -> dict[str, Mapping[str, Any]]:
    from swapformer.report.derive import parse_derive

    return parse_derive(raw, metrics, arms)


def _exact(raw: object, metrics: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise UsageError(f"`exact` must be a list of metrics that are the same with every seed, not {quote(raw)}")
    for name in raw:
        if name not in metrics:
            raise UsageError(f"`exact`: the study does not measure {quote(name)}{suggest(str(name), metrics)}")
    return tuple(raw)


def _axis(raw: object) -> tuple[str, ...]:
    """One key or a list of them; none where the file does not say."""
    keys = [] if raw is None else raw if isinstance(raw, list) else [raw]
    named = all(isinstance(key, str) and key and "=" not in key for key in keys)
    if not named or len(set(keys)) != len(keys):
        raise UsageError(f"`axis` must be a key such as model/position, or a list of different keys, not {quote(raw)}")
    return tuple(keys)
