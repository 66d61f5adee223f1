"""Which trials of two studies may be paired: those that nothing but the study tells apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from swapformer.report import number_format
from swapformer.report.figures.tooltips import interval_text
from swapformer.report.records import Records
from swapformer.report.statistics.estimates import mean_estimate

SAME = {"environment": "environment", "data": "data", "budget": "budget", "epoch": "results epoch"}
"""What two trials must share to be paired: column of the cells → in words."""
MEASURED_ON = ("task.", "eval.final_batches")
"""Settings under which two studies measure on different things, though the data be the same."""


@dataclass(frozen=True)
class Difference:
    """B − A of one arm in one metric over the seeds that may be paired, with its 95 % t interval.

    `apart`: how many common seeds may not, by what differs; `same`: how many are one and the same trial.
    """

    value: float
    lower: float
    upper: float
    n: int
    apart: Mapping[str, int]
    same: int

    @property
    def text(self) -> str:
        """The difference, or why there is none."""
        if self.n:
            same = f", {self.same} of {self.n} are the same trial" if self.same else ""
            return f"{interval_text(self.value, self.lower, self.upper, signed=True)} ({self.n} seeds{same})"
        if self.apart:
            return f"not paired: other {number_format.listed(list(self.apart))}"
        return "no seed in common"


def joined(a: Records, b: Records, other_measure: bool) -> pd.DataFrame:
    """The cells that both studies finished, by arm, condition and seed, with what tells them apart in `apart`."""
    keys = ["arm", "condition", "seed"]
    tables = []
    for records in (a, b):
        cells = records.cells[records.cells["status"] == "finished"]
        budget = (
            cells["steps"].map(number_format.large) + " steps, " + cells["tokens"].map(number_format.large) + " tokens"
        )
        tables.append(cells.assign(budget=budget)[[*keys, "trial", *SAME]])
    together = tables[0].merge(tables[1], on=keys, suffixes=("_a", "_b"))
    wrong = {words: together[f"{column}_a"] != together[f"{column}_b"] for column, words in SAME.items()}
    if other_measure:
        wrong["data"] = pd.Series(True, index=together.index)
    apart = [[words for words, column in wrong.items() if column[index]] for index in together.index]
    for name, records in (("a", a), ("b", b)):
        values = records.metrics.pivot_table(index=keys, columns="metric", values="value")
        together = together.join(values.add_suffix(f"_{name}"), on=keys)
    return together.assign(apart=pd.Series(apart, index=together.index, dtype=object))


def difference(together: pd.DataFrame, arm: str, condition: str, metric: str) -> Difference:
    """Of what `joined` gave: an arm's difference in a metric, in one condition."""
    rows = together[(together["arm"] == arm) & (together["condition"] == condition)]
    nothing = pd.Series(np.nan, index=rows.index)
    values = rows.get(f"{metric}_b", nothing) - rows.get(f"{metric}_a", nothing)
    rows, values = rows[values.notna()], values[values.notna()]
    fit = np.array([not apart for apart in rows["apart"]], dtype=bool)
    paired = values.to_numpy(dtype=float)[fit]
    apart = Counter(words for each in rows["apart"][~fit] for words in each)
    same = int((rows["trial_a"] == rows["trial_b"])[fit].sum())
    estimate = mean_estimate(paired)
    return Difference(estimate.value, estimate.lower(0.025), estimate.upper(0.025), len(paired), apart, same)
