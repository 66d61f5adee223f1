"""Metrics of answers that are symbols or classes, with the standard errors of means.

torchmetrics' own Perplexity, MulticlassAccuracy and MulticlassExactMatch are the tests' oracles. They are not used here
because each of them works through the logits again, and because they answer 0 where nothing was measured.
Macro F1 and calibration are torchmetrics' own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassCalibrationError, MulticlassF1Score

from swapformer.interface import IGNORE
from swapformer.task.measures import MEASURES, SequenceSums
from swapformer.task.measures import directions_of as directions_of  # tasks of one's own look for both here


class SequenceMetric(Metric):
    """One measure of teacher-forced answers; `update(logits [B,T,V], targets [B,T])`, NaN where nothing was measured.

    Where a sequence has one answer: `update(logits [B,V], targets [B])`.

    `token_bytes` [V]: UTF-8 bytes that each token stands for (default 1). All measures keep the same state, so a
    MetricCollection works it out once for all of them: that is why the state holds more than one measure needs.
    """

    full_state_update = False
    nats: list[Tensor]
    counts: list[Tensor]
    token_bytes: Tensor | None

    def __init__(self, measure: Callable[[SequenceSums], Tensor], token_bytes: Tensor | None = None) -> None:
        super().__init__()
        self.measure = measure
        self.register_buffer("token_bytes", token_bytes, persistent=False)
        self.add_state("nats", default=[], dist_reduce_fx="cat")
        self.add_state("counts", default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        if targets.ndim == 1:
            logits, targets = logits.unsqueeze(1), targets.unsqueeze(1)
        scored = targets != IGNORE
        nats = cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE, reduction="none"
        ).view_as(targets)
        hits = logits.argmax(-1) == targets
        sizes = scored if self.token_bytes is None else self.token_bytes[targets.clamp(min=0)] * scored
        self.nats.append(nats.sum(1))
        self.counts.append(torch.stack([scored.sum(1), hits.sum(1), sizes.sum(1)], dim=1))

    def compute(self) -> Tensor:
        return self.measure(self._rows()).to(device=self.device, dtype=torch.float32)

    def items(self) -> Tensor:
        """nats, tokens, hits, bytes, matches and 1 of each sequence with targets, in their order: float64 [N, 6]."""
        rows = self._rows()
        return torch.stack([*rows, (rows.hits == rows.tokens).double(), torch.ones_like(rows.tokens)], dim=1)

    def _rows(self) -> SequenceSums:
        # Summed on the CPU in float64: MPS has none, and the sums of a long evaluation lose digits in float32.
        nats = joined_state(self.nats, torch.empty(0))
        counts = joined_state(self.counts, torch.empty(0, 3))
        keep = counts[:, 0] > 0
        return SequenceSums(nats[keep], *counts[keep].unbind(1))


def joined_state(state: list[Tensor] | Tensor, empty: Tensor) -> Tensor:
    """A list state as one float64 tensor on the CPU, in one transfer; torchmetrics may have joined it already."""
    joined = state if isinstance(state, Tensor) else torch.cat(state) if state else empty
    return joined.detach().cpu().double()


def sequence_metrics(names: Iterable[str], token_bytes: Tensor | None = None) -> MetricCollection:
    """The named MEASURES as one collection that goes through each batch once."""
    metrics: dict[str, Any] = {name: SequenceMetric(MEASURES[name], token_bytes) for name in names}
    return MetricCollection(metrics, compute_groups=[list(metrics)])


_SHARED = ("loss", "loss_se", "accuracy", "accuracy_se")


class MacroF1(MulticlassF1Score):
    """Mean over the classes of 2·hits / (answers + targets) of a class; classes with neither do not count.

    `update(logits [… ,C], targets […])`; NaN where nothing was measured.
    """

    measured: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__(classes, average="macro", validate_args=False)
        self.add_state("measured", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        logits, targets = _scored(logits, targets)
        self.measured = self.measured + len(targets)
        if len(targets):
            super().update(logits.argmax(-1), targets)

    def compute(self) -> Tensor:
        # torchmetrics would answer 0 where nothing was measured.
        return torch.where(self.measured > 0, super().compute(), math.nan)


class CalibrationError(MulticlassCalibrationError):
    """Expected calibration error: Σ (bin's share) · |accuracy − mean confidence| over 15 equal bins of confidence.

    The confidence is the probability of the most probable class (Guo et al. 2017, arXiv:1706.04599). `update(logits
    [… ,C], targets […])`; NaN where nothing was measured or a logit is not a number.
    """

    invalid: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__(classes, n_bins=15, norm="l1", validate_args=False)
        self.add_state("invalid", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        logits, targets = _scored(logits, targets)
        # Probabilities, since torchmetrics takes logits that all lie between 0 and 1 for probabilities already.
        probabilities = logits.softmax(-1)
        self.invalid = self.invalid + probabilities.isnan().any()
        if len(targets):
            super().update(probabilities.nan_to_num(0.0), targets)

    def compute(self) -> Tensor:
        if self.invalid or len(self.confidences) == 0:
            return torch.tensor(math.nan, device=self.device)
        return super().compute()


def _scored(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The logits [N,C] and targets [N] of the positions that have a target."""
    there = targets != IGNORE
    return logits[there], targets[there]


def class_metrics(classes: int) -> MetricCollection:
    """Loss and accuracy with their standard errors over sequences, macro F1 and calibration error."""
    metrics: dict[str, Any] = {name: SequenceMetric(MEASURES[name]) for name in _SHARED}
    metrics |= {"macro_f1": MacroF1(classes), "calibration_error": CalibrationError(classes)}
    return MetricCollection(metrics, compute_groups=[list(_SHARED), ["macro_f1"], ["calibration_error"]])
