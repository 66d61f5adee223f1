"""What is measured of classifications: loss and accuracy as elsewhere, macro F1 and calibration by torchmetrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassCalibrationError, MulticlassF1Score

from swapformer.task.base import IGNORE, Direction
from swapformer.task.metrics import MEASURES, SequenceMetric

_SHARED = ("loss", "loss_se", "accuracy", "accuracy_se")

DIRECTIONS: Mapping[str, Direction] = {
    "loss": "lower",
    "accuracy": "higher",
    "macro_f1": "higher",
    "calibration_error": "lower",
}


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
    """The logits [N,C] and targets [N] of the places that have a target."""
    there = targets != IGNORE
    return logits[there], targets[there]


def class_metrics(classes: int) -> MetricCollection:
    """Loss and accuracy with their standard errors over sequences, macro F1 and calibration error."""
    metrics: dict[str, Any] = {name: SequenceMetric(MEASURES[name]) for name in _SHARED}
    metrics |= {"macro_f1": MacroF1(classes), "calibration_error": CalibrationError(classes)}
    return MetricCollection(metrics, compute_groups=[list(_SHARED), ["macro_f1"], ["calibration_error"]])
