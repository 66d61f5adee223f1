"""Topologies that write an answer token by token: only a decoder, and a decoder that reads an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

from torch import Tensor

from swapformer.model.cache import Cache
from swapformer.model.depth import ExitTracker
from swapformer.model.dims import Side
from swapformer.model.layers import declare_side
from swapformer.model.plan import ModelPlan
from swapformer.model.stack import Stack
from swapformer.model.taps import Site
from swapformer.model.tokens import Tokens
from swapformer.model.topology.base import Topology
from swapformer.ranges import Positive


class Decoder(Topology):
    """Next-token model: token ids [B, T] → logits [B, T, V] (Radford et al. 2018/2019, GPT).

    logits = W · stack(embedding_scale · E[ids] + positions); the matrix W has no bias. An answer for a whole sequence
    is read from its last token.

    Args:
        plan: how the layers are built.
        tie_embeddings: whether W is the embedding table E.
        embedding_scale: factor on the token embeddings before positions are added; √d_model in Vaswani et al. 2017.
    """

    def __init__(self, plan: ModelPlan, *, tie_embeddings: bool, embedding_scale: Positive) -> None:
        super().__init__(plan, tie_embeddings=tie_embeddings, embedding_scale=embedding_scale)
        self.stack = Stack(plan.layers, plan.dims.dropout)
        self._add_readouts()


class EncoderDecoder(Topology):
    """Source ids [B, S] and token ids [B, T] → logits [B, T, V] (Vaswani et al. 2017, arXiv:1706.03762).

    The encoder reads the source in both directions; every layer of the decoder attends to its own earlier tokens, then
    to the encoder's output except for padding. A position encoding acts in cross-attention only if it states `crosses`.
    `model.encoder` holds the encoder's number of layers and its overrides, by which its pattern may be another than
    full.

    With `source=inputs` the encoder reads the decoder's own inputs, as some tutorials have it. Its output at place
    t + 1 tells of the symbol that the decoder must predict at place t, so the targets leak past the decoder's mask.

    Args:
        plan: how the layers are built.
        tie_embeddings: whether W is the embedding table E.
        embedding_scale: factor on the embeddings before positions are added; √d_model in the paper.
        share_embeddings: whether source and answer are embedded by one table.
        source: what the encoder reads: what the task hands over (task), or the decoder's own inputs (inputs).

    Raises:
        ValueError: for another word as `source`.
    """

    reads_source: ClassVar[bool] = True

    def __init__(
        self,
        plan: ModelPlan,
        *,
        tie_embeddings: bool,
        embedding_scale: Positive,
        share_embeddings: bool,
        source: Literal["task", "inputs"] = "task",
    ) -> None:
        super().__init__(plan, tie_embeddings=tie_embeddings, embedding_scale=embedding_scale)
        self.reads_ahead = source == "inputs"
        self.source_embedding = None if share_embeddings else self._input_layer()
        self.encoder = Stack(plan.encoder, plan.dims.dropout)
        self.stack = Stack(plan.layers, plan.dims.dropout, crosses=True)
        if self.reads_ahead:  # each new token changes what the encoder makes of those before it
            self.stack.can_cache = False
        self._add_readouts()
        declare_side(self.encoder, Side.ENCODER)

    def read(self, source: Tensor, source_tokens: Tokens) -> Tensor:
        """The encoder's output for a source, [B, S, D]."""
        table = self.embedding if self.source_embedding is None else self.source_embedding
        x: Tensor = table(source)
        return self.encoder(x if self.embedding_scale == 1 else self.embedding_scale * x, source_tokens)

    def sites(self) -> Iterator[Site]:
        for name, stack in (("encoder", self.encoder), ("decoder", self.stack)):
            yield from (site.under(name) for site in stack.sites())
        yield self._answer_site()

    def states(
        self,
        inputs: Tensor,
        tokens: Tokens,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        cache: Cache | None = None,
        exits: ExitTracker | None = None,
    ) -> Tensor:
        if self.reads_ahead:
            if source is not None:
                raise ValueError("with source=inputs the encoder reads the decoder's inputs; pass no `source`.")
            source, source_tokens = inputs, tokens
        if source is None or source_tokens is None:
            raise ValueError("an encoder-decoder reads a source, but none was given; pass `source`.")
        read = partial(self.read, source, source_tokens)
        memory = read() if cache is None else cache.once(self, lambda: (read(),))[0]
        return self.stack(self.embed(inputs, tokens), tokens, memory, source_tokens, cache, exits)
