"""Which figures a study gets, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from swapformer.report.figures import curves, forest, strip_plot, svg
from swapformer.report.figures.figure_data import Drawn, Scene


def families(metrics: Sequence[str], recorded: Sequence[str]) -> dict[str, dict[int, str]]:
    """`{"val/accuracy": {64: "val/accuracy@64", …}}` for every family `name@length` that the study's metrics touch."""
    touched = {metric.partition("@")[0] for metric in metrics}
    found: dict[str, dict[int, str]] = {}
    for metric in dict.fromkeys([*metrics, *recorded]):
        base, at, length = metric.partition("@")
        if at and length.isdigit() and base in touched:
            found.setdefault(base, {})[int(length)] = metric
    return {base: dict(sorted(lengths.items())) for base, lengths in found.items()}


def reported(metrics: Sequence[str], recorded: Sequence[str]) -> list[str]:
    """The study's metrics, then what else their families by length hold: everything that figures show."""
    groups = families(metrics, recorded)
    bases = [base for base in groups if base in recorded]
    return list(dict.fromkeys([*metrics, *bases, *(name for group in groups.values() for name in group.values())]))


def draw(scene: Scene) -> list[Drawn]:
    """All figures for which the study has data, in the order of the report."""
    manifest = scene.records.manifest
    groups = families(manifest.metrics, list(dict.fromkeys(scene.records.metrics["metric"])))
    single = [metric for metric in manifest.metrics if "@" not in metric]
    found: list[Drawn | None] = []
    with svg.settings():
        found += [curves.by_length(scene, base, lengths) for base, lengths in groups.items()]
        for metric in single:
            axis = scene.axis
            found.append(
                strip_plot.by_arm(scene, metric) if axis is None else strip_plot.along_axis(scene, metric, axis)
            )
        found += [forest.forest_plot(scene, metric) for metric in manifest.metrics]
        for metric in single:
            found += [curves.learning(scene, metric), curves.gap(scene, metric)]
    return _unique([figure for figure in found if figure is not None])


def _unique(figures: Sequence[Drawn]) -> list[Drawn]:
    """Metrics whose names differ only in signs would share a file name; the later ones get a number."""
    taken: dict[str, int] = {}
    unique = []
    for figure in figures:
        taken[figure.name] = taken.get(figure.name, 0) + 1
        name = figure.name if taken[figure.name] == 1 else f"{figure.name}_{taken[figure.name]}"
        unique.append(replace(figure, name=name))
    return unique
