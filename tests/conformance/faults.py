"""Parts with one planted fault each: every one must be caught by the law that it breaks."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from swapformer.model.activation import Activation
from swapformer.model.attention import Attention
from swapformer.model.context import Context, Tokens
from swapformer.model.dims import Dims
from swapformer.model.ffn import FFN
from swapformer.model.kernel import Kernel, Plan, Reference
from swapformer.model.layers import Embedding, Linear, Role
from swapformer.model.norm import Norm
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Pattern, Reach
from swapformer.model.position import Position


class WrongShape(FFN):
    """Swaps batch and places, which changes the logits' meaning; not finite for good measure."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x / 0


class LeakyPattern(Pattern):
    """Says that it is causal, but lets each place see its successor."""

    causal = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return (key.order[:, None, :] <= query.order[:, :, None] + 1)[:, None]


class FutureNorm(Norm):
    """Normalises over places, so that the future leaks past a causal pattern."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x - x.mean(dim=1, keepdim=True)


class UnusedParameter(Position):
    """Makes a table that nothing reads."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.table = Embedding(3, dims.d_model, Role.POSITION_EMBEDDING)


class GlobalRandom(Position):
    """Draws a constant from the global random state."""

    embeds = True
    relative = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.register_buffer("offset", torch.rand(dims.d_model))

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + self.offset


class SeesPadding(Position):
    """Adds the mean embedding of all places, padding included."""

    embeds = True

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + x.cumsum(dim=1).flip(1) if tokens.padding is not None else x


class SeesDocuments(Position):
    """Adds a running sum that does not stop where a document ends."""

    embeds = True

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + 0.1 * x.cumsum(dim=1)


class IgnoresBias(Kernel):
    """Fast, because it leaves padding out."""

    def __init__(self, dims: Dims) -> None:
        self.exact = Reference(dims)

    def refuses(self, plan: Plan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return self.exact(q, k, v, plan, position, Context(Tokens.of(q.shape[2]), Tokens.of(q.shape[2])), dropout)


class SharedTable(Position):
    """A rotary-like cache kept in the class and keyed without its settings."""

    embeds = True
    relative = False
    cache: ClassVar[dict[str, Any]] = {}

    def __init__(self, dims: Dims, *, base: float) -> None:
        super().__init__(dims)
        self.cache["base"] = base

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + torch.sin(tokens.position / self.cache["base"])[..., None]


class FalseFact(Position):
    """Says that it is relative, but adds the position itself."""

    embeds = True
    relative = True
    reads = ()

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + torch.sin(tokens.position[..., None] * torch.arange(1, x.shape[-1] + 1))


class AddedTwice(Position):
    """Adds to the embeddings, and yet has an instance for each number of heads."""

    relative = False

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + torch.sin(tokens.position[..., None] * torch.arange(1, x.shape[-1] + 1))


class DeadKnob(Activation):
    """A number that nothing reads."""

    def __init__(self, dims: Dims, *, slope: float) -> None:
        super().__init__(dims)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class NamelessWeight(FFN):
    """A weight made outside the leaves, whose role nobody knows."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_IN, bias=False)
        self.secret = nn.Linear(dims.d_model, dims.d_model)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.secret(self.inner(x))


class ReadsOrder(Position):
    """Adds a bias that follows the order, where it should follow the position."""

    has_bias = True

    def bias(self, context: Context) -> Tensor:
        ahead = context.key.order[:, None, :] - context.query.order[:, :, None]
        return -0.1 * ahead.abs()[:, None].to(context.dtype)


class CausalByPosition(Pattern):
    """Compares positions, where causality is a matter of order."""

    causal = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return (key.position[:, None, :] <= query.position[:, :, None])[:, None]


class FirstOfBatch(Activation):
    """Lets the first sequence read the last one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:1] + x[-1:], x[1:]]).relu()


class AlwaysDropout(Activation):
    """Drops in evaluation too."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.dropout = dims.dropout

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x.relu(), self.dropout, training=True)


class CoarseNorm(Norm):
    """Takes its statistics in half precision."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.bfloat16()
        return (wide / wide.pow(2).mean(-1, keepdim=True).sqrt()).to(x.dtype)


class CountsKeys(Position):
    """Takes the number of a query among those handed over for its position, which a cache makes wrong."""

    has_bias = True

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)

    def bias(self, context: Context) -> Tensor:
        query, key = (torch.arange(len(tokens), dtype=context.dtype) for tokens in (context.query, context.key))
        return -(query[:, None] - key).abs()[None, None]


class MeanOfAll(Attention):
    """Says nothing of it, but lets every place see the mean of all."""

    uses = ("pattern",)

    def __init__(self, dims: Dims, *, pattern: Pattern) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        return self.out(x + x.mean(dim=1, keepdim=True))


class TakesCausal(Attention):
    """Says that it is not causal-safe, and yet takes a causal pattern."""

    uses = ("pattern",)
    causal_safe = False

    def __init__(self, dims: Dims, *, pattern: Pattern) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        return self.out(x + x.mean(dim=1, keepdim=True))


class Boundless(Attention):
    """Says that it ends at some position, and yet goes on."""

    limit = 100

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        return self.out(x)


class ShowsTheFuture(Attention):
    """Attends to nothing but itself, and shows weights for all places."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)
        self.num_heads = dims.num_heads

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        return self.out(x)

    def weights(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        return x.new_ones(len(x), self.num_heads, x.shape[1], x.shape[1])


class HidesItsSign(Attention):
    """Attends to nothing but itself, with a weight below zero that it does not state."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)
        self.num_heads = dims.num_heads

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        return self.out(-x)

    def weights(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        one = torch.eye(x.shape[1], dtype=x.dtype).masked_fill(context.key.padding, 0.0)
        return -one.expand(len(x), self.num_heads, -1, -1)


class ForgetsBorders(Kernel):
    """Fast, because each half of a sequence sees itself alone."""

    def __init__(self, dims: Dims) -> None:
        self.exact = Reference(dims)

    def refuses(self, plan: Plan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        halves = [slice(start, start + 40) for start in range(0, q.shape[2], 40)]
        return torch.cat(
            [self.exact(q[:, :, a], k[:, :, a], v[:, :, a], plan, position, context.at(a, a), dropout) for a in halves],
            dim=2,
        )


class FurtherThanStated(Pattern):
    """Sees ten places back, and states four."""

    causal = True
    reach = Reach(before=4, after=0)

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = key.order[:, None, :] - query.order[:, :, None]
        return ((ahead <= 0) & (ahead >= -10))[:, None]


class FromTheFirstKey(Position):
    """Adds a bias by the distance to the first key that it is asked for."""

    has_bias = True

    def bias(self, context: Context) -> Tensor:
        first = context.key.position[:, :1]
        return -0.1 * (context.key.position - first)[:, None, None].to(context.dtype)


class CountsBetween(Position):
    """Scores by what lies between a query and a key, and states that it looks at the pair alone."""

    has_scores = True

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor:
        return (q @ k.mT).sigmoid().cumsum(dim=-1)


class CountsAll(Normaliser):
    """Divides by the number of keys, forbidden ones included."""

    sums_to_one = False

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() / logits.shape[-1]
