"""A pairwise covering array: few configurations that hold every compatible pair between them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from swapformer.tools.pairs.judge import Judge, Pair, Setup, Verdict
from swapformer.tools.pairs.stages import Option, options_of
from swapformer.training.assemble import SLOTS

TRIES = 12
"""Options that are tried in a slot, those that cover most first, before its default stays."""


@dataclass(frozen=True)
class Row:
    """One configuration of the array, and the pairs that it is the first to hold."""

    setup: Setup
    covers: frozenset[Pair]


def pair(first: Option, second: Option) -> Pair:
    """Two options in the order of their names."""
    return (first, second) if first <= second else (second, first)


def every_pair(slots: Sequence[str] = SLOTS) -> list[Pair]:
    """Every two options of two of these slots."""
    found = options_of(slots)
    return [pair(one, other) for one, other in combinations(found, 2) if one.slot != other.slot]


def pairs_in(options: Mapping[str, str]) -> Iterator[Pair]:
    """The pairs that a choice for every slot holds."""
    for one, other in combinations(map(Option._make, options.items()), 2):
        yield pair(one, other)


def cover(verdicts: Iterable[Verdict], judge: Judge, seed: int = 0) -> Iterator[Row]:
    """Rows until every compatible pair is in one.

    Each row starts from an accepted setup of a pair that no row has, and takes, slot after slot, the option that adds
    most pairs that no row has and that the study accepts (a greedy algorithm as in AETG, Cohen et al. 1997).

    Args:
        verdicts: on the pairs in question.
        judge: says what is accepted.
        seed: of the order in which pairs are begun.
    """
    verdicts = list(verdicts)
    refused = {pair(*verdict.pair) for verdict in verdicts if not verdict.compatible}
    starts = {pair(*verdict.pair): verdict.setup for verdict in verdicts if verdict.compatible}
    order = sorted(starts)
    random.Random(seed).shuffle(order)
    missing = dict.fromkeys(order)
    while missing:
        first = next(iter(missing))
        setup = _filled(starts[first], judge, missing.keys(), refused)
        covers = frozenset(found for found in pairs_in(setup.stage.everywhere(setup.options)) if found in missing)
        assert first in covers, f"the row of {first} must hold it"
        for found in covers:
            del missing[found]
        yield Row(setup, covers)


def _filled(setup: Setup, judge: Judge, missing: Iterable[Pair], refused: set[Pair]) -> Setup:
    """The setup with options in its free slots, each chosen for the missing pairs that it adds."""
    missing = set(missing)
    partners: dict[Option, set[Option]] = {}
    for one, other in missing:
        partners.setdefault(one, set()).add(other)
        partners.setdefault(other, set()).add(one)
    free = set(SLOTS) - {option.slot for option in setup.options} - {"topology"}
    while free:
        chosen = setup.options | {Option("topology", setup.stage.topology)}
        gains = {
            option: gain
            for option, others in partners.items()
            if option.slot in free and (gain := len(others & chosen)) and not _clashes(option, chosen, refused)
        }
        if not gains:
            return setup
        slot = max(gains, key=lambda option: (gains[option], option)).slot
        ranked = sorted((option for option in gains if option.slot == slot), key=lambda o: (-gains[o], o))
        for option in ranked[:TRIES]:
            tried = Setup(setup.stage, setup.options | {option}, setup.settings)
            if not judge.problems(tried):
                setup = tried
                break
        free.discard(slot)
    return setup


def _clashes(option: Option, chosen: Iterable[Option], refused: set[Pair]) -> bool:
    return any(pair(option, other) in refused for other in chosen)
