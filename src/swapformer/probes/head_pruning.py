"""Probe of head pruning: the cost of each single head, of heads together, and how many can be left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Annotated

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model import taps
from swapformer.model.topology import Topology
from swapformer.probes.analysis import first_order_cost, rank_correlation, target_nats
from swapformer.probes.attention_statistics import WEIGHTS, seen_attention
from swapformer.probes.base import Finding, Probe, validation
from swapformer.probes.head_scores import HeadScores, matrix_of_heads
from swapformer.random import stream
from swapformer.ranges import Count, Positive, Within
from swapformer.results.moments import PRUNING
from swapformer.results.shapes import Curve, Shape, Table
from swapformer.task.base import Batch, Task, target_mask
from swapformer.training.assemble import Config
from swapformer.training.data import TrainingStream, drawn_position_range
from swapformer.training.inputs import model_inputs

OUTPUTS = "*.hook_z"
"""The places where attentions show the outputs of their heads."""
Head = tuple[str, int]
"""A place of `OUTPUTS`, and a head there, counted from 0."""


class HeadPruning(Probe):
    """How much the validation loss rises, in nats, when the outputs of heads are taken as zero after training.

    A head's importance is E_x |Σ_t z_t(x)·∂L(x)/∂z_t(x)|, with z its output before the last matrix and L the mean loss
    of a training sequence x: to first order, how much the loss of a sequence moves without it (Michel et al. 2019,
    arXiv:1905.10650, equation 2, here without their norm by layer, since nats are comparable). With N heads, the
    metrics under `probe/pruning/` are

        importance@P, random@P   rise without the P % of all heads that matter least by importance, or that come first
                                 in an order drawn at random, as a mean over the orders; P % of N is rounded
        negligible, largest      share of heads without which alone the loss rises by less than `negligible`; the
                                 dearest one's rise
        rank_correlation         Spearman's, of importance and the rise without each head alone
        kept                     1 − Σ_l one_l / Σ_l none_l, with none_l the rise without all heads of attention l, and
                                 one_l that without all but its most important: what one head alone still does
        compensated              1 − Σ_h alone_h / Σ_l none_l: what heads cost together that none of them costs alone

    and, to see whether heads do what their names say,

        previous_token           rise without the head of the first layer that looks most at the token before, less the
                                 mean rise without one of the others of its layer
        prefix_matching          the same of the head of later layers that looks most at what followed the same token

    `kept` and `compensated` are missing where attention is of no use (Σ none ≤ 0), the last two where no attention
    forms weights or the layer has one head. Importance and names are taken on training batches and the rises on
    validation batches, so that no order has seen what judges it. The shapes are the curve over P, matrices of the rise
    and of the importance by layer and head, and a table of attentions.

    Args:
        batches: of the training, for importance, and as many of the validation at the training length, for rises.
        shares: P, in per cent of all heads.
        orders: random orders.
        negligible: nats.

    Raises:
        ValueError: if there are no shares, or the answers are not symbols or classes at each position.
    """

    def __init__(
        self,
        *,
        batches: Count,
        shares: Sequence[Annotated[int, Within("[1, 99]")]],
        orders: Count,
        negligible: Positive,
    ) -> None:
        if not shares or list(shares) != sorted(set(shares)):
            raise ValueError(
                f"`shares` of head_pruning must be ascending per cents, such as [10, 30], but it is {list(shares)}."
            )
        self.batches, self.shares, self.orders, self.negligible = batches, list(shares), orders, negligible
        self.data_seed = 0

    def attach(self, config: Config) -> None:
        self.data_seed = config["data_seed"]

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if problem := taps.missing(model, OUTPUTS, replacing=True):
            return f"head_pruning leaves out heads: {problem}"
        asked = task.interface.readouts[MAIN]
        if asked.per == "position" and asked.kind != "values":
            return None
        return (
            f"head_pruning takes the loss of symbols or classes at each position, but {type(task).__name__} asks for "
            f"{asked.kind} of a {asked.per}; leave out probes=head_pruning."
        )

    def measure(self, model: Topology, task: Task) -> Finding:
        drawn_from = drawn_position_range(model)
        training = [each.batch for each in TrainingStream(task, self.data_seed, 0, self.batches, 1, drawn_from)]
        importance = head_importance(model, training)
        batches = list(validation(model, task, self.batches))
        whole = loss_without(model, batches, ())

        def rise(heads: Collection[Head]) -> float:
            return loss_without(model, batches, heads) - whole

        ascending = sorted(importance, key=lambda head: importance[head])
        alone = {head: rise([head]) for head in importance}
        sites = {site: [head for head in ascending if head[0] == site] for site, _ in importance}
        none, one = ({site: rise(heads[:last]) for site, heads in sites.items()} for last in (None, -1))
        drawn = [torch.randperm(len(ascending), generator=stream("head_pruning", k)) for k in range(self.orders)]
        orders = [[list(importance)[index] for index in order.tolist()] for order in drawn]
        counts = {share: round(share * len(ascending) / 100) for share in self.shares}
        by_importance = {share: rise(ascending[:count]) for share, count in counts.items()}
        at_random = {share: fmean(rise(order[:count]) for order in orders) for share, count in counts.items()}
        metrics = _metrics(alone, importance, none, one, self.negligible)
        metrics |= {f"{PRUNING}importance@{share}": value for share, value in by_importance.items()}
        metrics |= {f"{PRUNING}random@{share}": value for share, value in at_random.items()}
        metrics |= _named_heads(model, task, training, alone)
        shapes: dict[str, Shape] = {
            "pruning": _curve({"by importance": by_importance, "at random": at_random}, rise(ascending)),
            "alone/rise": matrix_of_heads(
                "What a head costs alone", "Rise of the loss when the output of one head is taken as zero.",
                _rows(alone), unit="nats",
            ),
            "alone/importance": matrix_of_heads(
                "Importance of heads", "To first order, how much a head's output moves the loss of a sequence.",
                _rows(importance), unit="nats",
            ),
            "attentions": _table(alone, none, one),
        }  # fmt: skip
        return Finding(metrics, shapes)


def head_importance(model: Topology, batches: Sequence[Batch]) -> dict[Head, float]:
    """Every head of a model with its importance in nats, a mean over the sequences of batches that have targets."""
    totals: dict[str, Tensor] = {}
    sequences = 0
    for batch in batches:
        with torch.enable_grad(), taps.record(model, OUTPUTS) as seen:
            nats, targets = _sequence_losses(model, batch)
            per_sequence = nats / targets.clamp(min=1)
            gradients = torch.autograd.grad(per_sequence.sum(), list(seen.values()))
        sequences += int((targets > 0).sum())
        for (site, outputs), gradient in zip(seen.items(), gradients, strict=True):
            cost = first_order_cost(outputs.detach(), gradient)
            totals[site] = totals[site] + cost if site in totals else cost
    return {
        (site, head): value / max(sequences, 1)
        for site in taps.names(model, OUTPUTS)
        for head, value in enumerate(totals[site].tolist())
    }


def loss_without(model: Topology, batches: Sequence[Batch], heads: Collection[Head]) -> float:
    """The mean loss of the targets of batches, in nats, with the outputs of some heads taken as zero."""
    silent: dict[str, list[int]] = {}
    for site, head in heads:
        silent.setdefault(site, []).append(head)
    with taps.replace(model, {site: partial(silence, heads=found) for site, found in silent.items()}):
        sums = [[float(each.sum()) for each in _sequence_losses(model, batch)] for batch in batches]
    nats, targets = map(sum, zip(*sums, strict=True))
    return nats / targets


def silence(outputs_BQHE: Tensor, heads: Sequence[int]) -> Tensor:
    """Heads' outputs with those of some taken as zero."""
    return outputs_BQHE.index_fill(2, torch.tensor(heads, device=outputs_BQHE.device), 0.0)


def _sequence_losses(model: Topology, batch: Batch) -> tuple[Tensor, Tensor]:
    """The summed loss of each sequence's targets in nats, float64 [B], and how many there are, [B]."""
    nats = target_nats(model.answers(*model_inputs(batch))[MAIN], batch.targets)
    return nats.sum(1), target_mask(batch.targets).sum(1)


def _label(site: str) -> str:
    """`layer 1` for `blocks.0.attn.hook_z`, `encoder.0.attn` for that of an encoder-decoder."""
    stack, number, attention, _ = site.split(".")
    return f"layer {int(number) + 1}" if stack == "blocks" else f"{stack}.{number}.{attention}"


def _metrics(
    alone: Mapping[Head, float],
    importance: Mapping[Head, float],
    none: Mapping[str, float],
    one: Mapping[str, float],
    negligible: float,
) -> dict[str, float]:
    found = {
        f"{PRUNING}negligible": fmean(value < negligible for value in alone.values()),
        f"{PRUNING}largest": max(alone.values()),
    }
    correlation = rank_correlation([importance[head] for head in alone], list(alone.values()))
    found |= {} if correlation is None else {f"{PRUNING}rank_correlation": correlation}
    if (together := sum(none.values())) > 0:
        found[f"{PRUNING}kept"] = 1 - sum(one.values()) / together
        found[f"{PRUNING}compensated"] = 1 - sum(alone.values()) / together
    return found


def _named_heads(
    model: Topology, task: Task, batches: Sequence[Batch], alone: Mapping[Head, float]
) -> dict[str, float]:
    """What the best head of a name costs, over the mean of the others of its layer."""
    layers: dict[int, HeadScores] = {}
    if taps.missing(model, WEIGHTS) is None:
        for index, seen in seen_attention(model, task, batches):
            layers.setdefault(index, HeadScores()).add(seen)
    sites = {site for site, _ in alone if not site.startswith("encoder.")}
    found = {}
    for name, named in {"previous_token": [0], "prefix_matching": [index for index in layers if index]}.items():
        scores = {
            (site, head): score
            for index in named
            for site in sites
            if site.endswith(f".{index}.attn.hook_z")
            for head, score in enumerate(layers[index].of(name) if index in layers else [])
            if score is not None
        }
        best = max(scores, key=lambda head: scores[head], default=("", 0))
        others = [rise for head, rise in alone.items() if head[0] == best[0] and head != best]
        if others:
            found[f"{PRUNING}{name}"] = alone[best] - fmean(others)
    return found


def _rows(values: Mapping[Head, float]) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    for (site, _), value in values.items():
        rows.setdefault(_label(site), []).append(value)
    return rows


def _curve(rises: Mapping[str, Mapping[int, float]], all_gone: float) -> Curve:
    shares = list(next(iter(rises.values())))
    return Curve(
        "Heads left out after training",
        "Rise of the loss without that share of all heads: those that matter least, or any.",
        "heads left out in per cent", "rise of the loss in nats", [0, *shares, 100],
        {name: [0.0, *(found[share] for share in shares), all_gone] for name, found in rises.items()},
    )  # fmt: skip


def _table(alone: Mapping[Head, float], none: Mapping[str, float], one: Mapping[str, float]) -> Table:
    return Table(
        "What an attention does with one head and with none",
        "Rise of the loss in nats: its heads left out one at a time, summed; its most important alone; none.",
        ["attention", "each alone, summed", "one head left", "none left"],
        [
            [_label(site), sum(value for head, value in alone.items() if head[0] == site), one[site], none[site]]
            for site in none
        ],
    )
