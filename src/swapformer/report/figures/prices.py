"""What arms cost beside what they achieve: the prices that can be weighed, and which arms are worth theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from swapformer.report.figures.figure_data import Scene
from swapformer.results.costs import Measured

Standing = Literal["front", "open", "beaten"]


@dataclass(frozen=True)
class Price:
    """A kind of cost: what the axis says, and each arm's cost with its ends (all three the same where it is exact)."""

    name: str
    slug: str
    unit: str
    values: Mapping[str, tuple[float, float, float]]


def prices(scene: Scene, flops: Mapping[str, float], timed: Mapping[str, Measured]) -> list[Price]:
    """The costs that are known of at least two arms and not the same for all."""
    found = [
        Price("parameters", "parameters", "", {row.arm: (row.parameters,) * 3 for row in scene.rows}),
        Price("FLOP of a training, by analysis", "flops", "FLOP", {arm: (each,) * 3 for arm, each in flops.items()}),
        Price(
            "measured seconds of a step", "time", "s",
            {arm: (each.step, min(each.seconds), max(each.seconds)) for arm, each in timed.items()},
        ),
    ]  # fmt: skip
    known = [
        Price(p.name, p.slug, p.unit, {arm: ends for arm, ends in p.values.items() if math.isfinite(ends[0])})
        for p in found
    ]
    return [price for price in known if len({ends[0] for ends in price.values.values()}) > 1]


def standings(scene: Scene, metric: str, price: Price) -> dict[str, Standing]:
    """Where each arm stands. Only arms that lost no trial are weighed: survivors flatter.

    `front`: no arm is as cheap and better on average, or cheaper and as good. `beaten`: one is no dearer beyond its
    spread, and better beyond doubt (paired 95 % t interval, uncorrected). `open`: beaten on average only.
    """
    summaries = scene.summaries(metric)
    lost = {arm for arm in scene.arms if scene.evidence.lost(arm, metric).any()}
    arms = [arm for arm in scene.arms if arm in price.values and summaries[arm].n and arm not in lost]
    sign = 1 if scene.evidence.directions[metric] == "higher" else -1
    found: dict[str, Standing] = {}
    for arm in arms:
        worth = (-price.values[arm][0], sign * summaries[arm].mean)
        rivals = [(o, (-price.values[o][0], sign * summaries[o].mean)) for o in arms if o != arm]
        over = [o for o, other in rivals if other != worth and other[0] >= worth[0] and other[1] >= worth[1]]
        sure = [o for o in over if price.values[o][2] <= max(price.values[arm][1], price.values[o][0])]
        beaten = any(_better(scene, metric, rival, arm, sign) for rival in sure)
        found[arm] = "beaten" if beaten else "open" if over else "front"
    return found


def _better(scene: Scene, metric: str, rival: str, arm: str, sign: int) -> bool:
    """Whether the paired difference lies on the good side, all of its interval."""
    estimate = scene.evidence.mean_difference(rival, arm, metric)
    return estimate.lower(0.025) > 0 if sign > 0 else estimate.upper(0.025) < 0
