"""Probe of a position table: whether a linear map shifts it, before, within and after its training."""

from __future__ import annotations

import copy

from swapformer.measure.position_table import PositionTable
from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe
from swapformer.ranges import Count, Fraction, Natural, NonNegative, Positive
from swapformer.task.base import Task


class TrainedTable(Probe):
    """The measurements of `measure.PositionTable` on a model that trains: `probe/shift/free@k` and its other metrics.

    Shapes, formulas and arguments are those of `PositionTable`; only rows that the training reads are trained.
    """

    def __init__(
        self,
        *,
        rows: Count,
        shifts: list[Count],
        held_out: Fraction,
        ridges: list[NonNegative],
        base: Positive,
        seed: Natural,
    ) -> None:
        self.measured = PositionTable(rows=rows, shifts=shifts, held_out=held_out, ridges=ridges, base=base, seed=seed)

    def unsuited(self, model: Topology, task: Task) -> str | None:
        return self.measured.unsuited(model, task)

    def measure(self, model: Topology, task: Task) -> Finding:
        found = self.measured.of(copy.deepcopy(model))
        return Finding({f"probe/{name}": value for name, value in found.metrics.items()}, found.shapes)
