"""Probe of activations: moments and rank of the residual stream by layer, and the size of what activations get."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from swapformer.model.taps import missing, names, record
from swapformer.model.topology import Topology
from swapformer.probes.analysis import effective_rank, sums_of_powers
from swapformer.probes.base import Finding, Probe, validation
from swapformer.ranges import Count
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import Profile, Shape
from swapformer.task.base import Batch, Task
from swapformer.training.inputs import model_inputs

_PLACES = ("*.0.hook_resid_pre", "*.hook_resid_post")
_PREACTIVATION = "mlp.hook_pre"
_KINDS = {
    "mean": ("Mean of the stream", "mean", False),
    "variance": ("Variance of the stream", "variance", True),
    "rms": ("Size of the stream", "root mean square", True),
    "rank": ("Rank of the tokens' states", "effective rank", False),
}
"""Statistic → title and axis of its figure, and whether that is logarithmic."""


class ActivationMoments(Probe):
    """Mean, variance, root mean square and rank of the residual stream before the first layer and after each.

    m = E[x], v = E[x²] − m², r = E[x²]^½ over the entries x of all tokens but padding, on validation batches at the
    training length. k is the effective rank of a sequence's states, a T × D matrix (`effective_rank`), the mean over
    sequences: 1 where all tokens have the same direction, so that no answer can depend on the token (rank collapse:
    Dong et al. 2021, arXiv:2103.03404). The metrics are `probe/stream_mean_last`, `probe/stream_variance_last`,
    `probe/stream_rms_last` and `probe/stream_rank_last` after the last layer, the same with `first` before the first
    one, and over the layers L = 1, 2 … of one model `probe/stream_rms_by_layer@L` and so on. In a model of several
    stacks they are named after the stack, such as `probe/encoder_stream_rms_last`. Streams of several tensors count as
    what a branch would read.

    `probe/preactivation_rms_first`, `_last` and `_by_layer@L` are the same root mean square of what the activation
    function of a feed-forward layer gets: well below 1, GELU and SiLU are nearly x/2. Layers of experts have none.

    Args:
        batches: validation batches.

    Raises:
        ValueError: for a model without a stream that can be watched.
    """

    def __init__(self, *, batches: Count) -> None:
        self.batches = batches

    def unsuited(self, model: Topology, task: Task) -> str | None:
        return missing(model, *_PLACES)

    def measure(self, model: Topology, task: Task) -> Finding:
        sums: dict[str, Tensor] = {}
        ranks: dict[str, list[float]] = {}
        hidden = [name for name, axes in names(model).items() if name.endswith(_PREACTIVATION) and axes == "B T F"]
        for batch in validation(model, task, self.batches):
            with record(model, *_PLACES, *hidden) as seen:
                model(*model_inputs(batch))
            for name, stream_BTD in seen.items():
                places = counted_places(name, batch)
                sums[name] = sums.get(name, torch.zeros(())) + sums_of_powers(stream_BTD, places)
                if not name.endswith(_PREACTIVATION):
                    states = stream_BTD if places is None else stream_BTD * places[..., None]
                    ranks.setdefault(name, []).extend(_ranks(states))
        stacks: dict[str, dict[int, dict[str, float]]] = {}
        preactivations: dict[str, dict[int, float]] = {}
        for name, found in sums.items():
            stack, number, place = name.split(".", 2)
            if place == _PREACTIVATION:
                preactivations.setdefault(stack, {})[int(number) + 1] = _statistics(found)["rms"]
            else:
                statistics = _statistics(found) | {"rank": sum(ranks[name]) / len(ranks[name])}
                stacks.setdefault(stack, {})[int(number) + place.endswith("post")] = statistics
        metrics: dict[str, float] = {}
        shapes: dict[str, Shape] = {}
        for stack, by_layer in stacks.items():
            prefix = "probe/" if len(stacks) == 1 else f"probe/{stack}_"
            ordered = dict(sorted(by_layer.items()))
            for kind in _KINDS:
                values = {layer: statistics[kind] for layer, statistics in ordered.items()}
                metrics |= {f"{prefix}stream_{kind}{BY_LAYER}@{layer}": each for layer, each in values.items() if layer}
                metrics[f"{prefix}stream_{kind}_first"] = values[0]
                metrics[f"{prefix}stream_{kind}_last"] = values[max(values)]
                shapes[kind if len(stacks) == 1 else f"{stack} {kind}"] = _profile(kind, stack, values, len(stacks))
            if sizes := preactivations.get(stack):
                metrics |= {f"{prefix}preactivation_rms{BY_LAYER}@{layer}": size for layer, size in sizes.items()}
                metrics[f"{prefix}preactivation_rms_first"] = sizes[min(sizes)]
                metrics[f"{prefix}preactivation_rms_last"] = sizes[max(sizes)]
        return Finding(metrics, shapes)


def counted_places(name: str, batch: Batch) -> Tensor | None:
    """The places of the sequences of a stack that are no padding; None for all."""
    read = batch.source if name.startswith("encoder.") and batch.source is not None else batch
    return None if read.padding is None else ~read.padding


def _ranks(states_BTD: Tensor) -> list[float]:
    """The effective rank of each sequence's states; nan where a state is no finite number."""
    if not states_BTD.isfinite().all():
        return [math.nan] * len(states_BTD)
    found: list[float] = effective_rank(torch.linalg.svdvals(states_BTD.double())).tolist()
    return found


def _statistics(sums: Tensor) -> dict[str, float]:
    count, total, squares = sums.tolist()
    mean, square = total / count, squares / count
    return {"mean": mean, "variance": max(square - mean * mean, 0.0), "rms": float(square**0.5)}


def _profile(kind: str, stack: str, values: Mapping[int, float], stacks: int) -> Profile:
    title, axis, log = _KINDS[kind]
    return Profile(
        title if stacks == 1 else f"{title} of the {stack}",
        f"{axis.capitalize()} of the residual stream: 0 before the first layer, n after layer n.",
        axis, "", list(map(str, values)), ["end"], [list(values.values())], log=log,
    )  # fmt: skip
