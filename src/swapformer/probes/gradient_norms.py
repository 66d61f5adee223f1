"""Probe of gradients: how large the gradient of each layer's weights is."""

from __future__ import annotations

from collections.abc import Mapping

from swapformer.model.stack import stacks
from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, GradientBatch, Probe
from swapformer.probes.gradients import gradient_norm, matrices, named_layers
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import Profile, Shape
from swapformer.task.base import Task


class GradientNorms(Probe):
    """Euclidean norm of the gradient of the training loss by the matrices of each attention and feed-forward layer.

    ‖∂L/∂W‖ = (Σ g²)^½ over all matrices W of the sublayer, in nats per unit of weight. For claims about models of
    several depths there are `probe/gradient_first_ffn`, `probe/gradient_last_ffn` and the same of the attention; over
    the layers L = 1, 2 … of one model `probe/gradient_ffn_by_layer@L` and `probe/gradient_attention_by_layer@L`. In a
    model of several stacks they are named after the stack, such as `probe/gradient_last_encoder_ffn`. A frozen sublayer
    counts as zero, and cross-attention is left out. Xiong et al. 2020, arXiv:2002.04745, compare the last feed-forward
    layers at the start.

    Args:
        batch: on which the loss is taken: `train`, the first batch of the training, or `val`, the first of validation.
    """

    gradients = True

    def __init__(self, *, batch: GradientBatch) -> None:
        self.gradient_batch = batch

    def measure(self, model: Topology, task: Task) -> Finding:
        layers = dict(named_layers(model))
        several = len(stacks(model)) > 1
        metrics: dict[str, float] = {}
        found: dict[str, dict[str, float]] = {"attention": {}, "ffn": {}}
        for name, layer in layers.items():
            stack, _, number = name.rpartition(" ")
            for part, sublayer in (("attention", layer.attention), ("ffn", layer.ffn if layer.ffn.present else None)):
                if sublayer is not None:
                    norm = gradient_norm(weight for _, weight in matrices(sublayer))
                    found[part][name] = norm
                    kind = f"{stack}_{part}" if several else part
                    metrics[f"probe/gradient_{kind}{BY_LAYER}@{number}"] = norm
                    metrics.setdefault(f"probe/gradient_first_{kind}", norm)
                    metrics[f"probe/gradient_last_{kind}"] = norm
        shapes: dict[str, Shape] = {part: _profile(part, norms) for part, norms in found.items() if norms}
        return Finding(metrics, shapes)


def _profile(part: str, norms: Mapping[str, float]) -> Profile:
    what = {"attention": "attention layers", "ffn": "feed-forward layers"}[part]
    return Profile(
        f"Gradients of {what}",
        "Euclidean norm of the gradient of the training loss by the matrices of each layer, on one fixed batch.",
        "gradient norm", "nats per unit of weight", list(norms), ["end"], [list(norms.values())], log=True,
    )  # fmt: skip
