"""The shapes that probes found, by arm and seed, and what is averaged of them over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from scipy import special

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData
from swapformer.report.statistics.estimates import FloatArray
from swapformer.results.moments import END, moment_text, split_moment
from swapformer.results.shapes import Shape

S = TypeVar("S", bound=Shape)


@dataclass(frozen=True)
class Found(Generic[S]):
    """One shape that a probe found: arm → seed → the shape, of the arms and seeds that have it."""

    probe: str
    name: str
    shapes: Mapping[str, Mapping[int, S]]

    @property
    def first(self) -> S:
        """An example, whose title, caption and axes' names are those of all."""
        return next(iter(next(iter(self.shapes.values())).values()))

    @property
    def title(self) -> str:
        """The figure's title: the shape's, with the moment that it is of where that is not the end."""
        moment = split_moment(self.name)[1]
        return self.first.title if moment == END else f"{self.first.title}, {moment_text(moment)}"

    @property
    def slug(self) -> str:
        """The name of its figure's file."""
        return f"probe_{svg.slug(f'{self.probe}_{self.name}')}"

    def alike(self, arm: str, axes: Callable[[S], object]) -> dict[int, S]:
        """The findings of an arm that may be averaged: those with the first's axes, or only the first of an example."""
        seed, first = next(iter(self.shapes[arm].items()))
        if first.per_seed:
            return {seed: first}
        return {seed: each for seed, each in self.shapes[arm].items() if axes(each) == axes(first)}

    def caption(self, axes: Callable[[S], object], band: str = "95 % t bands") -> str:
        """The shape's sentence, and which seeds the figure is of."""
        said = f"{self.first.caption} " if self.first.caption else ""
        if self.first.per_seed:
            return said + self.example_seed()
        found = {arm: self.alike(arm, axes) for arm in self.shapes}
        several = any(len(each) > 1 for each in found.values())
        said += f"Mean over finished seeds{f' with {band}' if several and band else ''}."
        if left := [arm for arm in found if len(found[arm]) < len(self.shapes[arm])]:
            said += f" Seeds of {', '.join(left)} have other axes; those that have the first seed's are averaged."
        return said

    def example_seed(self) -> str:
        """The seed of an example, and why only one is shown."""
        seeds = [next(iter(each)) for each in self.shapes.values()]
        others = " (or the arm's first)" if len(set(seeds)) > 1 else ""
        return f"An example, of seed {min(seeds)}{others}: what it names has no identity across seeds."


@dataclass(frozen=True)
class Mean:
    """Means over seeds with their 95 % t limits, nan where unknown, and the number of seeds."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    seeds: FloatArray

    @property
    def numbers(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and both ends."""
        return self.value, self.low, self.high


def mean_over_seeds(values: FloatArray) -> Mean:
    """Means of numbers [seeds, …] over their first axis; nan is no number."""
    there = np.isfinite(values)
    count = there.sum(0)
    total = np.where(there, values, 0.0).sum(0)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    squares = (np.where(there, values - mean, 0.0) ** 2).sum(0)
    several = (count > 1) & (squares > 0)
    freedom = np.where(several, count - 1, 1)
    half = special.stdtrit(freedom, 0.975) * np.sqrt(squares / freedom / np.maximum(count, 1))
    half = np.where(several, half, np.nan)  # a single seed has no interval, and equal numbers have none either
    return Mean(mean, mean - half, mean + half, count)


def array(values: Sequence[Any]) -> FloatArray:
    """Numbers of a shape as an array; None becomes nan."""
    return np.array(values, dtype=float)


def merged(lists: Iterable[Sequence[str]]) -> list[str]:
    """All names of several lists, each behind the one before it in its own: a deeper arm's layers stand in order."""
    found: list[str] = []
    for names in lists:
        at = 0
        for name in names:
            if name not in found:
                found.insert(at, name)
            at = found.index(name) + 1
    return found


def found_shapes(data: FigureData) -> list[Found[Shape]]:
    """Every shape that the probes of a condition found: arms in the order of figures, seeds ascending."""
    found: dict[tuple[str, str, type[Shape]], dict[str, dict[int, Shape]]] = {}
    place = {arm: index for index, arm in enumerate(data.arms)}
    known = {key: each for key, each in data.records.probes.items() if key[1] in place}
    for (_, arm, seed), probes in sorted(known.items(), key=lambda item: (place[item[0][1]], item[0][2])):
        for probe, shapes in probes.items():
            for name, shape in shapes.items():
                found.setdefault((probe, name, type(shape)), {}).setdefault(arm, {})[seed] = shape
    return [
        Found(probe, name, shapes) for (probe, name, _), shapes in sorted(found.items(), key=lambda item: item[0][0])
    ]
