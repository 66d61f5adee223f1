"""How something grows with a size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import linear_regression

from swapformer.tools.cost.ratio import asked


@dataclass(frozen=True)
class Slope:
    """How something grows: the slope of a straight line through its logarithm against that of a size.

    Attributes:
        name: what was measured.
        unit: of the values.
        sizes, values: what was measured at which size.
        slope: 1 where it grows as the size does, 2 where as its square.
        target, met: as for a ratio.
    """

    name: str
    unit: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    slope: float
    target: str | None
    met: bool | None

    def line(self) -> str:
        """One line for people."""
        points = ", ".join(f"{value:.3g} at {size}" for size, value in zip(self.sizes, self.values, strict=True))
        return f"{self.name}: {points} {self.unit}, slope {self.slope:.2f}{asked(self.target, self.met)}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def growth(name: str, unit: str, measured: Mapping[int, float], most: float) -> Slope:
    """The slope of what was measured at each size, of which at most `most` is asked."""
    x, y = ([math.log(value) for value in values] for values in (measured.keys(), measured.values()))
    slope = linear_regression(x, y).slope
    return Slope(name, unit, tuple(measured), tuple(measured.values()), slope, f"slope ≤ {most}", slope <= most)
