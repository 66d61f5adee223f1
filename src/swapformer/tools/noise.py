"""`swapformer noise`: how much a baseline's metrics vary without any change, before an arm is tried."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from swapformer.catalogue import option_files
from swapformer.errors import UsageError, quote, suggest
from swapformer.paths import conf_dir
from swapformer.report import number_format as f
from swapformer.report.statistics.noise import SEEDS, MetricNoise
from swapformer.study.config import overrides as texts
from swapformer.study.spec import Spec
from swapformer.tools.command_line import add_common, columns, names_and_overrides

PREFIX = "noise-"
DEFAULT_SEEDS = 5
AVERAGE = "callbacks"


def main(arguments: Sequence[str]) -> int:
    """Train what the store lacks of each baseline, and print its noise; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    names, overrides = names_and_overrides(options.overrides)
    if not names:
        raise UsageError("`swapformer noise` needs a task or a study, such as `swapformer noise text budget.steps=300`")
    specs = [baseline_of(name, overrides) for name in names]  # what is wrong with any is said before one trains
    specs = [with_averages(spec, overrides) for spec in specs] if options.weights else specs
    found = [_measured(name, spec, overrides, options.json) for name, spec in zip(names, specs, strict=True)]
    if options.json:
        print(json.dumps(found, indent=1))
    return 0


def baseline_of(name: str, overrides: Sequence[str]) -> Spec:
    """The study of a baseline alone: that of a study, with the study's seeds, or the default model on a task."""
    from swapformer.study.spec import load, with_seeds

    tasks = list(option_files(conf_dir())["task"])
    seeds = texts.value(overrides, "seeds")
    if name in tasks:
        if texts.value(overrides, "scale") is not None:
            raise UsageError(f"scale=… is of a study, but {name} is a task; give budget.steps=… and seeds=…")
        metrics = _metrics_of(name, _settings(overrides))
        spec = Spec(
            name=f"{PREFIX}{name}", question=f"How much do metrics of {name} vary without any change?", scale="",
            baseline="baseline", arms={"baseline": ()}, overrides=(f"task={name}",), seeds=tuple(range(DEFAULT_SEEDS)),
            metrics=metrics, claims=(), axis=(), published=None,
        )  # fmt: skip
        return with_seeds(spec, seeds)
    try:
        study = load(name, texts.value(overrides, "scale"))
    except UsageError as error:
        hint = suggest(name, tasks)
        raise UsageError(f"{quote(name)} must be a task or a study{hint}: {error}") from None
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


def with_averages(spec: Spec, overrides: Sequence[str]) -> Spec:
    """The study of a baseline with an arm for each callback that averages weights, which trains alike."""
    own = spec.arms[spec.baseline]
    for override in (*spec.overrides, *own, *overrides):
        if texts.key(override).replace("/", ".").startswith("callbacks"):
            raise UsageError(
                f"--weights compares the newest weights with averages of them, so leave {quote(override)} out; other "
                "settings of an average are arms of a study"
            )
    return replace(
        spec, arms={spec.baseline: own} | {arm: (*own, f"{AVERAGE}={name}") for name, arm in _averages(spec)}
    )


def _averages(spec: Spec) -> list[tuple[str, str]]:
    """Each option that averages weights, with the name of its arm."""
    return [(name, f"{spec.baseline}_{name}") for name in sorted(option_files(conf_dir())[AVERAGE]) if name != "none"]


def _settings(overrides: Sequence[str]) -> list[str]:
    """The overrides that are a trial's."""
    return [each for each in overrides if texts.key(each) not in ("seeds", "scale")]


def _metrics_of(task: str, overrides: Sequence[str]) -> tuple[str, ...]:
    """The metrics of validation of a task, without those of single lengths."""
    from swapformer.study.config.compose import compose, task_of
    from swapformer.study.config.hydra_errors import explained

    given = [f"task={task}", *overrides]
    with explained(given):
        found = task_of(compose(given))
    first = found.evaluation("val")[0].name
    names = list(dict.fromkeys([*(f"{base}{first}" for base in found.directions), *found.summaries]))
    return tuple(f"val/{name}" for name in sorted(names, key=lambda name: name != "loss"))


def _measured(name: str, spec: Spec, overrides: Sequence[str], as_json: bool) -> dict[str, Any]:
    """Train what is missing, measure the noise in each condition, write its files and print them."""
    from swapformer.report.build import write
    from swapformer.report.figures import svg
    from swapformer.report.figures.noise_plot import noise_plot
    from swapformer.report.records import read
    from swapformer.report.statistics.noise import metric_noise
    from swapformer.results.store import Store
    from swapformer.tools.studies import run_locally

    result = run_locally(spec, _settings(overrides), publish=False, quiet=as_json)
    result.require_complete()
    store = Store(result.plan.shared_config["runs_dir"])
    folder = store.studies / spec.name
    records = read(folder, store.runs_dir)
    report: dict[str, Any] = {"name": name, "study": spec.name, "conditions": []}
    for number, condition in enumerate(spec.conditions):
        there = records.at(condition)
        averages = {name: arm for name, arm in _averages(spec) if arm in spec.arms}
        noises = [each for metric in spec.metrics if (each := metric_noise(there, metric, averages)) is not None]
        if not noises:
            raise UsageError(
                f"no trial of {spec.name} finished with a number{f' with {condition}' if condition else ''}"
            )
        with svg.settings():
            figure = noise_plot(noises)
        stem = "noise" if len(spec.conditions) == 1 else f"noise_{number}"
        impossible = {name: there.manifest.impossible.get(arm) for name, arm in averages.items()}
        text = "\n".join(
            [noise_text(spec, condition, noises)]
            + [f"{AVERAGE}={name} is impossible here: {reason}" for name, reason in impossible.items() if reason]
        )
        drawn = {f"{stem}.svg": figure.svg, f"{stem}.csv": figure.csv} if figure is not None else {}
        files = write(folder / "report", {f"{stem}.txt": text + "\n", **drawn}, clean=False)
        plain = [noise_dict(each) for each in noises]
        report["conditions"].append({"condition": condition, "metrics": plain, "files": [str(path) for path in files]})
        if not as_json:
            print(text, *files, "", sep="\n")
    return report


def noise_dict(noise: MetricNoise) -> dict[str, Any]:
    """The noise of a metric for scripts; nan and infinity become None."""
    plain = {
        **asdict(noise),
        "signal_to_noise": noise.signal_to_noise,
        "seen": {str(n): noise.seen(n) for n in SEEDS},
    }

    def clean(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: clean(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [clean(value) for value in node]
        return None if isinstance(node, float) and not math.isfinite(node) else node

    return dict(clean(plain))


def noise_text(spec: Spec, condition: str, noises: Sequence[MetricNoise]) -> str:
    """The table of one condition, and what averaging the last evaluations is worth."""
    where = f" with {condition}" if condition else ""
    head = f"{spec.baseline} of {spec.name.removeprefix(PREFIX)}{where}, {len(spec.seeds)} seeds"
    rows = [["metric", "mean", "over seeds", "[95 %]", "over items", "over evaluations", "signal / noise",
             *(f"{n} seeds see" for n in SEEDS)]]  # fmt: skip
    for each in noises:
        interval = f"[{_short(each.lower)}, {_short(each.upper)}]" if each.lower > 0 else f.DASH
        spreads = [_short(each.deviation), interval, _short(each.over_items), _short(each.over_evaluations)]
        seen = [_short(each.seen(n)) for n in SEEDS]
        rows.append([each.metric, _short(each.mean), *spreads, _short(each.signal_to_noise), *seen])
    lines = [head, columns(rows, right=True)]
    for each in noises:
        for one in each.averaging:
            if math.isnan(one.worth):
                continue
            sure = "lowers" if one.lower > 1 else "raises" if one.upper < 1 else "does not surely change"
            what, plain = f"the mean of the last {one.k} evaluations", "the last"
            if one.option is not None:
                what, plain = f"{AVERAGE}={one.option}", "that of the newest weights"
            instead = _short(each.n * one.worth)
            lines.append(
                f"{what} {sure} the noise of {each.metric}: worth {_short(one.worth)} times the seeds "
                f"[{_short(one.lower)}, {_short(one.upper)}], so that {each.n} seeds see what {instead} do without; it "
                f"lies {_short(one.shift)} off {plain}"
            )
    if any(each.over_items > 2 * each.deviation for each in noises):
        lines.append("Where the noise over items is the larger one, a larger evaluation set says more than seeds do.")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−") if math.isfinite(value) else f.DASH


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="swapformer noise",
        description="How much each metric of a baseline varies without any change: over seeds, items and the last "
        "evaluations; which difference so many seeds would see; what averaging the last evaluations is worth. Trains "
        "what the store lacks.",
    )
    made.add_argument(
        "overrides", nargs="*", metavar="TASK | STUDY | OVERRIDE",
        help=f"tasks or studies, then seeds=N ({DEFAULT_SEEDS}), scale=… of a study, and any override",
    )  # fmt: skip
    made.add_argument(
        "--weights", action="store_true",
        help="train the baseline with callbacks=ema and callbacks=last too: what averaging its weights is worth",
    )  # fmt: skip
    return add_common(made)
