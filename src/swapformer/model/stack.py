"""Stacks: the layers of a decoder or an encoder, with position encodings, dropout and norms around them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from swapformer.model.attention import Attention
from swapformer.model.block import READ, Block, Branch
from swapformer.model.cache import Cache
from swapformer.model.context import Context
from swapformer.model.depth import ExitTracker
from swapformer.model.ffn import FFN
from swapformer.model.plan import LayerPlan
from swapformer.model.position import Position
from swapformer.model.residual import ForwardPass, Residual
from swapformer.model.residual.base import State, Update
from swapformer.model.taps import Site, Tapped
from swapformer.model.tokens import Tokens


@dataclass(frozen=True, eq=False)
class EncoderOutput:
    """The output of an encoder, which the cross-attention of a decoder reads.

    Attributes:
        memory: the encoder's output, [B, S, D].
        context: the decoder's tokens as queries against the source's as keys.
    """

    memory: Tensor
    context: Context


class Layer(Tapped):
    """Attention, cross-attention if the stack reads a source, and a feed-forward layer, wired by a block.

    Layers share the position encoding, so it comes with every call. Cross-attention uses it if it states `crosses`.
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
        self._no_position = Position(plan.dims)

    def forward(self, state: State, context: Context, position: Position, source: EncoderOutput | None = None) -> State:
        return self.block(state, self._branches(context, position, source), context.query.padding)

    def updates(self, context: Context, position: Position, source: EncoderOutput | None = None) -> list[Update]:
        """For each residual branch of the layer the function from its input to its update."""
        return self.block.updates(self._branches(context, position, source), context.query.padding)

    def _branches(self, context: Context, position: Position, source: EncoderOutput | None) -> list[Branch]:
        branches: list[Branch] = [partial(self.attention, context=context, position=position)]
        if self.cross_attention is not None:
            assert source is not None, "a layer with cross-attention needs a source"
            across = position if position.crosses else self._no_position
            reads = {"context": source.context, "position": across, "memory": source.memory}
            branches.append(partial(self.cross_attention, **reads))
        if self.ffn.present:
            branches.append(partial(self.ffn, padding=context.query.padding))
        return branches

    def sites(self) -> Iterator[Site]:
        parts = [("attn", self.attention), ("cross_attn", self.cross_attention), ("mlp", self.ffn)]
        here = {name: part for name, part in parts if part is not None and (part is not self.ffn or self.ffn.present)}
        yield from self.block.named_sites(list(here))
        for name, part in here.items():
            yield from (site.under(name) for site in part.sites())


class Stack(Tapped):
    """Layers on one residual stream, with the position encodings that they share stored once.

    Args:
        layers: how each layer is built, first to last.
        dropout: probability with which embeddings are zeroed in training.
        crosses: whether the layers read a source.

    Attributes:
        checkpointed: whether training stores only the input of each layer and computes the layer again in the
            backward pass, with a context of its own both times (Chen et al. 2016, arXiv:1604.06174).
        can_cache: whether tokens may be read one after the other, with the result of reading them at once.
        limit: how many positions the encodings have.
        tags: names of the channels of Tokens that the patterns read.
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
        exits: ExitTracker | None = None,
    ) -> Tensor:
        """The stream's output [B, T, D] for embeddings x [B, T, D]; layers that cross read `memory` [B, S, D].

        With a cache, the T tokens follow those that it holds. With `exits`, tokens may leave before the last layer.
        """
        x = self.tap("hook_embed", x)
        keys = tokens if cache is None else cache.extend(tokens)
        dtype = x.dtype

        def contexts() -> tuple[Context, EncoderOutput | None]:
            """A new context of the tokens against all so far, and one against the source's if there is a source."""
            context = Context(tokens, keys, dtype, cache)
            if memory is None:
                return context, None
            assert memory_tokens is not None, "a memory comes with its tokens"
            return context, EncoderOutput(memory, Context(tokens, memory_tokens, dtype, cache))

        context, source = contexts()
        for encoding in self._encodings:
            x = encoding.embed(x, tokens)
        if self.embed_norm is not None:
            x = self.embed_norm(x, tokens.padding)
        forward = ForwardPass(
            layers=[
                partial(checkpoint, partial(_recomputed, layer, position, contexts), use_reentrant=False)
                if self.checkpointed and torch.is_grad_enabled() and not self.observed
                else partial(layer, context=context, position=position, source=source)
                for layer, position in zip(self.layers, self._position_of_layer, strict=True)
            ],
            updates=partial(self._updates, contexts),
            inputs=lambda: (*self.parameters(), *(() if memory is None else (memory,))),
        )
        first, last = self._residual(0), self._residual(-1)
        norm: Update = (lambda x: x) if self.final_norm is None else partial(self.final_norm, padding=tokens.padding)
        state, close = first.open(self.dropout(x)), partial(last.close, norm=norm)
        if exits is not None:
            state = exits.run(state, forward.layers, close)
        elif self.observed:  # what is watched is computed once
            state = reduce(lambda state, layer: layer(state), forward.layers, state)
        else:
            state = first.run(state, forward)
        return self.tap("ln_final.hook_normalized", close(self._watched_end(state) if self.observed else state))

    def _watched_end(self, state: State) -> State:
        """The state after the last layer, as those who watch it leave it."""
        last = self._residual(-1)
        if last.reads_stream:
            return self.tap("hook_resid_post", state)
        self.tap("hook_resid_post", last.close(state, norm=lambda x: x))
        return state

    def sites(self, layers: str = "") -> Iterator[Site]:
        """The places of the stack; those of layer N are called `layers` and N.

        A layer leaves behind what the next one reads, the last one what the stream is closed to before the final norm.
        """
        yield Site("hook_embed", self, "hook_embed", "B T D")
        output = Site("ln_final.hook_normalized", self, "ln_final.hook_normalized", "B T D")
        fixed = None if self._residual(-1).reads_stream else output.name
        end = Site("hook_resid_post", self, "hook_resid_post", "B T D", fixed)
        own = [[site.under(f"{layers}{index}") for site in layer.sites()] for index, layer in enumerate(self._layers())]
        starts = [next(site for site in sites if site.name.endswith(f".{READ[0]}")) for sites in own]
        for index, (sites, left) in enumerate(zip(own, [*starts[1:], end], strict=True)):
            yield from sites
            yield replace(left, name=f"{layers}{index}.hook_resid_post")
        yield output

    def _updates(self, contexts: Callable[[], tuple[Context, EncoderOutput | None]]) -> list[Update]:
        """The functions of all residual branches, first to last, with a separate context."""
        context, source = contexts()
        return [
            update
            for layer, position in zip(self._layers(), self._position_of_layer, strict=True)
            for update in layer.updates(context, position, source)
        ]

    def _residual(self, end: int) -> Residual:
        """The residual of the first (0) or last (−1) sublayer, which opens or closes the stream."""
        return self._layers()[end].block.sublayer(end).residual

    def _layers(self) -> list[Layer]:
        """The layers with their own type, which nn.ModuleList hides."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]


def _recomputed(
    layer: nn.Module, position: Position, contexts: Callable[[], tuple[Context, EncoderOutput | None]], state: State
) -> State:
    """The state after a layer that shares no context with others, so that computing it again gives the same."""
    context, source = contexts()
    return layer(state, context, position, source)


def _named(positions: Sequence[Position]) -> dict[str, Position]:
    """Positions by class and number within their class, so that adding another class renames no weight."""
    counts: Counter[str] = Counter()
    named = {}
    for position in positions:
        name = type(position).__name__
        counts[name] += 1
        named[name if counts[name] == 1 else f"{name}_{counts[name]}"] = position
    return named


def stacks(model: nn.Module) -> dict[str, Stack]:
    """The stacks of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Stack)}
