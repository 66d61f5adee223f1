"""The topology of an encoder: one stack that reads all tokens at once."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model.dims import Side
from swapformer.model.layers import Embedding, Linear, Role, declare_side, shift
from swapformer.model.ops import symbol_logits
from swapformer.model.plan import ModelPlan
from swapformer.model.stack import Stack
from swapformer.model.tokens import Tokens
from swapformer.model.topology.base import Topology
from swapformer.ranges import Positive


class Encoder(Topology):
    """Reads a sequence in both directions: token ids [B, T] → logits [B, T, V] (Devlin et al. 2018, arXiv:1810.04805).

    x = E[ids] + S[segments] + positions goes through the stack. With `transform`, symbols are read as BERT does,
    W · norm(activation(W_t h + b_t)) + b, with the layers' own norm and activation. An answer for a whole sequence is
    read from tanh(W_p h₀ + b_p), where h₀ is the state of the first token ([CLS]). Post-norm with a norm of the
    embeddings is model/placement=bert.

    Args:
        plan: how the layers are built.
        tie_embeddings: whether W is the embedding table E.
        embedding_scale: factor on the embeddings before segments and positions are added.
        transform: whether a dense layer lies between the states and the symbols that are read from them.
    """

    side: ClassVar[Side] = Side.ENCODER
    reads_segments: ClassVar[bool] = True

    def __init__(self, plan: ModelPlan, *, tie_embeddings: bool, embedding_scale: Positive, transform: bool) -> None:
        super().__init__(plan, tie_embeddings=tie_embeddings, embedding_scale=embedding_scale)
        width, asked = plan.dims.d_model, plan.interface.readouts
        segments = plan.interface.segments
        self.segments = Embedding(segments, width, Role.SEGMENT_EMBEDDING) if segments else None
        self.stack = Stack(plan.layers, plan.dims.dropout)
        symbols = transform and asked[MAIN].kind == "symbols"
        self.dense = Linear(width, width, Role.POOLER, bias=True) if symbols else None
        self.activation = plan.layers[-1].part("activation") if symbols else None
        self.norm = plan.layers[-1].norm() if symbols else None
        pooled = any(readout.per == "sequence" for readout in asked.values())
        self.pooler = Linear(width, width, Role.POOLER, bias=True) if pooled else None
        self._add_readouts()
        self.symbol_bias = shift(plan.dims.vocab_size) if symbols else None
        declare_side(self, Side.ENCODER)

    def embed(self, inputs: Tensor, tokens: Tokens) -> Tensor:
        x = super().embed(inputs, tokens)
        return x if self.segments is None else x + self.segments(tokens.tags["segment"])

    def summary(self, states: Tensor, tokens: Tokens) -> Tensor:
        assert self.pooler is not None, "a pooler is made where an answer for a sequence is asked for"
        return self.pooler(states[:, 0]).tanh()

    def symbols(self, states: Tensor, tokens: Tokens, weight: Tensor) -> Tensor:
        if self.dense is None or self.activation is None or self.norm is None:
            return super().symbols(states, tokens, weight)
        states = self.norm(self.activation(self.dense(states)), tokens.padding)
        return symbol_logits(states, weight, self.symbol_bias)
