"""The trials that a bench runs."""

from __future__ import annotations

from collections.abc import Sequence

from swapformer.study.config.compose import check, compose
from swapformer.study.expand import make_trial
from swapformer.study.launch.trial import Trial


def one_of_each_seed(overrides: Sequence[str], count: int) -> list[Trial]:
    """A trial for each of the first seeds."""
    made = []
    for seed in range(count):
        config = compose([*overrides, f"seed={seed}"])
        check(config)
        made.append(make_trial(config))
    return made
