"""What a store survives, tried out on real trials: nearly every figure is a count of what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks.figure import Figure

Options = Mapping[str, int]


def _kills(options: Options) -> list[Figure]:
    from benchmarks.reliability.kills import survived

    return survived(options["kills"], options["seed"])


def _parents(options: Options) -> list[Figure]:
    from benchmarks.reliability.parents import shared

    return shared(20)


def _disk(options: Options) -> list[Figure]:
    from benchmarks.reliability.disk import full

    return full(options["offsets"])


def _truncation(options: Options) -> list[Figure]:
    from benchmarks.reliability.truncation import truncated

    return truncated(options["offsets"])


def _clock(options: Options) -> list[Figure]:
    from benchmarks.reliability.clock import jumping

    return jumping(10)


def _size(options: Options) -> list[Figure]:
    from benchmarks.reliability.large_stores import grown

    return grown(options["listed"], options["reported"], options["rounds"])


DISTURBANCES: Mapping[str, Callable[[Options], Iterable[Figure]]] = {
    "kills": _kills,
    "parents": _parents,
    "disk": _disk,
    "truncation": _truncation,
    "clock": _clock,
    "size": _size,
}
"""What can be tried out, by name; each imports its module when it is asked for."""


def measure(names: Sequence[str], options: Options) -> Iterator[Figure]:
    """The figures of the named disturbances, or of all."""
    for name in names or DISTURBANCES:
        yield from DISTURBANCES[name](options)
