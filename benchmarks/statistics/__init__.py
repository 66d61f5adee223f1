"""How often verdicts are wrong, intervals cover and claims are decided, simulated for laws that seeds may follow.

Every study has six arms and eight claims: five arms above the baseline by more than a margin, two within it, and the
baseline below all of them. At the edge, every margin is exactly the true difference, so that one of the two verdicts on
a claim would be wrong on either side of it; for power, the arms lie two standard deviations of a difference further up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SEEDS = (3, 5, 8, 16)
ONE_BY_ONE = 2000
"""Studies of a cell at most, where each is judged alone and not all at once."""


@dataclass(frozen=True)
class Simulated:
    """A table of simulated shares: `rows[name][column]` has one for each number of seeds."""

    title: str
    seeds: tuple[int, ...]
    rows: Mapping[str, Mapping[str, tuple[float, ...]]]
    studies: int | None

    def line(self) -> str:
        """The table in Markdown."""
        columns = list(next(iter(self.rows.values())))
        lines = ["| " + " | ".join([self.title, *columns]) + " |", "|---" * (1 + len(columns)) + "|"]
        for name, row in self.rows.items():
            cells = [" ".join(map(_text, row[column])) for column in columns]
            lines.append("| " + " | ".join([name, *cells]) + " |")
        said = [f"n = {', '.join(map(str, self.seeds))}"] if self.seeds else []
        said += [] if self.studies is None else [f"{self.studies} studies a cell"]
        return "\n".join([*lines, "", *([f"{'; '.join(said)}.", ""] if said else [])])


def _text(share: float) -> str:
    """A share to three digits; a dash where no study of a cell had it."""
    return "–" if math.isnan(share) else f"{share:.3f}".removeprefix("0")


TABLES = (
    "laws", "families", "opposed", "kinds", "intervals", "ranges", "groups", "looks", "paths", "committed", "ladders",
)  # fmt: skip
FEWER = (3, 5, 8)
Row = dict[str, float]


def measure(tables: Sequence[str], studies: int, seed: int) -> Iterator[Simulated]:
    """The tables of these names, or all, with so many studies in each cell; fewer where each is worked out alone."""
    for name in tables or TABLES:
        yield from _MADE[name](studies, seed)


def _table(
    title: str, cells: Mapping[str, list[Row]], studies: int | None, seeds: tuple[int, ...] = SEEDS
) -> Simulated:
    rows = {name: {key: tuple(cell[key] for cell in row) for key in row[0]} for name, row in cells.items()}
    return Simulated(title, seeds, rows, studies)


def _laws(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.laws import committed_laws, synthetic_laws
    from benchmarks.statistics.shares import law_shares

    laws = [*synthetic_laws(), *committed_laws()]
    cells = {law.name: [law_shares(law, n, studies, seed) for n in SEEDS] for law in laws}
    yield _table("law of the seeds", cells, studies)


def _families(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.shares import family_shares

    families = {
        f"{size} claims {where}{', correlation .65' if correlation else ''}": (size, far, correlation)
        for size in (2, 8, 30)
        for far, where in ((False, "at their edges"), (True, "of which half are clear"))
        for correlation in (0.0, 0.65)
    }
    cells = {name: [family_shares(*family, n, studies, seed) for n in SEEDS] for name, family in families.items()}
    yield _table("claims that share a baseline", cells, studies)


def _opposed(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.design import opposed_bound, opposed_shares

    cells = {
        f"{size} claims, every other one the other way{text}": [
            opposed_shares(size, correlation, n, studies, seed) for n in SEEDS
        ]
        for size in (2, 4, 8)
        for correlation, text in ((0.0, ""), (0.65, ", correlation .65"))
    }
    yield _table("claims of opposite directions, at their edges", cells, studies)
    bounds = {f"statistics correlate by {at / 10:g}": [{"error": opposed_bound(at / 10)}] for at in (0, 3, 5, 7, 8, 9)}
    yield _table("two opposed claims, normal statistics", bounds, None, ())


def _kinds(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.kinds import case_shares, cases

    alone = min(studies, ONE_BY_ONE)
    cells = {case.name: [case_shares(case, n, alone, seed) for n in SEEDS] for case in cases()}
    yield _table("other kinds of claims, at their edges", cells, alone)


def _intervals(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.design import FEW, missing_intervals

    alone = min(studies, FEW)
    cells = {
        f"{clear} of eight claims clear": [missing_intervals(clear, n, alone, seed) for n in SEEDS]
        for clear in (0, 4, 7)
    }
    yield _table("intervals that miss", cells, alone)


def _ranges(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.design import laws_of_ranges, range_chances

    alone = min(studies, 1000)
    cells = {
        name: [range_chances(distance, error, n, alone, seed) for n in FEWER]
        for name, distance, error in laws_of_ranges()
    }
    yield _table("undecided studies, run again with more seeds", cells, alone, FEWER)


def _groups(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.design import FEW, group_shares

    alone, seeds = min(studies, FEW), (5, 8, 16)
    laws = ("two modes 50 standard deviations apart", "lognormal", "normal")
    yield _table("samples", {law: [group_shares(law, n, alone, seed) for n in seeds] for law in laws}, alone, seeds)


def _looks(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.design import uncounted_looks

    paths = {
        "5, then 8 seeds": (5, 8),
        "3, 5, then 8 seeds": (3, 5, 8),
        "every number from 3 to 20": tuple(range(3, 21)),
    }
    cells = {name: [{"false supported": uncounted_looks(path, studies, seed)}] for name, path in paths.items()}
    yield _table("looks that nobody counts", cells, studies, ())


def _paths(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.paths import paths

    cells = {name: [simulate(studies, seed)] for name, simulate in paths()}
    yield _table("paths: some verdict is wrong", cells, studies, ())


def _committed(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.committed import committed_studies, decided_share

    fewer = (3, 5, 6, 8)
    cells = {
        name: [{"decided": decided_share(folder, n)} for n in fewer] for name, folder in committed_studies().items()
    }
    yield _table("claims of committed studies, all choices of their seeds", cells, None, fewer)


def _ladders(studies: int, seed: int) -> Iterator[Simulated]:
    from benchmarks.statistics.ladders import ladder_cases, ladder_shares

    few = min(studies, ONE_BY_ONE)
    cells = {name: [ladder_shares(case, n, few, seed) for n in FEWER] for name, case in ladder_cases().items()}
    yield _table("ladders", cells, few, FEWER)


_MADE: Mapping[str, Callable[[int, int], Iterator[Simulated]]] = dict(
    zip(
        TABLES,
        (
            _laws,
            _families,
            _opposed,
            _kinds,
            _intervals,
            _ranges,
            _groups,
            _looks,
            _paths,
            _committed,
            _ladders,
        ),
        strict=True,
    )
)
