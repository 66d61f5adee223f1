"""One stack that predicts what comes next."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.cache import Cache
from swapformer.model.depth import Journey
from swapformer.model.plan import ModelPlan
from swapformer.model.stack import Stack
from swapformer.model.tokens import Tokens
from swapformer.model.topology.base import Topology


class Decoder(Topology):
    """Next-token model: token ids [B, T] → logits [B, T, V] (Radford et al. 2018/2019, GPT).

    logits = W · stack(embedding_scale · E[ids] + positions); the matrix W has no bias. An answer for a whole sequence
    is read from its last place.

    Args:
        plan: how the layers are built.
        tie_embeddings: whether W is the embedding table E.
        embedding_scale: factor on the token embeddings before positions are added; √d_model in Vaswani et al. 2017.
    """

    def __init__(self, plan: ModelPlan, *, tie_embeddings: bool, embedding_scale: float) -> None:
        super().__init__(plan, tie_embeddings=tie_embeddings, embedding_scale=embedding_scale)
        self.stack = Stack(plan.layers, plan.dims.dropout)
        self._add_readouts()

    def states(
        self,
        inputs: Tensor,
        tokens: Tokens,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        cache: Cache | None = None,
        journey: Journey | None = None,
    ) -> Tensor:
        return self.stack(self.embed(inputs, tokens), tokens, cache=cache, journey=journey)
