"""How often verdicts are wrong, intervals cover and claims are decided, simulated for laws that seeds may follow.

Every study has six arms and eight claims: five arms above the baseline by more than a margin, two within it, and the
baseline below all of them. At the edge, every margin is exactly the true difference, so that one of the two verdicts on
a claim would be wrong on either side of it; for power, the arms lie two standard deviations of a difference further up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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
            cells = [" ".join(f"{share:.3f}".removeprefix("0") for share in row[column]) for column in columns]
            lines.append("| " + " | ".join([name, *cells]) + " |")
        of = "all choices of committed seeds" if self.studies is None else f"{self.studies} studies a cell"
        return "\n".join([*lines, "", f"n = {', '.join(map(str, self.seeds))}; {of}.", ""])


def measure(studies: int, seed: int) -> Iterator[Simulated]:
    """The tables of laws, families and kinds of claims, with so many studies in each cell (of kinds 2000 at most)."""
    from benchmarks.statistics.committed import committed_studies, decided_share
    from benchmarks.statistics.kinds import case_shares, cases
    from benchmarks.statistics.laws import committed_laws, synthetic_laws
    from benchmarks.statistics.shares import family_shares, law_shares

    def table(title: str, cells: Mapping[str, list[dict[str, float]]]) -> Simulated:
        rows = {name: {key: tuple(cell[key] for cell in row) for key in row[0]} for name, row in cells.items()}
        return Simulated(title, SEEDS, rows, studies)

    laws = [*synthetic_laws(), *committed_laws()]
    yield table("law of the seeds", {law.name: [law_shares(law, n, studies, seed) for n in SEEDS] for law in laws})
    families = {
        f"{size} claims {where}{', correlation .65' if correlation else ''}": (size, far, correlation)
        for size in (2, 8, 30)
        for far, where in ((False, "at their edges"), (True, "of which half are clear"))
        for correlation in (0.0, 0.65)
    }
    yield table(
        "claims that share a baseline",
        {name: [family_shares(*family, n, studies, seed) for n in SEEDS] for name, family in families.items()},
    )
    alone = min(studies, ONE_BY_ONE)
    kinds = {case.name: [case_shares(case, n, alone, seed) for n in SEEDS] for case in cases()}
    yield replace(table("other kinds of claims, at their edges", kinds), studies=alone)
    fewer = (3, 5, 6, 8)
    shares = {
        name: {"decided": tuple(decided_share(folder, n) for n in fewer)}
        for name, folder in committed_studies().items()
    }
    yield Simulated("claims of committed studies", fewer, shares, None)
