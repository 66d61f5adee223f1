"""Judges pairs of options: they work together on some stage, or a refusal names both and an alternative that works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evidence.pairs.stages import Option, Settings, Stage, options_of
from swapformer.catalogue import NONE
from swapformer.catalogue import option as read_option
from swapformer.targets import targets
from swapformer.training.assemble import SLOTS
from swapformer.yaml_reader import parse_yaml

_CHOICE = re.compile(r"model/([a-z_]+)=(\w+|\[\])")
_MORE = re.compile(r"(?:, or |, | or )(\w+)")
_SETTING = re.compile(r"\b(trainer|allow|(?:model|task|trainer)(?:\.[a-z_]+)+)=(\[[^\]]*\]|[\w.-]*\w)")


@dataclass(frozen=True)
class Advice:
    """A change that a refusal recommends: an option in a slot, or another setting."""

    key: str
    value: Any

    @property
    def slot(self) -> str:
        """The slot whose part or setting it changes; empty for neither."""
        words = self.key.replace("/", ".").split(".")
        return words[1] if words[0] == "model" and len(words) > 1 and words[1] in SLOTS else ""

    @property
    def option(self) -> Option | None:
        """The option that it names, if it names one."""
        return Option(self.slot, self.value) if self.key.startswith("model/") else None

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


def advised(text: str) -> list[Advice]:
    """The advice in a message: every `model/slot=option`, with the options listed behind it, and every `key=value`.

    Advice in words alone (“shorten the task's evaluation lengths”) is not read.
    """
    return list(dict.fromkeys([*_choices(text), *_settings(text)]))


def _choices(text: str) -> Iterator[Advice]:
    for found in _CHOICE.finditer(text):
        slot, name = found.groups()
        yield Advice(f"model/{slot}", name)
        known, end = {option.name for option in options_of([slot])}, found.end()
        while (more := _MORE.match(text, end)) is not None and more[1] in known:
            yield Advice(f"model/{slot}", more[1])
            end = more.end()


def _settings(text: str) -> Iterator[Advice]:
    for key, value in _SETTING.findall(text):
        read = parse_yaml(value)
        yield Advice(key, tuple(read) if isinstance(read, list) else read)


Choice = frozenset[Option]
Pair = tuple[Option, Option]

MAX_ADVICE = 3
"""Pieces of advice about other slots that are followed, one after the other, before a pair counts as refused."""


@dataclass(frozen=True)
class Setup:
    """A choice of options and settings on a stage."""

    stage: Stage
    options: Choice
    settings: Settings = ()

    def with_advice(self, advice: Advice) -> Setup:
        """The setup changed by a piece of advice."""
        if (option := advice.option) is None:
            return Setup(self.stage, self.options, (*self.settings, (advice.key, advice.value)))
        others = frozenset(other for other in self.options if other.slot != option.slot)
        return Setup(self.stage, others | {option}, self.settings)

    @property
    def overrides(self) -> list[str]:
        """The setup as Hydra overrides."""
        own = [str(option) for option in sorted(self.options)]
        return own + [f"{key}={list(value) if isinstance(value, tuple) else value}" for key, value in self.settings]


@dataclass(frozen=True)
class PairVerdict:
    """Whether a pair of options works together.

    `setup`: the configuration in which they work together, or were refused. `reasons`: the study's reasons for refusing
    them; none where they work. `faults`: defects of the refusal.
    """

    pair: Pair
    setup: Setup
    reasons: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def compatible(self) -> bool:
        return not self.reasons


class Judge:
    """Judges pairs of options on stages, the most usual one first; remembers the problems of each setup."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages
        self._known: dict[tuple[str, Choice, Settings], list[str]] = {}

    def problems(self, setup: Setup) -> list[str]:
        """The reasons for which the study would refuse the setup."""
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

    def judge(self, pair: Pair) -> PairVerdict:
        """The verdict on a pair: the first stage on which it works, or its best refusal."""
        refusals: list[Setup] = []
        for start in self.fitting(pair):
            found = self.accepted(start, {option.slot for option in pair}, refusals.append)
            if found is not None:
                return PairVerdict(pair, found)
        setup = max(refusals, key=lambda setup: self._clarity(pair, setup))
        faults = tuple(self._faults(pair, setup, refusals))
        return PairVerdict(pair, setup, tuple(self.problems(setup)), faults)

    def accepted(self, start: Setup, keep: set[str], refused: Callable[[Setup], object] = id) -> Setup | None:
        """The setup if it is accepted, or an accepted one that advice leads to without changing the slots `keep`.

        Setups that stay refused after all such advice are handed to `refused`.
        """
        seen, wave = {start}, [start]
        for _ in range(MAX_ADVICE + 1):
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
        """How clear a refusal is: it names both options, and has no other reasons."""
        problems = self.problems(setup)
        return sum(names(" ".join(problems), option) for option in pair), -len(problems)

    def _faults(self, pair: Pair, setup: Setup, refusals: Sequence[Setup]) -> Iterator[str]:
        """Defects of a refusal: it must name both options and an alternative, and each alternative must work.

        Where no task suits both options, each is named by the refusal on a stage that suits the other.
        """
        said = " ".join(self.problems(setup))
        for option, other in (pair, pair[::-1]):
            elsewhere = (" ".join(self.problems(each)) for each in refusals)
            if not names(said, option) and not any(
                names(each, option) and not names(each, other) for each in elsewhere
            ):
                yield f"it does not name {option}"
        ways = advised(said)
        if not ways:
            yield "it names no alternative that could be chosen"
        for advice in ways:
            if not self.works(setup, advice, {option.slot for option in pair}):
                yield f"its alternative {advice} does not work"

    def works(self, setup: Setup, advice: Advice, keep: set[str]) -> bool:
        """Whether some stage accepts the advised setup, with advice about other slots followed."""
        if not exists(advice):
            return False
        keep = keep | ({advice.slot} if advice.slot else set())
        advised = setup.with_advice(advice)
        return any(
            self.accepted(Setup(start.stage, start.options, advised.settings), keep) is not None
            for start in self.fitting(advised.options)
        )


def exists(advice: Advice) -> bool:
    """Whether the advised option exists."""
    return advice.option in (None, Option("extension", NONE), *options_of([advice.slot] if advice.slot else []))


def names(text: str, option: Option) -> bool:
    """Whether a message names an option, by its name or by its class."""
    return any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in _words(option))


@lru_cache(maxsize=1024)
def _words(option: Option) -> tuple[str, ...]:
    name = next(targets(read_option(*option))).rpartition(".")[2]
    return option.name, option.name.replace("_", " "), name
