"""What a look saw of a claim, in short, so that a look is known to be at other values than before.

The verdict of a look holds for the values that it judged. A trial that was deleted, run again or measured once more, an
arm that moves the shortest horizon of all times, or a target that another arm sets may give its claims other values.
They are then judged at the next look, as claims that nobody has judged yet.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from swapformer.report.derive import target_arms, ways_of
from swapformer.report.records import Records
from swapformer.report.statistics.claim_identity import derived_from
from swapformer.report.statistics.claims import Claim
from swapformer.results.ledger import CellName, digest
from swapformer.results.manifest import Manifest
from swapformer.results.record import DIVERGED, FINISHED


class JudgedValues:
    """The values of all trials of a study."""

    def __init__(self, records: Records) -> None:
        columns = (records.cells[name] for name in ("condition", "arm", "seed", "status", "environment"))
        self._ends = {
            (str(at), str(arm), int(seed)): (str(status), str(where))
            for at, arm, seed, status, where in zip(*columns, strict=True)
        }
        measured = records.metrics[["condition", "arm", "seed", "metric", "value"]].itertuples(index=False, name=None)
        self._values = {(str(at), str(arm), int(seed), str(name)): value for at, arm, seed, name, value in measured}
        self._unreached = records.unreached

    def of(self, claim: Claim, condition: str, seeds: Collection[int], absent: Collection[CellName]) -> str:
        """A digest of what a claim is about with these seeds, without the cells that had no result.

        Of each trial how and where it ended, and each value to nine digits, which survive another version of numpy.
        """
        found, without = [], frozenset(absent)
        for arm, at in sorted(claim.cells(condition, ())):
            for seed in sorted(seeds):
                cell = (at, arm, seed)
                status, where = self._ends.get(cell, ("", ""))
                if status not in (FINISHED, DIVERGED) or cell in without:
                    continue
                values = [self._values.get((*cell, metric), math.nan) for metric in claim.metrics]
                cut = [(*cell, metric) in self._unreached for metric in claim.metrics]
                found.append([*cell, status, where, [f"{value:.9g}" for value in values], cut])
        return digest(found)


def cells_of(claim: Claim, condition: str, manifest: Manifest) -> set[tuple[str, str]]:
    """The arms that a claim waits for, each with its condition: its own, and those that set the target of its times."""
    own = claim.cells(condition, ())
    targets = target_arms(ways_of(manifest.derive, manifest.claims))
    setters = {targets[name][0] for name in derived_from(claim.metrics, manifest) if name in targets}
    return own | {(arm, at) for _, at in own for arm in setters}
