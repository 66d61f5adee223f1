"""Bands at the cost of bands."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel.base import AttentionPlan, Kernel
from swapformer.model.kernel.blocks import Block, Pieces, cut, in_turn, index
from swapformer.model.kernel.reference import Reference
from swapformer.model.kernel.sdpa import SDPA
from swapformer.model.position import Position


class Blocked(Kernel):
    """sdpa or reference on blocks: some neighbouring queries with the keys in their pattern's reach. O(T·w), not O(T²).

    Mask, bias and scores are those of a block's own context, so they are never formed for the whole; blocks that differ
    only in where they stand share one. A pattern with gaps is cut into as many sequences without gaps first. Landmarks
    are keys of every block, and queries of one more block with all keys. What is not a sequence that asks itself, from
    its first place on (a cache, a memory), is one block.
    """

    def __init__(self, dims: Dims) -> None:
        self.fused, self.general = SDPA(dims, backend="auto"), Reference(dims)

    def refuses(self, plan: AttentionPlan, position: Position) -> str | None:
        if not plan.pattern.reach.bounded:
            return (
                "kernel blocked computes bands, such as model/pattern=window, dilated, longformer or "
                f"longformer_causal, but nothing bounds how far the pattern {type(plan.pattern).__name__} sees"
            )
        if not position.pairwise:
            return (
                f"kernel blocked asks for terms block by block, but those of {type(position).__name__} for a pair "
                "depend on the keys between"
            )
        return None

    def pays(self, plan: AttentionPlan, context: Context) -> bool:
        """Whether it is faster than one block of all, as measured on a CPU: for 256 places and more, two bands each."""
        reach, length = plan.pattern.reach, len(context.key)
        return _divisible(plan, context) and length >= max(256, 2 * (reach.before + reach.after + reach.step))

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        kernel: Kernel = self.general if self.fused.refuses(plan, position) else self.fused
        attend = partial(kernel, plan=plan, position=position, dropout=dropout)
        if not _divisible(plan, context):
            return attend(q, k, v, context=context)
        reach, length = plan.pattern.reach, len(context.key)
        blocks = context.once(("blocks", reach), lambda: cut(reach, length))
        landmarks = [place for place in reach.landmarks if place < length]
        asking, keys, values = (Pieces(x, blocks, landmarks) for x in (q, k, v))
        alike = _alike(plan, position, context)
        out = torch.cat(
            [
                attend(rows, keys.seen(block), values.seen(block), context=_within(context, block, alike))
                for rows, block in zip(asking.runs, blocks, strict=True)
            ],
            dim=2,
        )
        if (order := in_turn(blocks, q.device)) is not None:
            out = out.index_select(2, order.argsort())
        if landmarks:
            rows = torch.tensor(landmarks, device=q.device)
            own = context.once(("landmarks", reach), lambda: context.at(rows, slice(None)))
            out = out.index_copy(2, rows, attend(q[:, :, rows], k, v, context=own))
        return out


def _divisible(plan: AttentionPlan, context: Context) -> bool:
    """Whether the pattern is a band over places whose order is known without reading it."""
    return plan.pattern.reach.bounded and context.query is context.key and context.key.consecutive


def _alike(plan: AttentionPlan, position: Position, context: Context) -> bool:
    """Whether mask and terms of a block depend on its shape alone."""
    independent = position.relative or not (position.has_bias or position.has_scores)
    return context.uniform and independent and not plan.pattern.anchored and not plan.pattern.tags


def _within(context: Context, block: Block, alike: bool) -> Context:
    """The context of a block; one for all blocks of its shape where they are alike."""
    device = context.key.order.device
    return context.once(
        ("block", block.shape if alike else block),
        lambda: context.at(index(block.queries, (), device), index(block.keys, block.far, device)),
    )
