"""The shapes that findings have: what a figure needs of a probe or a measurement, as plain lists and numbers.

A probe says what it found in one of six shapes, and the report has one drawer for each. Every shape has a title and a
caption of a sentence. A number that is not there is None: what is not finite becomes None as well. Numbers are averaged
over the seeds of an arm where their axes are equal; a shape with `per_seed` is an example instead, shown of the first
finished seed, because what it names (a head, a direction) has no identity across seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from swapformer.errors import cut, quote, suggest
from swapformer.results.files import CorruptFile
from swapformer.results.schema import from_json as read_as

Number = float | None
_DECIMALS = 5
"""Of the weights in attention maps, as they are written: a figure shows two."""


@dataclass(frozen=True)
class Published:
    """A number from a paper, drawn as a hollow mark: what it is called, and its place on both axes."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class _Shaped:
    """Base of shapes: sequences become tuples, numbers that are not finite None.

    Raises ValueError where lengths do not fit one another.
    """

    title: str
    caption: str

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, _plain(getattr(self, each.name)))
        for what, found, expected in self._lengths():
            if found != expected:
                name = f"{type(self).__name__} {cut(quote(self.title), 60)}"
                raise ValueError(f"{what} of the {name} must number {expected}, but number {found}")

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        """Pairs of lengths that must agree: its name, how many there are, how many there must be."""
        yield from ()


@dataclass(frozen=True)
class Profile(_Shaped):
    """A number for each layer (or head, or sublayer), at one moment of training or several.

    Attributes:
        y: what the numbers are, and `unit` theirs (empty for none).
        layers: labels, in the order in which they are drawn.
        moments: labels such as `init`, `100`, `end`.
        values: a row for each moment, with a number for each layer.
        log: whether the numbers' axis is logarithmic.
    """

    y: str
    unit: str
    layers: Sequence[str]
    moments: Sequence[str]
    values: Sequence[Sequence[Number]]
    log: bool = False
    per_seed: bool = field(default=False, kw_only=True)

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        yield from _grid("moments", self.values, "layers", len(self.moments), len(self.layers))


@dataclass(frozen=True)
class Curve(_Shaped):
    """Lines over a number.

    Attributes:
        x, y: what the axes show, with units.
        xs: where the points of all lines are. Where they differ between seeds, point k of every seed is averaged.
        series: line → its value at each of `xs`; one line may be named "".
        fit: whether a straight line is fitted to each line in the axes' own scales, and its slope written on it.
        guides: label → slope of a dashed line to compare with, in the axes' own scales.
        published: numbers from papers.
        points: a name for each point, where the place on the x axis does not say it.
        weights: line → how many observations each of its values is the mean of; neighbours of a long line with weights
            are put together.
        marks: label → place on the x axis of a dashed line, such as the longest trained length.
    """

    x: str
    y: str
    xs: Sequence[Number]
    series: Mapping[str, Sequence[Number]]
    log_x: bool = False
    log_y: bool = False
    fit: bool = False
    guides: Mapping[str, float] = field(default_factory=dict)
    published: Sequence[Published] = ()
    points: Sequence[str] = ()
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    per_seed: bool = field(default=False, kw_only=True)

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        for name, values in (*self.series.items(), *self.weights.items()):
            yield f"the values of {cut(quote(name), 40)}", len(values), len(self.xs)
        if self.points:
            yield "the points", len(self.points), len(self.xs)


@dataclass(frozen=True)
class Matrix(_Shaped):
    """Numbers by named rows and columns. Matrices named `a/b` and `a/c` in one finding share a figure.

    Attributes:
        low, high: the ends of the colour scale; None for those of the numbers.
        unit: of the numbers.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]
    low: Number = None
    high: Number = None
    unit: str = ""
    per_seed: bool = field(default=False, kw_only=True)

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        yield from _grid("rows", self.values, "columns", len(self.rows), len(self.columns))


@dataclass(frozen=True)
class Histogram(_Shaped):
    """The count between two neighbouring edges.

    Attributes:
        x: what is counted by, with its unit.
        edges: ascending, one more than there are counts.
        counts: series → its counts (or shares).
    """

    x: str
    edges: Sequence[float]
    counts: Mapping[str, Sequence[Number]]
    per_seed: bool = field(default=False, kw_only=True)

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        for name, counts in self.counts.items():
            yield f"the edges of {cut(quote(name), 40)}", len(self.edges), len(counts) + 1


@dataclass(frozen=True)
class AttentionMaps(_Shaped):
    """Attention weights of one sequence, a map for each head. They are always an example of one seed.

    Attributes:
        tokens: the keys as text.
        queries: the queries as text; None where they are the keys.
        maps: head, such as `layer 1 head 2`, → a row for each query, with a weight for each key.
    """

    tokens: Sequence[str]
    queries: Sequence[str] | None
    maps: Mapping[str, Sequence[Sequence[Number]]]
    per_seed: bool = field(default=True, kw_only=True)

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        queries = self.tokens if self.queries is None else self.queries
        for name, rows in self.maps.items():
            yield from _grid(f"the queries of {cut(quote(name), 40)}", rows, "keys", len(queries), len(self.tokens))


@dataclass(frozen=True)
class Table(_Shaped):
    """Rows of texts and numbers; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    per_seed: bool = field(default=False, kw_only=True)

    def _lengths(self) -> Iterator[tuple[str, int, int]]:
        for index, row in enumerate(self.rows, 1):
            yield f"the cells of row {index}", len(row), len(self.columns)


Shape = Profile | Curve | Matrix | Histogram | AttentionMaps | Table
KINDS: Mapping[str, type[Shape]] = {
    "profile": Profile, "curve": Curve, "matrix": Matrix, "histogram": Histogram, "attention_maps": AttentionMaps,
    "table": Table,
}  # fmt: skip
"""What the key `shape` of a stored finding may say."""


@dataclass(frozen=True)
class Finding:
    """The result of a probe or a measurement.

    Attributes:
        metrics: numbers that studies can compare, by name.
        shapes: what figures are drawn from, by name.
        exact: the metrics that are the same with every seed, such as counts and bytes.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    exact: Sequence[str] = ()


def to_json(shape: Shape) -> dict[str, Any]:
    """A shape as plain JSON, with its kind under `shape`."""
    kind = next(name for name, each in KINDS.items() if type(shape) is each)
    found = {each.name: getattr(shape, each.name) for each in fields(shape)}
    if isinstance(shape, Curve):
        found["published"] = [vars(each) for each in shape.published]
    if isinstance(shape, AttentionMaps):
        found["maps"] = {name: [_rounded(row) for row in rows] for name, rows in shape.maps.items()}
    return {"shape": kind, **found}


def from_json(value: object, where: str) -> Shape:
    """The shape that `to_json` has written; `where` names it in errors. Raises CorruptFile."""
    if not isinstance(value, Mapping):
        raise CorruptFile(f"`{where}` must be a mapping, but is {cut(quote(value), 60)}")
    kind = value.get("shape")
    if not isinstance(kind, str) or kind not in KINDS:
        raise CorruptFile(f"`{where}` has the unknown shape {cut(quote(kind), 60)}{suggest(str(kind)[:60], KINDS)}")
    try:
        return read_as(KINDS[kind], value, where)
    except CorruptFile:
        raise
    except ValueError as error:
        raise CorruptFile(f"`{where}`: {error}") from None


def _plain(value: Any) -> Any:
    """Lists as tuples; a number that is not finite as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple | range):
        kinds = set(map(type, value))
        if kinds <= {int, str} or (kinds == {float} and all(map(math.isfinite, value))):  # most of what is large
            return tuple(value)
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return value


def _rounded(row: Sequence[Number]) -> list[Number]:
    return [None if value is None else round(value, _DECIMALS) for value in row]


def _grid(
    outer: str, values: Sequence[Sequence[Number]], inner: str, rows: int, columns: int
) -> Iterator[tuple[str, int, int]]:
    yield f"the {outer}" if not outer.startswith("the ") else outer, len(values), rows
    for index, row in enumerate(values, 1):
        yield f"the {inner} of row {index}", len(row), columns
