"""Probe of attention logits: how much they vary over the keys, and how near to one key the weights come."""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor

from swapformer.model import taps
from swapformer.model.normaliser import Entmax15, Sparsemax
from swapformer.model.topology import Topology
from swapformer.probes.analysis import logit_variance, slope_of_weights
from swapformer.probes.attention_statistics import WEIGHTS
from swapformer.probes.base import Finding, Probe, validation
from swapformer.ranges import Count
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import Profile, Shape
from swapformer.task.base import Batch, Task
from swapformer.training.inputs import model_inputs

LOGITS = "*.attn.hook_attn_scores"
"""The places where self-attentions show what their normaliser gets."""
_KINDS = {
    "logit_variance": ("Variance of the attention logits", "variance over the keys", True),
    "softmax_slope": ("Slope of the attention weights", "Σ (a − a²), over that of uniform weights", False),
}
"""Metric → title and axis of its figure, and whether that is logarithmic."""


class AttentionLogits(Probe):
    """Variance of the attention logits, and what is left of the slope of the weights: over all layers, and by layer.

    For a query with n ≥ 2 allowed keys, logits l_j (scale and biases among them) and weights a_j,
    `probe/logit_variance` is v = Σ_j (l_j − l̄)² / n, and `probe/softmax_slope` s = Σ_j (a_j − a_j²) / (1 − 1/n): the
    trace of the softmax's Jacobian diag(a) − a aᵀ over that of uniform weights, 1 where all keys count alike and 0
    where one key has all the weight, so that no gradient reaches queries and keys. For softmax1, sink, topk and
    sigmoid, s is the trace of their own Jacobian over the same number, and its maximum is not 1. Means over the queries
    of real tokens and the heads; `probe/logit_variance_by_layer@L` and `probe/softmax_slope_by_layer@L` are those of
    layer L, from 1. Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1, divide by √E lest softmax saturates.

    In an encoder-decoder it is the decoder's self-attention that is watched. Layers that form no logits are left out.

    Args:
        batches: validation batches at the training length.

    Raises:
        ValueError: for a model without attention logits, or with sparsemax or entmax, whose Jacobian is another.
    """

    def __init__(self, *, batches: Count) -> None:
        self.batches = batches

    def unsuited(self, model: Topology, task: Task) -> str | None:
        problem = taps.missing(model, LOGITS)
        if problem is not None:
            return f"attention_logits looks at attention logits: {problem}"
        if found := [type(part).__name__ for part in model.modules() if isinstance(part, Sparsemax | Entmax15)]:
            return f"attention_logits tells the slope of a softmax, but the normaliser is {found[0]}."
        return None

    def measure(self, model: Topology, task: Task) -> Finding:
        sums: dict[int, Tensor] = {}
        for batch in validation(model, task, self.batches):
            with taps.record(model, LOGITS, WEIGHTS) as seen:
                model(*model_inputs(batch))
            for name, logits in seen.items():
                if name.endswith("hook_attn_scores") and not name.startswith("encoder."):
                    layer = int(name.split(".")[1])
                    found = _sums(logits, seen[name.replace("hook_attn_scores", "hook_pattern")], batch)
                    sums[layer] = sums.get(layer, torch.zeros(())) + found
        means = {layer: (each[:2] / each[2]).tolist() for layer, each in sorted(sums.items())}
        metrics: dict[str, float] = {}
        shapes: dict[str, Shape] = {}
        for index, (kind, (title, axis, log)) in enumerate(_KINDS.items()):
            values = {layer + 1: found[index] for layer, found in means.items()}
            metrics[f"probe/{kind}"] = fmean(values.values())
            metrics |= {f"probe/{kind}{BY_LAYER}@{layer}": value for layer, value in values.items()}
            shapes[kind] = Profile(
                title, "A mean over queries and heads.", axis, "", list(map(str, values)), ["end"],
                [list(values.values())], log=log,
            )  # fmt: skip
        return Finding(metrics, shapes)


def _sums(logits_BHQK: Tensor, weights_BHQK: Tensor, batch: Batch) -> Tensor:
    """Both numbers summed over the queries that count, and how many these are, float64 [3]."""
    allowed = logits_BHQK.isfinite()
    counted = allowed.sum(-1) > 1
    if batch.padding is not None:
        counted = counted & ~batch.padding[:, None, :]
    both = (logit_variance(logits_BHQK, allowed), slope_of_weights(weights_BHQK, allowed))
    return torch.stack([*(each.masked_fill(~counted, 0.0).sum() for each in both), counted.sum().double()])
