"""`swapformer noise`: how much a baseline's metrics vary without any change, before an arm is tried.

    over seeds          s, the standard deviation of the final value over n seeds, with the 95 % interval of chi-squared
    over items          the root mean square of the trials' own standard errors of evaluation
    n seeds see         the difference of two arms that both have s, uncorrelated, which a test at 5 % finds in 80 %

Arms that share data and start correlate by ρ, and then √(1 − ρ) of that difference is seen.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from swapformer.catalogue import option_files
from swapformer.console import CommandLine, within
from swapformer.errors import UsageError, quote, suggest
from swapformer.paths import conf_dir
from swapformer.report import number_format as f
from swapformer.report.page.to_json import finite
from swapformer.study.config import overrides as texts
from swapformer.study.spec import Spec
from swapformer.tools.command_line import add_common, columns, names_and_overrides

if TYPE_CHECKING:
    from swapformer.report.records import Records
    from swapformer.report.statistics.estimates import FloatArray

PREFIX = "noise-"
DEFAULT_SEEDS = 5
MINUTES = 10.0
"""What is trained unasked takes no longer, as far as that can be told."""
SEEDS = (3, 5, 8, 20)


@dataclass(frozen=True)
class MetricNoise:
    """The noise of one metric over `n` seeds; nan where it is not known.

    `deviation`: over seeds, with its interval; `seen`: number of seeds → the difference that they see.
    """

    metric: str
    n: int
    mean: float
    deviation: float
    lower: float
    upper: float
    over_items: float

    @property
    def seen(self) -> dict[int, float]:
        """The difference of two arms that so many seeds see; nan where all seeds agree and their spread is unknown."""
        from swapformer.report.statistics.power import detectable

        s = math.sqrt(2) * self.deviation if self.deviation > 0 else math.nan
        return {n: detectable(n, 0.05, freedom=2.0) * s for n in SEEDS}


def metric_noise(records: Records, metric: str) -> MetricNoise | None:
    """The noise of a metric of the baseline of records of one condition; None where no trial finished with it."""
    import numpy as np

    rows = records.metrics
    rows = rows[(rows["arm"] == records.manifest.baseline) & (rows["metric"] == metric)]
    values, errors = (rows[column].to_numpy(dtype=float) for column in ("value", "standard_error"))
    if not len(values):
        return None
    known = errors[np.isfinite(errors)]
    over_items = float(np.sqrt((known**2).mean())) if len(known) else math.nan
    return MetricNoise(metric, len(values), float(values.mean()), *deviation_interval(values), over_items)


def deviation_interval(values: FloatArray) -> tuple[float, float, float]:
    """The standard deviation of values with the 95 % interval of a normal law, which equal values do not have."""
    from scipy import special

    n = len(values)
    s = float(values.std(ddof=1)) if n > 1 else math.nan
    if not s > 0:
        return s, math.nan, math.nan
    low, high = (s * math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (0.025, 0.975))
    return s, low, high


def main(arguments: Sequence[str]) -> int:
    """Train what the store lacks of each baseline, and print its noise; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    names, overrides = names_and_overrides(options.overrides)
    if not names:
        raise UsageError("`swapformer noise` needs a task or a study, such as `swapformer noise text budget.steps=300`")
    specs = [baseline_of(name, overrides) for name in names]  # what is wrong with any is said before one trains
    found = [
        _measured(name, spec, overrides, options.json, options.minutes) for name, spec in zip(names, specs, strict=True)
    ]
    if options.json:
        print(json.dumps(found, indent=1))
    return 0


def baseline_of(name: str, overrides: Sequence[str]) -> Spec:
    """The study of a baseline only: that of a study, with the study's seeds, or the default model on a task."""
    from swapformer.study.spec import load, with_seeds

    tasks = list(option_files(conf_dir())["task"])
    seeds = texts.value(overrides, "seeds")
    try:
        study = None if name in tasks else load(name, texts.value(overrides, "scale"))
    except UsageError as error:
        if not texts.search_path(overrides):
            hint = suggest(name, tasks)
            raise UsageError(f"{quote(name)} must be a task or a study{hint}: {error}") from None
        study = None  # a task in a folder of the user's own: where it is not, Hydra says so
    if study is None:
        if texts.value(overrides, "scale") is not None:
            raise UsageError(f"scale=… is of a study, but {name} is a task; give budget.steps=… and seeds=…")
        metrics = _metrics_of(name, _settings(overrides))
        spec = Spec(
            name=f"{PREFIX}{name}", question=f"How much do metrics of {name} vary without any change?", scale="",
            baseline="baseline", arms={"baseline": ()}, overrides=(f"task={name}",), seeds=tuple(range(DEFAULT_SEEDS)),
            metrics=metrics, claims=(), axis=(), published=None,
        )  # fmt: skip
        return with_seeds(spec, seeds)
    own = {way: how for way, how in study.derive.items() if not isinstance(how.get("value"), dict)}
    return with_seeds(
        replace(
            study, name=f"{PREFIX}{study.name.replace('/', '.')}", arms={study.baseline: study.arms[study.baseline]},
            question=f"How much does {study.baseline} of {study.name} vary without any change?", claims=(), looks=(),
            metrics=tuple(each for each in study.metrics if each not in study.derive or each in own), derive=own,
            match=None, literature=(), published=None, axis=(), exact=(),
        ),
        seeds,
    )  # fmt: skip


def _settings(overrides: Sequence[str]) -> list[str]:
    """The overrides that are a trial's."""
    return [each for each in overrides if texts.key(each) not in ("seeds", "scale")]


def _metrics_of(task: str, overrides: Sequence[str]) -> tuple[str, ...]:
    """The metrics of validation of a task, without those of single lengths."""
    from swapformer.study.config.compose import compose, task_of

    found = task_of(compose([f"task={task}", *overrides]))
    first = found.evaluation("val")[0].name
    names = list(dict.fromkeys([*(f"{base}{first}" for base in found.directions), *found.summaries]))
    return tuple(f"val/{name}" for name in sorted(names, key=lambda name: name != "loss"))


def _measured(name: str, spec: Spec, overrides: Sequence[str], as_json: bool, minutes: float) -> dict[str, Any]:
    """Train what is missing, measure the noise in each condition and print it."""
    from swapformer.report.records import read
    from swapformer.results.store import Store
    from swapformer.tools.studies import run_locally

    result = run_locally(spec, _settings(overrides), publish=False, quiet=as_json, minutes=minutes)
    result.require_complete()
    store = Store(result.plan.shared_config["runs_dir"])
    records = read(store.studies / spec.name, store.runs_dir)
    report: dict[str, Any] = {"name": name, "study": spec.name, "conditions": []}
    for condition in spec.conditions:
        noises = [each for metric in spec.metrics if (each := metric_noise(records.at(condition), metric)) is not None]
        if not noises:
            raise UsageError(
                f"no trial of {spec.name} finished with a number{f' with {condition}' if condition else ''}"
            )
        report["conditions"].append({"condition": condition, "metrics": [noise_dict(each) for each in noises]})
        if not as_json:
            print(noise_text(spec, condition, noises), "", sep="\n")
    return report


def noise_dict(noise: MetricNoise) -> dict[str, Any]:
    """The noise of a metric for scripts; nan and infinity become None."""
    plain = {key: finite(value) if isinstance(value, float) else value for key, value in asdict(noise).items()}
    return plain | {"seen": {str(n): finite(value) for n, value in noise.seen.items()}}


def noise_text(spec: Spec, condition: str, noises: Sequence[MetricNoise]) -> str:
    """The table of one condition."""
    where = f" with {condition}" if condition else ""
    head = f"{spec.baseline} of {spec.name.removeprefix(PREFIX)}{where}, {len(spec.seeds)} seeds"
    see = [f"{n} seeds see" for n in SEEDS]
    rows = [["metric", "mean", "deviation over seeds", "[95 %]", "error over items", *see]]
    for each in noises:
        interval = f"[{_short(each.lower)}, {_short(each.upper)}]" if each.lower > 0 else f.DASH
        spreads = [_short(each.deviation), interval, _short(each.over_items)]
        rows.append([each.metric, _short(each.mean), *spreads, *map(_short, each.seen.values())])
    lines = [head, columns(rows, right=True)]
    if lost := len(spec.seeds) - min(each.n for each in noises):
        lines.append(
            f"{lost} of {len(spec.seeds)} seeds have no number of some metric (diverged, or have none): the "
            "spread of the others is too small for it."
        )
    if any(each.over_items > 2 * each.deviation for each in noises):
        lines.append("Where the noise over items is the larger one, a larger evaluation set says more than seeds do.")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−") if math.isfinite(value) else f.DASH


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer noise",
        description="How much each metric of a baseline varies without any change, over seeds and items, and which "
        "difference so many seeds would see. Trains what the store lacks.",
    )
    made.add_argument(
        "overrides", nargs="*", metavar="TASK | STUDY | OVERRIDE",
        help=f"tasks or studies, then seeds=N ({DEFAULT_SEEDS}), scale=… of a study, and any override",
    )  # fmt: skip
    made.add_argument(
        "--minutes",
        type=within(0.0, 1e6),
        default=MINUTES,
        help=f"that training may take, by an estimate ({MINUTES:g})",
    )
    return add_common(made)
