"""The position slot's base: four hooks that do nothing, which is NoPE."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.tokens import Tokens
from swapformer.ranges import Declared


class Position(Declared, nn.Module):
    """No position encoding, NoPE (Haviv et al. 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466).

    Base of the slot. Every encoding overrides one of the hooks and leaves the others alone:
    weights = normaliser(mask(scale · (raw(q, k) + scores) + bias)), with q and k rotated and x embedded before.

    Facts:
        embeds: `embed` adds something, once, to the embeddings that all layers read.
        relative: logits depend on positions through differences only (shifting every position changes nothing).
        has_scores: `scores` adds a content-dependent term.
        has_bias: `bias` adds a content-free term.
        limit: positions it can encode, counted from 0; None for no limit.
        drawn_from: the positions of a batch are drawn, in order, from 0 … drawn_from − 1; None if they are not drawn.
        sees_positions: its terms depend on the tokens' positions; false for one that counts contents.
        depends_on_length: its terms for a token depend on how many tokens there are, so that generation cannot cache
            them.
        crosses: whether it acts in cross-attention too, between tokens of two sequences.
        reads: the sizes it depends on; layers that agree in them share one instance. One that `embeds` reads none
            (`reads = ()`), for otherwise layers with different heads would add it more than once.
        pairwise: its term for a pair depends only on that pair, so that it can be computed for any block of queries
            and keys; false for one that counts what lies between.
        combines: names of the settings that are encodings themselves.
    """

    embeds: bool = False
    relative: bool = True
    has_scores: bool = False
    has_bias: bool = False
    limit: int | None = None
    drawn_from: int | None = None
    sees_positions: bool = True
    pairwise: bool = True
    depends_on_length: bool = False
    crosses: bool = False
    reads: ClassVar[tuple[str, ...]] = ("num_heads", "head_dim")
    combines: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def encodings(self) -> tuple[Position, ...]:
        """The encodings it consists of: itself, unless it combines others."""
        return (self,)

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Add to the token embeddings x [B, T, D]."""
        return x

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Transform queries [B, H, Q, E] and keys [B, G, K, E], each only by its own token.

        Generation caches keys as they are returned here, so it is asked for each key once; an encoding that would turn
        a key otherwise when there are more of them states `depends_on_length`.
        """
        return q, k

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor | None:
        """A term [B, H, Q, K] of q [B, H, Q, E] and k [B, G, K, E], added before the scaling; None for none."""
        return None

    def bias(self, context: Context) -> Tensor | None:
        """A term [B|1, H, Q, K] that depends only on positions, added after the scaling; None for none."""
        return None


def shared_bias(position: Position, context: Context) -> Tensor | None:
    """The bias of a position encoding, computed once for all layers that read a context."""
    return context.once(("bias", position), lambda: position.bias(context))


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision for angles and distances: float32, or float64 where the stream has it."""
    return torch.float64 if dtype == torch.float64 else torch.float32
