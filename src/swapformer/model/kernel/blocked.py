"""The kernel that computes banded patterns block by block, and the kernel that chooses the fastest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel.base import AttentionPlan, Kernel
from swapformer.model.kernel.dense import SDPA, Reference
from swapformer.model.ops import Constants, computed_on
from swapformer.model.pattern import Reach
from swapformer.model.position import Position

LEAST, MOST = 32, 128
"""Fewest and most queries of a block: a quarter of the band between these bounds, which was nearly fastest on a CPU."""


@dataclass(frozen=True)
class QueryBlock:
    """Some queries, and all keys that they may attend to.

    Attributes:
        queries: positions of the queries, as far from each other as the reach's step.
        keys: positions of the keys within reach, likewise: all queries of blocks `first` to `last`.
        first, last: blocks, counted from 0.
        far: landmarks that are not among `keys`.
    """

    queries: range
    keys: range
    first: int
    last: int
    far: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """A key that is equal for blocks that differ only in their positions."""
        return len(self.queries), len(self.keys), self.keys.start - self.queries.start, self.queries.step


def query_blocks(reach: Reach, length: int) -> list[QueryBlock]:
    """Divide `length` tokens into blocks with each token once as a query, grouped by remainder modulo the step."""
    before, after = (int(min(side, length)) // reach.step for side in (reach.before, reach.after))
    size = min(max((before + after + 1) // 4, LEAST), MOST)
    blocks: list[QueryBlock] = []
    for remainder in range(min(reach.step, length)):
        lane, base = range(remainder, length, reach.step), len(blocks)
        runs = -(-len(lane) // size)
        for index in range(runs):
            first, last = max(index - -(-before // size), 0), min(index + -(-after // size), runs - 1)
            keys = lane[first * size : (last + 1) * size]
            far = tuple(token for token in reach.landmarks if token < length and token not in keys)
            blocks.append(QueryBlock(lane[index * size : (index + 1) * size], keys, base + first, base + last, far))
    return blocks


class BlockSlices:
    """A tensor [B, H, T, E] split once into blocks: a slice for each block would have a gradient of length T each.

    Args:
        x: the tensor.
        order: the positions of the queries, block after block; None where that is 0 … T − 1.
        blocks: the blocks.
        landmarks: positions of tokens that distant blocks need too.
    """

    def __init__(self, x: Tensor, order: Tensor | None, blocks: list[QueryBlock], landmarks: list[int]) -> None:
        by_lane = x if order is None else x.index_select(2, order)
        self.runs = torch.split(by_lane, [len(block.queries) for block in blocks], dim=2)
        self.landmarks = {token: x[:, :, token : token + 1] for token in landmarks}

    def keys_of(self, block: QueryBlock) -> Tensor:
        """The rows of a block's keys and its far landmarks."""
        far = (self.landmarks[token] for token in block.far)
        return torch.cat([*self.runs[block.first : block.last + 1], *far], dim=2)


def block_order(blocks: list[QueryBlock], constants: Constants, device: torch.device) -> Tensor | None:
    """The positions of the queries, block after block, int64 [T]; None if that is 0 … T − 1."""
    if blocks[0].queries.step == 1:
        return None
    return constants.of(tuple(token for block in blocks for token in block.queries), torch.int64, device)


def token_index(tokens: range, far: tuple[int, ...], constants: Constants, device: torch.device) -> slice | Tensor:
    """The index of a block's tokens in Tokens: a slice, or a tensor if there are landmarks."""
    if far:
        return constants.of((*tokens, *far), torch.int64, device)
    return slice(tokens.start, tokens.stop, tokens.step)


class Blocked(Kernel):
    """The kernel sdpa or reference on blocks of neighbouring queries and the keys within reach: O(T·w), not O(T²).

    Mask, bias and scores are those of a block's own context, so they are never formed for the whole; blocks that differ
    only in their positions share one. A pattern with gaps is divided into as many sequences without gaps first.
    Landmarks are keys of every block, and queries of one more block with all keys. Cross-attention, and attention with
    a cache, is one block.
    """

    def __init__(self, dims: Dims) -> None:
        self.fused, self.general, self.constants = SDPA(dims, backend="auto"), Reference(dims), Constants()

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
        """Whether blocks are faster than one block of all, as measured on a CPU: from 256 tokens and two bands on."""
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
        blocks = context.once(("blocks", reach), lambda: query_blocks(reach, length))
        landmarks = [token for token in reach.landmarks if token < length]
        order = block_order(blocks, self.constants, q.device)
        queries, keys, values = (BlockSlices(x, order, blocks, landmarks) for x in (q, k, v))
        # Whether the mask, bias and scores of a block depend only on its shape.
        independent = position.relative or not (position.has_bias or position.has_scores)
        alike = independent and context.masks_by_distance(plan.pattern)
        outs = [
            attend(
                rows, keys.keys_of(block), values.keys_of(block), context=_within(context, block, alike, self.constants)
            )
            for rows, block in zip(queries.runs, blocks, strict=True)
        ]
        out = torch.cat(outs, dim=2)
        if order is not None:
            out = out.index_select(2, order.argsort())
        if landmarks:
            rows = self.constants.of(tuple(landmarks), torch.int64, q.device)
            own = context.once(("landmarks", reach), lambda: context.at(rows, slice(None)))
            out = out.index_copy(2, rows, attend(q[:, :, rows], k, v, context=own))
        return out


def _divisible(plan: AttentionPlan, context: Context) -> bool:
    """Whether the pattern is a band over tokens in consecutive order, known without reading tensors."""
    return plan.pattern.reach.bounded and context.query is context.key and context.key.consecutive


def _within(context: Context, block: QueryBlock, alike: bool, constants: Constants) -> Context:
    """The context of a block; one for all blocks of its shape if they are alike."""
    device = context.key.order.device
    return context.once(
        ("block", block.shape if alike else block),
        lambda: context.at(
            token_index(block.queries, (), constants, device), token_index(block.keys, block.far, constants, device)
        ),
    )


class Auto(Kernel):
    """The fastest kernel that can compute the attention: blocked if it pays, else sdpa, else reference.

    On a GPU blocked is never chosen: many small blocks leave it idle. Flex is for the user to choose: it is compiled
    for every length, and the gradient of a learned bias is summed in no fixed order, so a trial would not resume
    bit-equal. It pays for a learned bias over thousands of tokens.
    """

    def __init__(self, dims: Dims) -> None:
        self.banded, self.fused, self.general = Blocked(dims), SDPA(dims, backend="auto"), Reference(dims)

    def loses_on_gpu(self, plan: AttentionPlan) -> str | None:
        if not plan.pattern.reach.bounded:
            return None
        return (
            f"kernel auto computed every pair on the GPU, although the pattern {type(plan.pattern).__name__} allows "
            "a band only; model/kernel=flex skips the others"
        )

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        kernel: Kernel = self.general if self.fused.refuses(plan, position) else self.fused
        if computed_on(q) != "cuda" and self.banded.pays(plan, context) and not self.banded.refuses(plan, position):
            kernel = self.banded
        return kernel(q, k, v, plan, position, context, dropout)
