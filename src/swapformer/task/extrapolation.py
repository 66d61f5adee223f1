"""What the exact match at each length says of lengths that were not trained."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from swapformer.task.base import Direction

SUMMARIES: dict[str, Direction] = {"extrapolation_area": "higher", "longest_90": "higher"}
SOLVED = 0.9
"""The exact match above which a length counts as solved."""


def extrapolation(values: Mapping[str, float], trained: int) -> dict[str, float]:
    """The SUMMARIES of one split's metrics; none where no length beyond `trained` was measured.

    `extrapolation_area`: the area under exact match against length from `trained` to the longest length, straight
    between the lengths measured, over its width: 1 where every length is solved. `longest_90`: the longest length
    measured with an exact match above SOLVED there and at every shorter one; nothing between lengths is assumed; 0
    where not even the shortest has it.

    Args:
        values: metrics by name, such as `exact_match@64`; those of the set "" count at `trained` unless that length has
            a set of its own.
        trained: the longest length of training.
    """
    measured = {
        int(name.removeprefix("exact_match@")): value
        for name, value in values.items()
        if name.startswith("exact_match@")
    }
    if not measured or max(measured) <= trained:
        return {}
    points = sorted(({trained: values["exact_match"]} | measured).items())
    beyond = [point for point in points if point[0] >= trained]
    area = sum((right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(beyond))
    longest = 0
    for length, value in points:
        if not value > SOLVED:
            break
        longest = length
    return {"extrapolation_area": area / (beyond[-1][0] - trained), "longest_90": float(longest)}
