"""The choice of each arm's setting: settings that were tried, refused and chosen, as the manifest has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swapformer.results.arms import Values, arm_fields
from swapformer.results.schema import from_json


@dataclass(frozen=True)
class Tried:
    """A setting that an arm was tried with, and the trials of it, one for each tuning seed.

    `share`: of the steps, below 1 in the first of two stages. `results`: of the metric, where they are published: a
    number, or how a trial without one ended.
    """

    arm: str
    condition: str
    values: Values
    trials: tuple[str, ...]
    share: float = 1.0
    results: tuple[float | str, ...] = ()

    @property
    def text(self) -> str:
        """`optim.lr=3e-4`."""
        return " ".join(f"{key}={value}" for key, value in self.values.items())


@dataclass(frozen=True)
class Choice:
    """The setting that an arm is reported with.

    `edges`: the keys whose chosen value is the first or last number of those that were tried. `diverged`: every trial
    of every setting did, so that nothing was chosen by its results, and no edge says anything. `grown`: how many values
    beyond those of the study file were tried.
    """

    arm: str
    condition: str
    values: Values
    edges: tuple[str, ...] = ()
    diverged: bool = False
    grown: int = 0


@dataclass(frozen=True)
class Refused:
    """A setting that an arm cannot have."""

    arm: str
    condition: str
    values: Values
    reason: str


@dataclass(frozen=True)
class Tuning:
    """The choice of settings: by the mean of `metric` over the trials of `seeds`, which are not reported."""

    metric: str
    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    tried: tuple[Tried, ...]
    chosen: tuple[Choice, ...]
    refused: tuple[Refused, ...]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Tuning:
        """The manifest's `tuning`."""
        entries = {key: [{"condition": "", **each} for each in raw[key]] for key in ("tried", "chosen", "refused")}
        return from_json(cls, {**raw, **entries}, "tuning")

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it; JSON makes lists of the tuples."""
        return {
            "metric": self.metric,
            "keys": self.keys,
            "seeds": self.seeds,
            "tried": [{**_fields(each), "trials": each.trials, **_more(each)} for each in self.tried],
            "refused": [{**_fields(each), "reason": each.reason} for each in self.refused],
            "chosen": [
                {**_fields(each), "edges": each.edges, "diverged": each.diverged}
                | ({"grown": each.grown} if each.grown else {})
                for each in self.chosen
            ],
        }


def _fields(each: Tried | Choice | Refused) -> dict[str, Any]:
    return {**arm_fields(each.arm, each.condition), "values": dict(each.values)}


def _more(tried: Tried) -> dict[str, Any]:
    """What not every setting that was tried has."""
    share = {"share": tried.share} if tried.share != 1 else {}
    return {**share, **({"results": list(tried.results)} if tried.results else {})}
