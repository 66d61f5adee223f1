"""Topologies: what stands around the layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention import Attention
from swapformer.model.block import Block
from swapformer.model.context import Context, Tokens
from swapformer.model.dims import require_positive, require_presence
from swapformer.model.ffn import FFN
from swapformer.model.layers import Embedding, Linear, Role
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.model.position import Position
from swapformer.model.residual import Residual, Walk
from swapformer.model.residual.base import State, Update
from swapformer.model.sublayer import Branch


class Layer(nn.Module):
    """Attention and a feed-forward layer, wired by a block. The position comes with every call, for layers share it."""

    attention: Attention
    ffn: FFN
    block: Block

    def __init__(self, plan: LayerPlan) -> None:
        super().__init__()
        self.attention = plan.attention()
        self.ffn = plan.ffn()
        self.block = plan.block(branches=2 if self.ffn.present else 1)

    def forward(self, state: State, context: Context, position: Position) -> State:
        return self.block(state, self._branches(context, position), context.query.padding)

    def updates(self, context: Context, position: Position) -> list[Update]:
        """For each residual branch, what it computes from what it reads."""
        return self.block.updates(self._branches(context, position), context.query.padding)

    def _branches(self, context: Context, position: Position) -> list[Branch]:
        attend = partial(self.attention, context=context, position=position)
        feed = partial(self.ffn, padding=context.query.padding)
        return [attend, feed] if self.ffn.present else [attend]


class Stack(nn.Module):
    """Layers between an opened and a closed stream, with the positions that they share stored once."""

    def __init__(self, plan: ModelPlan) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(layer) for layer in plan.layers)
        self._position_of_layer = [layer.position() for layer in plan.layers]
        self._distinct = list(dict.fromkeys(self._position_of_layer))
        self.positions = nn.ModuleDict(_named(self._distinct))
        self._encodings = list(dict.fromkeys(part for position in self._distinct for part in position.encodings()))
        first, last = plan.layers[0], plan.layers[-1]
        self.embed_norm = first.norm() if first.placement().embed else None
        self.final_norm = last.norm() if last.placement().final else None
        self.dropout = nn.Dropout(plan.dims.dropout)

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        context = Context(tokens, tokens, dtype=x.dtype)
        for encoding in self._encodings:
            x = encoding.embed(x, tokens)
        if self.embed_norm is not None:
            x = self.embed_norm(x, tokens.padding)
        walk = Walk(
            layers=[
                partial(layer, context=context, position=position)
                for layer, position in zip(self.layers, self._position_of_layer, strict=True)
            ],
            updates=partial(self._updates, tokens, x.dtype),
            inputs=tuple(self.parameters()),
        )
        first, last = self._residual(0), self._residual(-1)
        state = first.run(first.open(self.dropout(x)), walk)
        return last.close(state, _same if self.final_norm is None else partial(self.final_norm, padding=tokens.padding))

    def _updates(self, tokens: Tokens, dtype: torch.dtype) -> list[Update]:
        """What every residual branch of the stack computes, first to last, with a context of their own."""
        context = Context(tokens, tokens, dtype=dtype)
        return [
            update
            for layer, position in zip(self._layers(), self._position_of_layer, strict=True)
            for update in layer.updates(context, position)
        ]

    def _residual(self, end: int) -> Residual:
        """The residual of the first (0) or last (−1) sublayer, which opens or closes the stream."""
        return self._layers()[end].block.sublayer(end).residual

    def _layers(self) -> list[Layer]:
        """The layers, as what they are."""
        layers = list(self.layers)
        return [layer for layer in layers if isinstance(layer, Layer)]


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


class Topology(nn.Module, ABC):
    """Base of the slot: token ids [B, T] and what their places are → logits [B, T, V].

    Facts:
        predicts_next: the target of a place is the next token, which no place may see.
    """

    predicts_next: bool = False

    @abstractmethod
    def forward(self, ids: Tensor, tokens: Tokens | None = None) -> Tensor: ...


class Decoder(Topology):
    """Next-token model: token ids [B, T] → logits [B, T, V] (Radford et al. 2018/2019, GPT).

    logits = W · stack(embedding_scale · E[ids] + positions); the head W has no bias.

    Args:
        plan: how the layers are built.
        tie_embeddings: whether W is the embedding table E.
        embedding_scale: factor on the token embeddings before positions are added; √d_model in Vaswani et al. 2017.
    """

    predicts_next: bool = True

    def __init__(self, plan: ModelPlan, *, tie_embeddings: bool, embedding_scale: float) -> None:
        super().__init__()
        dims = plan.dims
        require_presence(tie_embeddings=tie_embeddings)
        require_positive(embedding_scale=embedding_scale)
        self.embedding_scale = embedding_scale
        self.embedding = Embedding(dims.vocab_size, dims.d_model, Role.TOKEN_EMBEDDING)
        self.stack = Stack(plan)
        self.head = None if tie_embeddings else Linear(dims.d_model, dims.vocab_size, Role.HEAD, bias=False)

    def forward(self, ids: Tensor, tokens: Tokens | None = None) -> Tensor:
        if tokens is None:
            tokens = Tokens.of(ids.shape[1], device=ids.device)
        x = self.embedding(ids)
        if self.embedding_scale != 1:
            x = self.embedding_scale * x
        x = self.stack(x, tokens)
        return functional.linear(x, self.embedding.weight) if self.head is None else self.head(x)
