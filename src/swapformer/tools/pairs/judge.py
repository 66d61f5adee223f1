"""The verdict on two options: together somewhere, or refused for a reason that names them and a way out that works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from swapformer.options import NONE
from swapformer.options import option as read_option
from swapformer.targets import targets
from swapformer.tools.pairs.advice import Advice, advised
from swapformer.tools.pairs.stages import Option, Settings, Stage, options_of

Choice = frozenset[Option]
Pair = tuple[Option, Option]

STEPS = 3
"""Pieces of advice about other slots that are followed, one after the other, before a pair counts as refused."""


@dataclass(frozen=True)
class Setup:
    """Options and settings on a stage."""

    stage: Stage
    options: Choice
    settings: Settings = ()

    def with_advice(self, advice: Advice) -> Setup:
        """The setup as a piece of advice would have it."""
        if (option := advice.option) is None:
            return Setup(self.stage, self.options, (*self.settings, (advice.key, advice.value)))
        others = frozenset(other for other in self.options if other.slot != option.slot)
        return Setup(self.stage, others | {option}, self.settings)

    @property
    def overrides(self) -> list[str]:
        """The setup in Hydra's words."""
        own = [str(option) for option in sorted(self.options)]
        return own + [f"{key}={list(value) if isinstance(value, tuple) else value}" for key, value in self.settings]


@dataclass(frozen=True)
class Verdict:
    """What becomes of a pair.

    Attributes:
        pair: the two options.
        setup: where they work together; for a refused pair, where they were refused.
        reasons: why they were refused; none where they work.
        faults: what is wrong with the refusal.
    """

    pair: Pair
    setup: Setup
    reasons: tuple[str, ...] = ()
    faults: tuple[str, ...] = field(default=())

    @property
    def compatible(self) -> bool:
        return not self.reasons


class Judge:
    """Judges pairs on stages; remembers what was refused.

    Args:
        stages: where pairs may meet, most usual first.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages
        self._known: dict[tuple[str, Choice, Settings], list[str]] = {}

    def problems(self, setup: Setup) -> list[str]:
        """What the study would refuse the setup for."""
        key = (setup.stage.name, setup.options, setup.settings)
        if key not in self._known:
            self._known[key] = setup.stage.problems(setup.options, setup.settings)
        return self._known[key]

    def fitting(self, options: Iterable[Option]) -> Iterator[Setup]:
        """These options on every stage that has their topology."""
        options = frozenset(options)
        for stage in self.stages:
            if all(option.name == stage.topology for option in options if option.slot == "topology"):
                yield Setup(stage, options)

    def judge(self, pair: Pair) -> Verdict:
        """The verdict on a pair: the first stage on which it works, or its best refusal."""
        refusals: list[Setup] = []
        for start in self.fitting(pair):
            found = self.accepted(start, {option.slot for option in pair}, refusals.append)
            if found is not None:
                return Verdict(pair, found)
        setup = max(refusals, key=lambda setup: self._clarity(pair, setup))
        faults = tuple(self._faults(pair, setup))
        return Verdict(pair, setup, tuple(self.problems(setup)), faults)

    def accepted(self, start: Setup, keep: set[str], refused: Callable[[Setup], object] = id) -> Setup | None:
        """The setup itself if it is accepted, or one that is when advice is followed that leaves the slots `keep`.

        What remains refused though all such advice was followed is handed to `refused`.
        """
        seen, wave = {start}, [start]
        for _ in range(STEPS + 1):
            following: list[Setup] = []
            for setup in wave:
                if not (problems := self.problems(setup)):
                    return setup
                ways = [w for w in map(setup.with_advice, self._free(problems, keep)) if w not in seen]
                seen.update(ways)
                following += ways
                if not ways:
                    refused(setup)
            wave = following
        for setup in wave:
            refused(setup)
        return None

    def _free(self, problems: Sequence[str], keep: set[str]) -> list[Advice]:
        """Advice about anything but the slots in question, of the first problem that has some.

        Topologies are the stages', and `allow` lifts a rule where a pair is to be judged by it.
        """
        for problem in problems:
            free = [advice for advice in advised(problem) if advice.slot not in keep and exists(advice)]
            if found := [one for one in free if one.key not in ("allow", "model/topology")]:
                return found
        return []

    def _clarity(self, pair: Pair, setup: Setup) -> tuple[int, int]:
        """How well a refusal tells what is wrong with a pair: it names both, and speaks of nothing else."""
        problems = self.problems(setup)
        return sum(names(" ".join(problems), option) for option in pair), -len(problems)

    def _faults(self, pair: Pair, setup: Setup) -> Iterator[str]:
        """What is wrong with a refusal: it must name both options and a way out, and every way that it names works."""
        said = " ".join(self.problems(setup))
        for option in pair:
            if not names(said, option):
                yield f"it does not name {option}"
        ways = advised(said)
        if not ways:
            yield "it names no alternative that could be chosen"
        for advice in ways:
            if not self.works(setup, advice, {option.slot for option in pair}):
                yield f"its alternative {advice} does not work"

    def works(self, setup: Setup, advice: Advice, keep: set[str]) -> bool:
        """Whether some stage accepts the setup as advised, other slots following what is said of them."""
        if not exists(advice):
            return False
        keep = keep | ({advice.slot} if advice.slot else set())
        advised = setup.with_advice(advice)
        return any(
            self.accepted(Setup(start.stage, start.options, advised.settings), keep) is not None
            for start in self.fitting(advised.options)
        )


def exists(advice: Advice) -> bool:
    """Whether the option that is advised exists."""
    return advice.option in (None, Option("extension", NONE), *options_of([advice.slot] if advice.slot else []))


def names(text: str, option: Option) -> bool:
    """Whether a message names an option, as it is written or by its class."""
    return any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in _words(option))


@lru_cache(maxsize=1024)
def _words(option: Option) -> tuple[str, ...]:
    name = next(targets(read_option(*option))).rpartition(".")[2]
    return option.name, option.name.replace("_", " "), name
