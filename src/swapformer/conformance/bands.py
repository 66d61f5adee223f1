"""The law of bands: what lies beyond a pattern's reach can be left out, block by block."""

from __future__ import annotations

from typing import Any

import torch

from swapformer.conformance.subject import LENGTH, Subject, gradients, ids, places, require, run
from swapformer.model.context import Context
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.random import stream

LONG = 80
"""Places that blocked kernels cut into several blocks."""

MET_BY_KERNELS = ("kernel", "attention", "score", "normaliser", "pattern", "position", "qk_norm")
"""Slots whose parts are arguments of a kernel."""

WINDOW = {"_target_": "swapformer.model.pattern.Window", "_partial_": True, "_convert_": "all", "before": 9, "after": 2}
REFERENCE = {"_target_": "swapformer.model.kernel.Reference", "_partial_": True, "_convert_": "all"}
BLOCKED = {"_target_": "swapformer.model.kernel.Blocked", "_partial_": True, "_convert_": "all"}


def blocks_are_enough(subject: Subject) -> str | None:
    """A band is computed from its blocks alone, and equals the reference: logits and gradients, with padding too.

    That takes patterns that allow nothing beyond the reach that they state, positions whose terms for a block are those
    of the whole, and normalisers for which a forbidden key is as good as absent.
    """
    if subject.slot not in MET_BY_KERNELS or "kernel" not in subject.layers[0].attention().uses:
        return "it is no part that a kernel meets"
    layer = subject.layers[0]
    _reach(layer.pattern())
    _terms_of_a_block(next(iter(subject.perturbed().stack.positions.values())), layer.dims.num_heads, subject)  # type: ignore[arg-type]
    _absent_keys(layer.part("normaliser").double(), layer.dims.num_heads)
    band = subject if layer.pattern().reach.bounded else subject.with_model(pattern=WINDOW)
    fast = band if subject.slot == "kernel" else band.with_model(kernel=BLOCKED)
    if (refusal := fast.layers[0].attention().refuses(fast.layers[0].position())) is not None:
        return refusal
    _equal(fast, band.with_model(kernel=REFERENCE))
    return None


def _reach(pattern: Pattern) -> None:
    tokens, reach = places(LONG), pattern.reach
    allowed = pattern.allowed(tokens, tokens)
    place = torch.arange(LONG)
    ahead, marked = place[None] - place[:, None], torch.isin(place, torch.tensor(reach.landmarks).long())
    within = (ahead >= -reach.before) & (ahead <= reach.after) & (ahead % reach.step == 0)
    beyond = ~(within | marked[:, None] | marked)
    require(
        not (beyond if allowed is None else allowed & beyond).any(),
        f"a pattern must allow nothing beyond what it states, {reach}, but it does: state a wider `reach`.",
    )


def _terms_of_a_block(position: Position, heads: int, subject: Subject) -> None:
    queries, keys = slice(8, 12), slice(1, 6)
    tokens = places()
    whole = Context(tokens, tokens, dtype=torch.float64)
    block, pick = whole.at(queries, keys), (..., queries, keys)
    if (bias := position.bias(whole)) is not None:
        own: Any = position.bias(block)
        same = torch.allclose(own, bias.expand(-1, -1, LENGTH, LENGTH)[pick], rtol=0, atol=1e-10)
        require(
            same, "a bias for some queries and keys must be that part of the whole: read `context`, not the length."
        )
    q, k = torch.randn(
        2, 1, heads, LENGTH, subject.layers[0].dims.head_dim, generator=stream("block"), dtype=torch.float64
    )
    if (scores := position.scores(q, k, whole)) is not None:
        own = position.scores(q[:, :, queries], k[:, :, keys], block)
        same = torch.allclose(own, scores.expand(-1, -1, LENGTH, LENGTH)[pick], rtol=0, atol=1e-10)
        require(
            same == position.pairwise,
            f"pairwise={position.pairwise} is stated, but scores for some queries and keys are "
            f"{'those' if same else 'not those'} of the whole.",
        )


def _absent_keys(normaliser: Normaliser, heads: int) -> None:
    logits = torch.randn(2, heads, 3, 9, generator=stream("absent"), dtype=torch.float64)
    with torch.no_grad():
        alone = normaliser(logits[..., :4])
        logits[..., 4:] = float("-inf")
        gap = (normaliser(logits)[..., :4] - alone).abs().max().item()
    require(gap < 1e-12, f"a forbidden key must be as good as absent, but weights change by {gap:.2g} without it.")


def _equal(fast: Subject, slow: Subject) -> None:
    inputs, padding = ids(2, LONG), torch.zeros(2, LONG, dtype=torch.bool)
    padding[0, :3] = padding[1, -40:] = True
    for tokens in (places(LONG), places(LONG, padding=padding)):
        gap = (run(fast.perturbed(), inputs, tokens) - run(slow.perturbed(), inputs, tokens)).abs().max().item()
        require(gap < 1e-10, f"a band from its blocks must equal the reference, but logits differ by {gap:.2g}.")
    (_, quick), (_, exact) = (gradients(subject.perturbed(), inputs) for subject in (fast, slow))
    worst = max((quick[name] - exact[name]).abs().max().item() for name in exact)
    require(worst < 1e-10, f"a band from its blocks must equal the reference, but gradients differ by {worst:.2g}.")
