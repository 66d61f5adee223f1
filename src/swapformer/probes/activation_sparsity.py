"""Probe of sparsity: how many hidden units of feed-forward layers fire, by token, sequence and corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from swapformer.model.taps import missing, names, record
from swapformer.model.topology import Topology
from swapformer.probes.activation_moments import counted_places
from swapformer.probes.base import Finding, Probe, validation
from swapformer.probes.hidden_units import carriers
from swapformer.ranges import Count, Fraction, NonNegative
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import Histogram, Profile, Shape
from swapformer.task.base import Task
from swapformer.training.inputs import model_inputs

HIDDEN = "*.mlp.hook_post"
"""The places where feed-forward layers show their hidden activations."""
_BINS = 20
_KINDS = {
    "density": ("Units that fire for a token", "Share of a layer's hidden units that fire, a mean over tokens."),
    "sequence": ("Units that fire in a sequence", "Share of a layer's hidden units that fire at some token of it."),
    "dead": ("Dead units", "Share of a layer's hidden units that fire at no token of all sequences."),
    "carriers": ("Units that carry an activation", "Smallest share of a layer's units that carries most of Σ|a|."),
}
"""Statistic → title and caption of its figure."""


class ActivationSparsity(Probe):
    """The sparsity of the hidden activations of feed-forward layers, by token, by sequence and over all.

    A unit fires at a token where |a| > threshold, with a what the layer's output matrix gets: act(W₁x), and of a gated
    layer the product with the gate. Of a layer with F units, at the tokens of validation sequences that are no padding,

        density    the share of units that fire, a mean over tokens (Li et al. 2023, arXiv:2210.06313)
        sequence   the share that fires at some token of a sequence, a mean over sequences
        dead       the share that fires at no token of all sequences (Voita et al. 2023, arXiv:2309.04827)
        rare       the share that fires at less than 1 % of the tokens, dead ones among them
        frequent   the share that fires at more than half of the tokens
        carriers   the smallest share of units that carries `share` of Σ|a|, a mean over tokens: of use where an
                   activation has no zeros (0 at a token where all are zero)

    The metrics are `probe/sparsity/density` and so on as a mean over layers, with `_first` and `_last` of one layer,
    and `_by_layer@L`. In a model of several stacks they are named after the stack, such as
    `probe/encoder_sparsity/density`. With `model/depth=early_exit` layers behind a token's exit count too, though their
    work is thrown away. The shapes are profiles over the layers, and how often units fire as a histogram.

    Args:
        batches: validation batches.
        threshold: at or below which an activation counts as none.
        share: of Σ|a|, for `carriers`.

    Raises:
        ValueError: if the model has no feed-forward layer with one row of hidden units for a token.
    """

    def __init__(self, *, batches: Count, threshold: NonNegative, share: Fraction) -> None:
        self.batches, self.threshold, self.share = batches, threshold, share

    def unsuited(self, model: Topology, task: Task) -> str | None:
        return one_row_of_units("activation_sparsity", model)

    def measure(self, model: Topology, task: Task) -> Finding:
        counts: dict[str, _Counts] = {}
        for batch in validation(model, task, self.batches):
            with record(model, HIDDEN) as seen:
                model(*model_inputs(batch))
            for name, hidden_BTF in seen.items():
                counted = counted_places(name, batch)
                found = _counted(hidden_BTF, counted, self.threshold, self.share)
                counts[name] = counts[name] + found if name in counts else found
        stacks: dict[str, dict[int, _Counts]] = {}
        for name, found in counts.items():
            stack, number, *_ = name.split(".")
            stacks.setdefault(stack, {})[int(number) + 1] = found
        metrics: dict[str, float] = {}
        shapes: dict[str, Shape] = {}
        for stack, by_layer in stacks.items():
            alone = len(stacks) == 1
            prefix = "probe/sparsity/" if alone else f"probe/{stack}_sparsity/"
            statistics = {layer: found.statistics for layer, found in sorted(by_layer.items())}
            for kind in statistics[min(statistics)]:
                values = {layer: each[kind] for layer, each in statistics.items()}
                metrics[f"{prefix}{kind}"] = fmean(values.values())
                metrics[f"{prefix}{kind}_first"] = values[min(values)]
                metrics[f"{prefix}{kind}_last"] = values[max(values)]
                metrics |= {f"{prefix}{kind}{BY_LAYER}@{layer}": value for layer, value in values.items()}
                if kind in _KINDS:
                    shapes[kind if alone else f"{stack} {kind}"] = _profile(kind, "" if alone else stack, values)
            shapes["frequency" if alone else f"{stack} frequency"] = _histogram(
                "" if alone else stack, {layer: found.frequency for layer, found in sorted(by_layer.items())}
            )
        return Finding(metrics, shapes)


def one_row_of_units(probe: str, model: Topology) -> str | None:
    """The reason why the hidden units of a model cannot be described by one number each; None if they can."""
    if problem := missing(model, HIDDEN):
        return f"{probe} looks at the hidden units of feed-forward layers: {problem}"
    if others := [
        f"{name} [{axes}]" for name, axes in names(model).items() if name.endswith(HIDDEN[1:]) and "J" in axes
    ]:
        return (
            f"{probe} needs the same hidden units for every token, but {others[0]} has those of chosen experts; choose "
            "model/ffn=mlp, glu or topk."
        )
    return None


@dataclass(frozen=True)
class _Counts:
    """Sums over the tokens of sequences.

    Attributes:
        fired: at how many tokens each unit fires, [F].
        carried: Σ over tokens of the share of units that carries the activation.
        touched: Σ over sequences of the share of units that fires at some token.
        tokens, sequences: how many.
    """

    fired: Tensor
    carried: float
    touched: float
    tokens: int
    sequences: int

    def __add__(self, other: _Counts) -> _Counts:
        return _Counts(
            self.fired + other.fired,
            self.carried + other.carried,
            self.touched + other.touched,
            self.tokens + other.tokens,
            self.sequences + other.sequences,
        )

    @property
    def frequency(self) -> Tensor:
        """The share of tokens at which each unit fires, [F]."""
        return self.fired.double() / self.tokens

    @property
    def statistics(self) -> dict[str, float]:
        often = self.frequency
        return {
            "density": float(often.mean()),
            "sequence": self.touched / self.sequences,
            "dead": float((self.fired == 0).double().mean()),
            "rare": float((often < 0.01).double().mean()),
            "frequent": float((often > 0.5).double().mean()),
            "carriers": self.carried / self.tokens,
        }


def _counted(hidden_BTF: Tensor, counted_BT: Tensor | None, threshold: float, share: float) -> _Counts:
    rows, length, units = hidden_BTF.shape
    counted = torch.ones(rows, length, dtype=torch.bool) if counted_BT is None else counted_BT.expand(rows, length)
    fires = (hidden_BTF.abs() > threshold) & counted[:, :, None]
    carried = carriers(hidden_BTF[counted], share).double() / units
    return _Counts(
        fires.sum(dim=(0, 1)),
        float(carried.sum()),
        float(fires.any(1).double().mean(-1).sum()),
        int(counted.sum()),
        rows,
    )


def _profile(kind: str, stack: str, values: Mapping[int, float]) -> Profile:
    title, caption = _KINDS[kind]
    return Profile(
        f"{title} of the {stack}" if stack else title, caption, "share of units", "", [str(layer) for layer in values],
        ["end"], [list(values.values())],
    )  # fmt: skip


def _histogram(stack: str, frequencies: Mapping[int, Tensor]) -> Histogram:
    edges = [index / _BINS for index in range(_BINS + 1)]
    counts = {
        f"layer {layer}": (torch.histc(often.float(), _BINS, 0.0, 1.0) / len(often)).tolist()
        for layer, often in frequencies.items()
    }
    title = "How often hidden units fire"
    return Histogram(
        f"{title} in the {stack}" if stack else title, "Share of a layer's units by how often they fire.",
        "share of tokens", edges, counts,
    )  # fmt: skip
