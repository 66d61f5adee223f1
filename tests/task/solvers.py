"""Slow solvers of the synthetic tasks: they read the written sequence alone, with no code of the generators.

A solver of questions gives the answer to a question. A solver of sequences gives, for each place, the tokens that may
follow what stands before it: where there is one only, it is determined.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

Words = Sequence[str]


def copied(task: Any, asked: Words) -> list[str]:
    return list(asked)


def turned(task: Any, asked: Words) -> list[str]:
    return list(asked)[::-1]


def ascending(task: Any, asked: Words) -> list[str]:
    return sorted(asked, key=int)


def largest(task: Any, asked: Words) -> list[str]:
    return [str(max(map(int, asked)))]


def odd(task: Any, asked: Words) -> list[str]:
    return [str("".join(asked).count("1") % 2)]


def counted(task: Any, asked: Words) -> list[str]:
    *symbols, mark, wanted = asked
    assert mark == "#"
    return list(str(symbols.count(wanted)))


def added_modulo(task: Any, asked: Words) -> list[str]:
    first, plus, second = asked
    assert plus == "+"
    return [str((int(first) + int(second)) % task.modulus)]


def added(task: Any, asked: Words) -> list[str]:
    first, second = "".join(asked).split("+")
    answer = str(int(first) + int(second)).rjust(max(len(first), len(second)) + 1 if task.zero_padded else 0, "0")
    return list(answer[::-1] if task.reversed else answer)


CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">", "(4": ")4"}


def stack_of(asked: Words) -> list[str]:
    """What is still open; fails where a bracket closes the wrong one."""
    stack: list[str] = []
    for word in asked:
        if word in CLOSING:
            stack.append(word)
        else:
            assert CLOSING[stack.pop()] == word
    return stack


def closed(task: Any, asked: Words) -> list[str]:
    assert all(len(stack_of(asked[:end])) <= task.depth for end in range(len(asked)))
    return [CLOSING[word] for word in reversed(stack_of(asked))]


def looked_up(task: Any, asked: Words) -> list[str]:
    _, entity, relation = asked
    return [f"v{int(task.facts[int(entity[1:]), int(relation[1:])])}"]


def evaluated(task: Any, asked: Words) -> list[str]:
    deepest = 0

    def value(words: Iterator[str], depth: int) -> int | None:
        nonlocal deepest
        word = next(words)
        if word == "]":
            return None
        if word.isdigit():
            return int(word)
        deepest = max(deepest, depth)
        arguments = []
        while (argument := value(words, depth + 1)) is not None:
            arguments.append(argument)
        assert 2 <= len(arguments) <= task.arguments
        if word == "[SM":
            return sum(arguments) % 10
        return int({"[MIN": min, "[MAX": max, "[MED": statistics.median}[word](arguments))  # type: ignore[operator]

    words = iter(asked)
    found = value(words, 1)
    assert next(words, None) is None and deepest <= task.depth
    return [str(found)]


FREE = ["?", "??"]
"""Stands for several tokens that may follow, whichever they are."""


def goes_on(task: Any, before: Words) -> list[str]:
    """Periodic: by every period that what stands there could have."""
    found = set()
    for period in range(task.periods[0], task.periods[1] + 1):
        motif = before[:period]
        if len(set(motif)) == len(motif) and all(word == motif[i % period] for i, word in enumerate(before)):
            found |= {before[len(before) - period]} if len(before) >= period else set(FREE)
    return sorted(found)


def comes_next(task: Any, before: Words) -> list[str]:
    """Ordered: by every stride that what stands there could have."""
    if not before:
        return FREE
    order = task.tokens[: task.symbols]
    places = [order.index(word) for word in before]
    strides = [
        stride
        for stride in range(1, task.strides + 1)
        if all((right - left - stride) % len(order) == 0 for left, right in pairwise(places))
    ]
    return sorted({order[(places[-1] + stride) % len(order)] for stride in strides})


def comes_again(task: Any, before: Words) -> list[str]:
    """Induction: by every length of the passage that what stands there could have, however long."""
    found: set[str] = set()
    for length in range(2, len(before) + 2):
        again = length + task.distractors
        once = before[:again]
        if len(set(once)) == len(once) and all(word == once[i % again] for i, word in enumerate(before)):
            found |= {before[len(before) - again]} if len(before) >= again else set(FREE)
    return sorted(found)


def may_stand(task: Any, before: Words) -> list[str]:
    """Dyck: every opening bracket where there is depth left, and the one that closes."""
    stack = stack_of(before)
    opening = list(task.tokens[: task.kinds]) if len(stack) < task.depth else []
    return opening + ([CLOSING[stack[-1]]] if stack else [])


def paired(task: Any, before: Words) -> list[str]:
    """Recall and needle: a key that was there is followed by what followed it then."""
    if not before or before[-1][0] != "k" or before[-1] not in before[:-1]:
        return FREE
    return [before[list(before).index(before[-1]) + 1]]


def referred(task: Any, before: Words) -> list[str]:
    """Coreference: a pronoun is followed by the last name that was followed by its feature, or has it for good."""
    if not before or before[-1][0] != "p":
        return FREE
    if task.fixed:
        feature = int(before[-1][1:])
        return [next(word for word in reversed(before) if word[0] == "n" and int(word[1:]) % task.features == feature)]
    named = [i for i, word in enumerate(before) if word[0] == "f" and word[1:] == before[-1][1:]]
    return [before[named[-1] - 1]]


def said(task: Any, before: Words) -> list[str]:
    """Dialogue: after speaker and topic the word of `back` turns ago, then the speaker's for the topic if it is known.

    In rounds, where no noise ends a turn, who spoke as many turns ago as there are speakers begins the next.
    """
    turns: list[list[str]] = []
    for word in before:
        if word[0] == "s":
            turns.append([])
        turns[-1].append(word)
    if not turns:
        return FREE
    own = [turn[2 if number < task.back else 3] for number, turn in enumerate(turns[:-1])]
    known = {tuple(turn[:2]): word for turn, word in zip(turns[:-1], own, strict=True)}
    here, takes_up = turns[-1], len(own) >= task.back
    if len(here) == 2 and takes_up:
        return [own[-task.back]]
    if len(here) == 2 + takes_up and tuple(here[:2]) in known:
        return [known[tuple(here[:2])]]
    if task.rounds and len(here) == 3 + takes_up and len(turns) >= task.speakers:
        return [turns[-task.speakers][0]]
    return FREE


Solver = Callable[[Any, Words], list[str]]
