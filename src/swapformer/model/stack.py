"""A stack: layers between an opened and a closed stream."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from swapformer.model.attention import Attention
from swapformer.model.block import Block
from swapformer.model.cache import Cache
from swapformer.model.context import Context
from swapformer.model.depth import Journey
from swapformer.model.ffn import FFN
from swapformer.model.plan import LayerPlan
from swapformer.model.position import Position
from swapformer.model.residual import Residual, Walk
from swapformer.model.residual.base import State, Update
from swapformer.model.sublayer import Branch
from swapformer.model.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Source:
    """What the layers of a decoder read besides: the encoder's output.

    Attributes:
        memory: the encoder's output, [B, S, D].
        context: the decoder's places against the source's.
    """

    memory: Tensor
    context: Context


class Layer(nn.Module):
    """Attention, cross-attention where there is a source to read, and a feed-forward layer, wired by a block.

    The position comes with every call, for layers share it. In cross-attention it is used only where it says so.
    """

    attention: Attention
    cross_attention: Attention | None
    ffn: FFN
    block: Block

    def __init__(self, plan: LayerPlan, *, crosses: bool = False) -> None:
        super().__init__()
        self.attention = plan.attention()
        self.cross_attention = plan.cross_attention() if crosses else None
        self.ffn = plan.ffn()
        self.block = plan.block(branches=1 + crosses + self.ffn.present)
        self._without = Position(plan.dims)

    def forward(self, state: State, context: Context, position: Position, source: Source | None = None) -> State:
        return self.block(state, self._branches(context, position, source), context.query.padding)

    def updates(self, context: Context, position: Position, source: Source | None = None) -> list[Update]:
        """For each residual branch, what it computes from what it reads."""
        return self.block.updates(self._branches(context, position, source), context.query.padding)

    def _branches(self, context: Context, position: Position, source: Source | None) -> list[Branch]:
        branches: list[Branch] = [partial(self.attention, context=context, position=position)]
        if self.cross_attention is not None:
            assert source is not None, "a layer with cross-attention needs a source"
            across = position if position.crosses else self._without
            branches.append(
                partial(self.cross_attention, context=source.context, position=across, memory=source.memory)
            )
        if self.ffn.present:
            branches.append(partial(self.ffn, padding=context.query.padding))
        return branches


class Stack(nn.Module):
    """Layers between an opened and a closed stream, with the positions that they share stored once.

    Args:
        layers: how each layer is built, first to last.
        dropout: probability with which embeddings are zeroed in training.
        crosses: whether the layers read a source.

    Attributes:
        checkpointed: whether training keeps what enters each layer alone and computes the layer again in the backward
            pass, with a context of its own both times (Chen et al. 2016, arXiv:1604.06174).
        can_cache: whether places may be read one after the other, with the result of reading them at once.
        limit: places that the encodings have positions for.
        tags: channels of tags that the patterns read.
    """

    def __init__(self, layers: Sequence[LayerPlan], dropout: float, *, crosses: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(layer, crosses=crosses) for layer in layers)
        self._position_of_layer = [layer.position() for layer in layers]
        self._distinct = list(dict.fromkeys(self._position_of_layer))
        self.positions = nn.ModuleDict(_named(self._distinct))
        self._encodings = list(dict.fromkeys(part for position in self._distinct for part in position.encodings()))
        first, last = layers[0], layers[-1]
        self.embed_norm = first.norm() if first.placement().embed else None
        self.final_norm = last.norm() if last.placement().final else None
        self.dropout = nn.Dropout(dropout)
        self.checkpointed = False
        self.can_cache = all(layer.can_cache() for layer in layers)
        self.limit = min((layer.position().limit or math.inf for layer in layers), default=math.inf)
        self.tags = {tag for layer in layers for tag in layer.pattern().tags}

    def forward(
        self,
        x: Tensor,
        tokens: Tokens,
        memory: Tensor | None = None,
        memory_tokens: Tokens | None = None,
        cache: Cache | None = None,
        journey: Journey | None = None,
    ) -> Tensor:
        """The stream's output [B, T, D] for embeddings x [B, T, D]; layers that cross read `memory` [B, S, D].

        With a cache, the T places follow those that it has noted. With a journey, places may leave on the way.
        """
        keys = tokens if cache is None else cache.extend(tokens)
        reads = partial(_reading, tokens, keys, x.dtype, memory, memory_tokens, cache)
        context, source = reads()
        for encoding in self._encodings:
            x = encoding.embed(x, tokens)
        if self.embed_norm is not None:
            x = self.embed_norm(x, tokens.padding)
        walk = Walk(
            layers=[
                partial(checkpoint, partial(_computed, layer, position, reads), use_reentrant=False)
                if self.checkpointed and torch.is_grad_enabled()
                else partial(layer, context=context, position=position, source=source)
                for layer, position in zip(self.layers, self._position_of_layer, strict=True)
            ],
            updates=partial(self._updates, reads),
            inputs=lambda: (*self.parameters(), *(() if memory is None else (memory,))),
        )
        first, last = self._residual(0), self._residual(-1)
        norm = _same if self.final_norm is None else partial(self.final_norm, padding=tokens.padding)
        state, close = first.open(self.dropout(x)), partial(last.close, norm=norm)
        state = first.run(state, walk) if journey is None else journey.walk(state, walk.layers, close)
        return close(state)

    def _updates(self, reads: Callable[[], tuple[Context, Source | None]]) -> list[Update]:
        """What every residual branch of the stack computes, first to last, with a context of their own."""
        context, source = reads()
        return [
            update
            for layer, position in zip(self._layers(), self._position_of_layer, strict=True)
            for update in layer.updates(context, position, source)
        ]

    def _residual(self, end: int) -> Residual:
        """The residual of the first (0) or last (−1) sublayer, which opens or closes the stream."""
        return self._layers()[end].block.sublayer(end).residual

    def _layers(self) -> list[Layer]:
        """The layers, as what they are."""
        layers = list(self.layers)
        return [layer for layer in layers if isinstance(layer, Layer)]


def _reading(
    tokens: Tokens,
    keys: Tokens,
    dtype: torch.dtype,
    memory: Tensor | None,
    memory_tokens: Tokens | None,
    cache: Cache | None,
) -> tuple[Context, Source | None]:
    """A new context of places against all places so far, and against a source's where there is one."""
    context = Context(tokens, keys, dtype, cache)
    if memory is None:
        return context, None
    assert memory_tokens is not None, "a memory comes with its places"
    return context, Source(memory, Context(tokens, memory_tokens, dtype, cache))


def _computed(
    layer: nn.Module, position: Position, reads: Callable[[], tuple[Context, Source | None]], state: State
) -> State:
    """A layer's state, where nothing is shared with other layers: computed again, it finds what it found before."""
    context, source = reads()
    return layer(state, context, position, source)


def _same(x: Tensor) -> Tensor:
    return x


def _named(positions: Sequence[Position]) -> dict[str, Position]:
    """Positions by class and place among those of their class, so that another class renames none of their weights."""
    counts: Counter[str] = Counter()
    named = {}
    for position in positions:
        name = type(position).__name__
        counts[name] += 1
        named[name if counts[name] == 1 else f"{name}_{counts[name]}"] = position
    return named
