"""Whether a verdict would hold for other text: the standard error over evaluated items beside that over seeds.

All arms are evaluated on the same items, so the error that matters is that of the contrast, item by item. Of a metric
Σa/Σb an item's share in the mean is linearised (Cochran, Sampling Techniques, 1977, section 6.4),

    u_i = K (a_i − (Σa/Σb) b_i) / Σb,    d_i = Σ weight · u_i over the terms,    SE_item = sd(d_i) / √K

over K items, or over groups of four neighbours where that is larger, and SE² = SE_seed² + SE_item² with the degrees of
freedom of Satterthwaite. That counts the interaction of seeds and items twice, which is cautious.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from swapformer.report.statistics.claim_fields import Term
from swapformer.report.statistics.estimates import (
    AroundEstimate,
    Estimate,
    FloatArray,
    IdenticalEstimate,
    ItemsEstimate,
    MeanEstimate,
    WiderEstimate,
    errors_together,
)
from swapformer.report.statistics.evidence import Evidence
from swapformer.results.items import COLUMNS

Elsewhere = Literal["", "on other text too", "on this text only", "on other samples too", "on these samples only"]
_Text = tuple[str, frozenset[str]]
"""An evaluation set, and the fingerprints of what was evaluated in it; none where that is not known."""
_RATIOS = {
    "loss": ("nats", "tokens", 1.0),
    "accuracy": ("hits", "tokens", 1.0),
    "exact_match": ("matches", "sequences", 1.0),
    "bits_per_byte": ("nats", "bytes", 1 / math.log(2)),
}
"""Metric → the sums that it is the ratio of, and its unit."""
MERGED, FEWEST_GROUPS = 4, 4
"""How many neighbouring items are merged, and with how few groups that says something."""
_TOKENS, _BYTES = COLUMNS.index("tokens"), COLUMNS.index("bytes")


def item_error(terms: Sequence[Term], evidence: Evidence) -> tuple[float, int] | None:
    """SE_item of a sum of metrics, and over how many items; None where items of some term were not kept.

    Of terms that score one text in items of several sizes, the largest are the items.
    """
    by_text: dict[_Text, list[tuple[float, str, FloatArray]]] = {}
    for term in terms:
        name, measure = _set_of(term.metric)
        rows = evidence.items_of(term.name).get(name)
        if rows is None or measure not in _RATIOS:
            return None
        by_text.setdefault(_text_of(term, by_text, evidence), []).append((term.weight, measure, rows))
    squares, counts = [], []
    for found in by_text.values():
        largest = min((rows for _, _, rows in found), key=len)
        total = np.zeros(len(largest))
        for weight, measure, rows in found:
            same = rows if len(rows) == len(largest) else _joined(rows, largest)
            share = None if same is None else _shares(same, measure)
            if share is None:
                return None
            total += weight * share
        if len(total) < 2:
            return None
        square, count = _square_error(total)
        squares.append(square)
        counts.append(count)
    return (math.sqrt(math.fsum(squares)), min(counts)) if counts else None


def _square_error(shares: FloatArray) -> tuple[float, int]:
    """The squared standard error of the sum of items' shares, and over how many items it was taken.

    Neighbours in a text are alike: with four of them merged the error may be larger, and then it counts.
    """
    square, count = float(shares.var(ddof=1)) / len(shares), len(shares)
    if (groups := len(shares) // MERGED) >= FEWEST_GROUPS:
        merged = shares[: groups * MERGED].reshape(groups, MERGED).mean(axis=1)
        if (larger := float(merged.var(ddof=1)) / groups) > square:
            return larger, groups
    return square, count


def is_over_items(metric: str) -> bool:
    """Whether a metric is that of an evaluation set, a ratio of sums over its items."""
    return metric.startswith(("val/", "test/")) and _set_of(metric)[1] in _RATIOS


def scores_other_tokens(terms: Sequence[Term], evidence: Evidence) -> bool:
    """Whether the terms of a sum are scored on different tokens."""
    texts: dict[_Text, None] = {}
    for term in terms:
        texts[_text_of(term, texts, evidence)] = None
    return len(texts) > 1


def _text_of(term: Term, known: Iterable[_Text], evidence: Evidence) -> _Text:
    """The evaluation set of a term and what was in it, or one of the `known` that scores the same tokens of a text.

    Sets of one split of a text that differ in the length of their blocks score the same tokens, with other context
    before them: their items then have the same numbers of tokens and of bytes, one by one, or several of one set those
    of one item of the other. Two sets of generated samples are always other samples.
    """
    name, _ = _set_of(term.metric)
    sets, what = evidence.items_of(term.name), evidence.evaluated.get(term.name, {})
    split = name.partition("@")[0]
    for text in known:
        other, there = text
        here = what.get(other, there)
        if other.partition("@")[0] != split or (here and there and here != there):
            continue
        if other == name:
            return text
        if evidence.generated or name not in sets or other not in sets:
            continue
        more, fewer = sorted((sets[name], sets[other]), key=len, reverse=True)
        if fewer[:, _BYTES].sum() > 0 and _joined(more, fewer) is not None:
            return text
    return name, what.get(name, frozenset())


def _joined(rows: FloatArray, items: FloatArray) -> FloatArray | None:
    """Sums over the rows that make up each of some larger items; None where no rows in their order do."""
    ends, wanted = (each[:, [_TOKENS, _BYTES]].cumsum(axis=0) for each in (rows, items))
    last = np.searchsorted(ends[:, 0], wanted[:, 0])
    if not len(last) or last[-1] != len(rows) - 1 or not np.array_equal(ends[last], wanted):
        return None
    return np.asarray(np.add.reduceat(rows, [0, *(last[:-1] + 1)], axis=0))


def widened(estimate: Estimate, error: float, items: int) -> Estimate:
    """An estimate over seeds with the error over items added; unchanged where it has that already, or is of no mean."""
    if isinstance(estimate, AroundEstimate):
        return replace(estimate, inner=widened(estimate.inner, error, items))
    if isinstance(estimate, IdenticalEstimate) and error > 0:  # its seeds show no spread, which is no proof of none
        return WiderEstimate(estimate, MeanEstimate(estimate.value, estimate.n, error, items - 1.0))
    if not isinstance(estimate, MeanEstimate) or isinstance(estimate, ItemsEstimate) or not error > 0:
        return estimate
    total, freedom = errors_together(estimate.standard_error, estimate.freedom, error, items)
    return ItemsEstimate(estimate.value, estimate.n, total, freedom, estimate, error, items)


def _set_of(metric: str) -> tuple[str, str]:
    """The evaluation set of a metric, and what it measures: `val/loss@64` → `val@64`, `loss`."""
    split, _, name = metric.partition("/")
    measure, at, length = name.partition("@")
    return f"{split}{at}{length}", measure


def _shares(rows: FloatArray, measure: str) -> FloatArray | None:
    """Each item's share in a metric's mean, less the mean; None where nothing was counted."""
    above, below, unit = _RATIOS[measure]
    a, b = rows[:, COLUMNS.index(above)], rows[:, COLUMNS.index(below)]
    if not b.sum() > 0:
        return None
    return np.asarray(unit * len(a) * (a - a.sum() / b.sum() * b) / b.sum())
