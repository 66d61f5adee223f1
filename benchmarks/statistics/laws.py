"""Laws that the results of seeds may follow: written down here, or made of committed results."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.statistics.committed import committed_studies
from swapformer.exercises import STUDY_FILE
from swapformer.yaml_reader import read_yaml

FloatArray = NDArray[np.float64]
Size = tuple[int, int, int]
"""Studies, arms and seeds."""
ARMS = 6


@dataclass(frozen=True)
class Law:
    """What seeds follow: `draw` gives values [studies, arms, seeds], the baseline first; `means` are the true ones."""

    name: str
    means: FloatArray
    draw: Callable[[np.random.Generator, int, int], FloatArray]


def synthetic_laws() -> Iterator[Law]:
    """Laws that are written down; the arms lie above the baseline by a standard deviation, or by what fits the law."""

    def shifted(name: str, noise: Callable[[np.random.Generator, Size], FloatArray], step: float = 1.0) -> Law:
        means = np.array([0.0, *[step] * (ARMS - 1)])
        return Law(name, means, lambda g, studies, n: means[:, None] + noise(g, (studies, ARMS, n)))

    spreads = np.geomspace(1, 1 / 15, ARMS)[:, None]
    yield shifted("normal", lambda g, size: g.normal(size=size))
    yield shifted("normal, correlation .65", partial(correlated, 0.65))
    yield shifted("normal, standard deviations 15 : 1", lambda g, size: spreads * g.normal(size=size))
    rising = spreads[::-1]
    yield shifted("normal, standard deviations 1 : 15", lambda g, size: rising * g.normal(size=size))
    yield shifted("lognormal", _lognormal)
    yield shifted("lognormal, standard deviations 15 : 1", lambda g, size: spreads * _lognormal(g, size))
    yield shifted("lognormal, standard deviations 1 : 15", lambda g, size: rising * _lognormal(g, size))
    yield shifted("two modes, half of the seeds in each", lambda g, size: _modes(g, size, 0.5, 2.0, 0.1))
    yield shifted("learns in 85 % of seeds, noise .01", lambda g, size: _modes(g, size, 0.85, 1.0, 0.01), step=0.1)
    yield Law("one arm fails in a fifth of its seeds", np.array([-0.1, *[0.0] * (ARMS - 1)]), _one_fails)
    rates = np.array([0.7, *[0.85] * (ARMS - 1)])
    yield Law("exactly 0 or 1", rates, lambda g, s, n: (g.random((s, ARMS, n)) < rates[:, None]).astype(float))


def correlated(correlation: float, generator: np.random.Generator, size: Size) -> FloatArray:
    """Standard normal values whose arms share noise by seed."""
    studies, _, n = size
    shared = generator.normal(size=(studies, 1, n))
    return math.sqrt(1 - correlation) * generator.normal(size=size) + math.sqrt(correlation) * shared


def _lognormal(generator: np.random.Generator, size: Size) -> FloatArray:
    return generator.lognormal(size=size) - math.exp(0.5)


def _modes(g: np.random.Generator, size: Size, upper: float, gap: float, noise: float) -> FloatArray:
    """Two modes that lie `gap` apart, a share `upper` of the seeds in the upper one; the mean is 0."""
    return gap * ((g.random(size) < upper) - upper) + g.normal(0, noise, size)


def _one_fails(generator: np.random.Generator, studies: int, n: int) -> FloatArray:
    """The baseline loses .5 in a fifth of its seeds."""
    values = generator.normal(0, 0.01, (studies, ARMS, n))
    values[:, 0] -= 0.5 * (generator.random((studies, n)) < 0.2)
    return values


def committed_laws() -> Iterator[Law]:
    """Populations made of committed seeds: studies draw seeds with replacement, all arms of a seed together."""
    for name, folder in committed_studies().items():
        results = folder / "results" / "results.csv"
        claims = read_yaml(folder / STUDY_FILE).get("claims", [])
        for metric in dict.fromkeys(_metrics(claims)):
            values = committed_values(results, metric)
            if len(values) == ARMS:
                yield _population(f"seeds of {name}, {metric}", values)


def _metrics(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for claim in claims:
        yield from (body["metric"] for body in claim.values() if isinstance(body, dict) and "metric" in body)


def committed_values(results: Path, metric: str) -> FloatArray:
    """Values [arms, seeds] of up to six arms that have the metric with every seed: the lowest mean, and the highest."""
    with results.open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["metric"] == metric and math.isfinite(float(row["value"] or "nan"))
        ]
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["arm"], {})[row["seed"]] = float(row["value"])
    seeds = sorted({row["seed"] for row in rows})
    whole = [np.array([of[seed] for seed in seeds]) for of in found.values() if len(of) == len(seeds)]
    ordered = sorted(whole, key=lambda values: float(values.mean()))
    return np.array(ordered if len(ordered) <= ARMS else [ordered[0], *ordered[1 - ARMS :]])


def _population(name: str, values: FloatArray) -> Law:
    def draw(generator: np.random.Generator, studies: int, n: int) -> FloatArray:
        return values[:, generator.integers(values.shape[1], size=(studies, n))].transpose(1, 0, 2)

    return Law(name, values.mean(axis=1), draw)
