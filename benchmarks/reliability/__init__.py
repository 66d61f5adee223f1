"""Reliability of a store, on real trials that are disturbed: nearly every figure counts what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks.measurement import Figure

DISTURBANCES = ("kills", "parents", "disk", "truncation", "clock", "size")


def measure(
    names: Sequence[str], kills: int, offsets: int, listed: int, reported: int, seed: int, rounds: int
) -> Iterator[Figure]:
    """The figures of the named disturbances, or of all; the options are those of `python -m benchmarks reliability`."""
    from benchmarks.reliability import clock, files, large_stores, processes

    disturbances: Mapping[str, Callable[[], Iterable[Figure]]] = {
        "kills": lambda: processes.measure_kills(kills, seed),
        "parents": lambda: processes.measure_parents(20),
        "disk": lambda: files.measure_full_disk(offsets),
        "truncation": lambda: files.measure_cut_files(offsets),
        "clock": lambda: clock.measure_clock(10),
        "size": lambda: large_stores.measure_large_stores(listed, reported, rounds),
    }
    for name in names or DISTURBANCES:
        yield from disturbances[name]()
