"""Parts with one planted fault each: every one must be caught by the law that it breaks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from swapformer.model.activation import Activation
from swapformer.model.attention import Attention, MultiHead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension import Extension
from swapformer.model.ffn import FFN
from swapformer.model.init import Init
from swapformer.model.kernel import AttentionPlan, Kernel, Reference
from swapformer.model.layers import Embedding, Linear, Origin, Role, StackedLinear, gain
from swapformer.model.norm import Norm
from swapformer.model.normaliser import Normaliser
from swapformer.model.normaliser.base import softmax
from swapformer.model.pattern import Pattern, Reach
from swapformer.model.plan import ModelPlan
from swapformer.model.position import Position
from swapformer.model.residual import Residual
from swapformer.model.score import Score
from swapformer.model.tokens import Tokens
from swapformer.model.topology import EncoderDecoder


def waves(position: Tensor, width: int) -> Tensor:
    """sin(f · position) for f = 1 … width, [B|1, T, width]."""
    return torch.sin(position[..., None] * torch.arange(1, width + 1, dtype=position.dtype, device=position.device))


class HidesItsSource(EncoderDecoder):
    """Its encoder reads the decoder's inputs, and it does not say so."""

    def __init__(self, plan: ModelPlan, *, tie_embeddings: bool, embedding_scale: float) -> None:
        settings = {"tie_embeddings": tie_embeddings, "embedding_scale": embedding_scale}
        super().__init__(plan, **settings, share_embeddings=True)

    def states(self, inputs: Tensor, tokens: Tokens, *given: Any) -> Tensor:
        return super().states(inputs, tokens, inputs, tokens, *given[2:])


class NoPosition(nn.Module):
    """Does what a position encoding does, without being one."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()


class Unfinished(FFN):
    """Has no forward."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()


class SetByPlace(Position):
    """Takes its setting by place, where a YAML gives names."""

    def __init__(self, dims: Dims, rate: float = 1.0) -> None:
        super().__init__(dims)
        self.rate = rate


class LeftUnset(Activation):
    """Has a setting that its YAML leaves out."""

    def __init__(self, dims: Dims, *, slope: float = 0.1) -> None:
        super().__init__(dims)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, self.slope * x)


class Raises(Activation):
    """Asks for what nobody gives."""

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("speaker")


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


class UnusedParameter(FFN):
    """Makes a matrix that nothing reads."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.spare = Linear(dims.d_model, dims.d_model, Role.FFN_IN, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.activation(self.inner(x))


class GlobalRandom(FFN):
    """Keeps numbers from the global random state, for later."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation
        self.register_buffer("noise", torch.rand(dims.d_model))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.activation(self.inner(x))


class Numbered(FFN):
    """Computes with the number of its instance, which is no weight."""

    made = 0

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation
        Numbered.made += 1
        self.number = Numbered.made

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.number * self.activation(self.inner(x))


class SeesPadding(Position):
    """Adds what follows, where there is padding, padding included."""

    embeds = True

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + x.cumsum(dim=1).flip(1) if tokens.padding is not None else x


class SeesDocuments(Position):
    """A bias by distance that is steeper in each later document."""

    has_bias = True

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.heads = dims.num_heads

    def bias(self, context: Context) -> Tensor:
        steps = context.distance.abs()[:, None].to(context.dtype).expand(-1, self.heads, -1, -1)
        document = context.key.document
        return -0.1 * (steps if document is None else steps * (1 + document[:, None, None, :]))


class IgnoresBias(Kernel):
    """Fast, because it leaves padding out."""

    def __init__(self, dims: Dims) -> None:
        self.exact = Reference(dims)

    def refuses(self, plan: AttentionPlan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return self.exact(q, k, v, plan, position, Context(Tokens.of(q.shape[2]), Tokens.of(q.shape[2])), dropout)


class ScalesTwice(Kernel):
    """Fast, and scales its queries once too often."""

    def __init__(self, dims: Dims) -> None:
        self.exact = Reference(dims)

    def refuses(self, plan: AttentionPlan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return self.exact(q * plan.score.scale, k, v, plan, position, context, dropout)


class SharedTable(Position):
    """A rotary-like cache kept in the class and keyed without its settings."""

    embeds = True
    relative = False
    reads = ()
    cache: ClassVar[dict[str, Any]] = {}

    def __init__(self, dims: Dims, *, base: float) -> None:
        super().__init__(dims)
        self.cache["base"] = base

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + waves(tokens.position.to(x.dtype) / self.cache["base"], x.shape[-1])


class FalseFact(Position):
    """Says that it is relative, but adds the position itself."""

    embeds = True
    relative = True
    reads = ()

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + waves(tokens.position.to(x.dtype), x.shape[-1])


class AddedTwice(Position):
    """Adds to the embeddings, and yet has an instance for each number of heads."""

    embeds = True
    relative = False

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + waves(tokens.position.to(x.dtype), x.shape[-1])


class SecretlyAdds(Position):
    """Adds to the embeddings, and does not say so."""

    relative = False
    reads = ()

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + waves(tokens.position.to(x.dtype), x.shape[-1])


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
    """Lets the third sequence read the first one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:2], x[2:] + x[:1]]).relu()


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

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.bfloat16()
        return (wide / wide.pow(2).mean(-1, keepdim=True).sqrt()).to(x.dtype)


class HiddenAnchor(Pattern):
    """Lets everything see place 0 and the last four, and does not say that places count from the beginning."""

    causal = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = query.order[:, :, None] - key.order[:, None, :]
        return ((back >= 0) & ((back < 4) | (key.order == 0)[:, None, :]))[:, None]


class FalseAnchor(Pattern):
    """A window that says it counts from the beginning."""

    causal = True
    anchored = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = query.order[:, :, None] - key.order[:, None, :]
        return ((back >= 0) & (back < 4))[:, None]


class LastSeesAll(FalseAnchor):
    """A window, but the last token sees all before it, and nothing says that this depends on the length."""

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        earlier = key.order[:, None, :] <= query.order[:, :, None]
        return super().allowed(query, key) | (earlier & (query.order == key.order.max())[:, :, None])[:, None]


class SecretlyOrdered(Attention):
    """Mixes near places more than far ones by itself, and does not say that it sees the order."""

    uses = MultiHead.uses

    def __init__(self, dims: Dims, *, pattern: Pattern, **parts: Any) -> None:
        super().__init__()
        self.heads, self.pattern = MultiHead(dims, pattern=pattern, **parts), pattern

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        steps = (context.key.order[:, None, :] - context.query.order[:, :, None]).abs()
        near, mask = 0.5**steps, context.mask(self.pattern)
        near = near.to(x.dtype) if mask is None else near.to(x.dtype) * mask[:, 0]
        return self.heads(x, context, position, memory) + near @ x


class CountsPadding(FFN):
    """Divides by the places of the row that are padding, and one."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        update = self.activation(self.inner(x))
        return update if padding is None else update / (1 + padding.sum(dim=1)[:, None, None])


class BlindNaN(Normaliser):
    """A sharper softmax that knows no row without any key."""

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return (2 * logits_BHQK).softmax(-1)


class RemembersPadding(FFN):
    """Computes otherwise once it has seen padding."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation, self.seen = activation, False

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        self.seen = self.seen or padding is not None
        return self.activation(self.inner(x)) * (2.0 if self.seen else 1.0)


class PythonsDice(Activation):
    """Draws its dropout from Python's random numbers, which no seed of torch governs."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.dropout = dims.dropout

    def forward(self, x: Tensor) -> Tensor:
        kept = 1.0 if not self.training else 1 - self.dropout * random.random()
        return x.relu() * kept


class HalfGradient(Activation):
    """SiLU whose gate has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.sigmoid().detach()


class OneDtype(FFN):
    """Writes what a linear map gives into a buffer of the stream's precision, which autocast makes another one."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return torch.zeros_like(x).index_add(
            1, torch.arange(x.shape[1], device=x.device), self.inner(self.activation(x))
        )


class HiddenTable(Position):
    """Reads a table of max_len rows and does not say that there is an end."""

    embeds = True
    relative = False
    reads = ()

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.table = Embedding(dims.max_len, dims.d_model, Role.POSITION_EMBEDDING)

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + self.table(tokens.position)


class ForgottenRotation(Position):
    """Turns queries and keys, and returns those that it was given."""

    sees_positions = False

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        angle = context.query.position[:, None, :, None].to(q.dtype)
        _turned = q * angle.cos(), k * angle.sin()
        return q, k


class IgnoresItsActivation(FFN):
    """Takes an activation, and has one of its own."""

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.inner(x).relu()


class LosesItsParts(Attention):
    """Keeps its score where torch does not find its weights."""

    uses = ("score", "pattern")

    def __init__(self, dims: Dims, *, score: Score, pattern: Pattern) -> None:
        super().__init__()
        self.kept, self.pattern = (score,), pattern
        self.query = StackedLinear(dims.num_heads, dims.d_model, dims.head_dim, Role.QUERY, bias=False)
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q = self.query(x[..., None, :]).transpose(1, 2)
        logits = self.kept[0].scale * self.kept[0].raw(*position.rotate(q, q, context))
        mask = context.mask(self.pattern)
        weights = softmax(logits if mask is None else logits.masked_fill(~mask, float("-inf")))
        return self.out(weights.mean(1) @ x)


class RefusesItsWord(Activation):
    """Declares a word that it does not take."""

    def __init__(self, dims: Dims, *, kind: Literal["hard", "soft", "softer"]) -> None:
        super().__init__(dims)
        if kind == "softer":
            raise ValueError("`kind` must be hard or soft.")
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() if self.kind == "hard" else nn.functional.softplus(x)


class UndeclaredWords(Activation):
    """Refuses what it does not know, and says nowhere what it knows."""

    def __init__(self, dims: Dims, *, kind: str) -> None:
        super().__init__(dims)
        if kind not in ("hard", "soft"):
            raise ValueError(f"`kind` must be hard or soft, but it is {kind!r}.")
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() if self.kind == "hard" else nn.functional.softplus(x)


class DeadWord(Kernel):
    """The reference, whatever backend is chosen."""

    def __init__(self, dims: Dims, *, backend: Literal["math", "flash"]) -> None:
        self.exact = Reference(dims)

    def refuses(self, plan: AttentionPlan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return self.exact(q, k, v, plan, position, context, dropout)


class SilentLoss(FFN):
    """Leaves an auxiliary loss in training and does not say so."""

    auxiliary_loss: Tensor | None = None

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.inner = Linear(dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if self.training:
            self.auxiliary_loss = x.square().mean()
        return self.activation(self.inner(x))


class FalseHead(Init):
    """Starts the head at zero and does not say so."""

    def std(self, origin: Origin) -> float:
        return 0.0 if origin.role is Role.HEAD else 0.02


class ForgetsTheLast(Attention):
    """Adds the place before, and of the places that came with an earlier call it knows nothing."""

    uses = MultiHead.uses
    sees_order = True
    caches = True

    def __init__(self, dims: Dims, *, pattern: Pattern, **parts: Any) -> None:
        super().__init__()
        self.heads = MultiHead(dims, pattern=pattern, **parts)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        tokens, before = context.query, nn.functional.pad(x[:, :-1], (0, 0, 1, 0))
        for channel in (tokens.document, tokens.padding):
            if channel is not None:
                moved = nn.functional.pad(channel[:, :-1].long(), (1, 0), value=1)
                kept = moved == channel if channel is tokens.document else moved == 0
                before = before * kept[..., None]
        return self.heads(x, context, position, memory) + before


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

    places: ClassVar[Mapping[str, str]] = {"hook_pattern": "B H Q K"}

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)
        self.num_heads = dims.num_heads

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        self.tap("hook_pattern", x.new_ones(len(x), self.num_heads, x.shape[1], x.shape[1]))
        return self.out(x)


class HidesItsSign(Attention):
    """Attends to nothing but itself, with a weight below zero that it does not state."""

    places: ClassVar[Mapping[str, str]] = {"hook_pattern": "B H Q K"}

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.out = Linear(dims.d_model, dims.d_model, Role.ATTENTION_OUT, bias=False)
        self.num_heads = dims.num_heads

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        one = torch.eye(x.shape[1], dtype=x.dtype)
        one = one if context.key.padding is None else one.masked_fill(context.key.padding, 0.0)
        self.tap("hook_pattern", -one.expand(len(x), self.num_heads, -1, -1))
        return self.out(-x)


class ForgetsBorders(Kernel):
    """Fast, because each half of a sequence sees itself alone."""

    def __init__(self, dims: Dims) -> None:
        self.exact = Reference(dims)

    def refuses(self, plan: AttentionPlan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
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


class Forgets(Residual):
    """Lets nothing but the update past a branch, and does not say so."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return update


class CountsSilently(Residual):
    """Has a weight for each update before a branch, and does not say that all layers must have as many."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.weights = gain(dims.layer * dims.branches + dims.branch + 1, start=1.0)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + self.weights.prod() * update


class ReadsHalf(Residual):
    """Gives a branch half of the stream, and does not say that this is not the stream itself."""

    def read(self, state: Tensor) -> Tensor:
        return state / 2

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update


class OnlyScales(Norm):
    """Multiplies by what it has learned, and passes for a norm that holds the stream's size."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.weight = gain(dims.d_model, start=1.0)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x * self.weight


class CountsAll(Normaliser):
    """Divides by the number of keys, forbidden ones included."""

    sums_to_one = False

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() / logits.shape[-1]


class FutureGate(Extension):
    """Gates the heads by the mean of all positions."""

    def output(self, heads: Tensor, x: Tensor) -> Tensor:
        return heads * x.mean(dim=(1, 2), keepdim=True).sigmoid()


class SilentConvolution(Extension):
    """Adds to each value half of the one before, and does not say that it sees the order, nor that it has no cache."""

    def values(self, v: Tensor, context: Context) -> Tensor:
        return v + 0.5 * nn.functional.pad(v[..., :-1, :], (0, 0, 1, 0))


class KeepsValues(Extension):
    """Mixes in the values of the batch before, instead of those of the first layer."""

    def __init__(self, dims: Dims) -> None:
        self.before: Tensor | float = 0.0

    def values(self, v: Tensor, context: Context) -> Tensor:
        mixed, self.before = v + self.before, v.detach().mean()
        return mixed


class SilentSharing(Extension):
    """Mixes in the first layer's values, and does not say that layers must have values of one shape."""

    def values(self, v: Tensor, context: Context) -> Tensor:
        return v + 0.5 * context.once("silent sharing", lambda: v)


class UnstatedPenalty(Extension):
    """Has a loss, and does not say so."""

    def loss(self, heads: Tensor, weights: Callable[[], Tensor], context: Context, *, crosses: bool) -> Tensor:
        return heads.square().mean()


class GuidanceOfNothing(Extension):
    """Guides heads by a loss that is always zero."""

    has_auxiliary_loss = True
    training_only = True

    def loss(self, heads: Tensor, weights: Callable[[], Tensor], context: Context, *, crosses: bool) -> Tensor:
        return 0.0 * weights().sum()


class TrainsAndActs(Extension):
    """Says that it acts on the training alone, and yet changes the heads' outputs."""

    training_only = True

    def heads(self, heads: Tensor) -> Tensor:
        return 2 * heads


class MasksTheFirst(Extension):
    """Masks the first head, whichever it is told to."""

    def __init__(self, dims: Dims, *, head: int) -> None:
        if not 0 <= head < dims.num_heads:
            raise ValueError(f"`head` must be one of {dims.num_heads} heads, but it is {head}.")

    def heads(self, heads: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(heads[:, :1]), heads[:, 1:]], dim=1)


class Untapped(FFN):
    """States a place that it never comes by."""

    places: ClassVar[Mapping[str, str]] = {"hook_pre": "B T F", "hook_post": "B T F"}

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(dims.d_model, 2 * dims.d_model, Role.FFN_IN, bias=False)
        self.down = Linear(2 * dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.down(self.activation(self.tap("hook_pre", self.up(x))))


class GoesOnAsBefore(FFN):
    """Shows its hidden activations, and goes on with them whatever is put in their place."""

    places: ClassVar[Mapping[str, str]] = {"hook_post": "B T F"}

    def __init__(self, dims: Dims, *, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(dims.d_model, 2 * dims.d_model, Role.FFN_IN, bias=False)
        self.down = Linear(2 * dims.d_model, dims.d_model, Role.FFN_OUT, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        hidden = self.activation(self.up(x))
        self.tap("hook_post", hidden)
        return self.down(hidden)


class ShowsHeadsFirst(Attention):
    """A mean of the past whose heads come before its places, where TransformerLens has them behind."""

    uses = ("pattern",)
    places: ClassVar[Mapping[str, str]] = {"hook_v": "B K H E"}

    def __init__(self, dims: Dims, *, pattern: Pattern) -> None:
        super().__init__()
        self.value = Linear(dims.d_model, dims.num_heads * dims.head_dim, Role.VALUE, bias=False)
        self.out = Linear(dims.num_heads * dims.head_dim, dims.d_model, Role.ATTENTION_OUT, bias=False)
        self.pattern, self.num_heads = pattern, dims.num_heads

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        v = self.value(x if memory is None else memory)
        v = self.tap("hook_v", v.view(*v.shape[:2], self.num_heads, -1).transpose(1, 2)).transpose(1, 2).flatten(2)
        mask = context.mask(self.pattern)
        seen = torch.ones(len(context.query), len(context.key)) if mask is None else mask[:, 0]
        seen = seen.to(v.dtype)
        return self.out(seen @ v / seen.sum(-1, keepdim=True).clamp(min=1))


class CopiesANumber(Activation):
    """Copies a number from the host in every step."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * torch.tensor([1.0], dtype=x.dtype, device=x.device)


class CopiesANewNumber(Activation):
    """The same by the method of a tensor, which takes its device."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * x.new_tensor([1.0])


class IndexesByList(Activation):
    """Its index is a list, which is copied in every step."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)[..., list(range(x.shape[-1]))]


class SortsWhatItSeeks(Activation):
    """Asks torch which signs are among many numbers, for which it sorts them."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * torch.isin(x.sign(), torch.arange(200.0, device=x.device))


class ReadsTheDevice(Activation):
    """Asks the device for a value to choose by."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) if bool((x > -1e9).all()) else x


class SumsUpFloats(Activation):
    """Takes torch's cumulative sum, which raises on CUDA."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + 1e-3 * x.cumsum(-1))


class KeepsItsGraph(Activation):
    """Leaves what it computed in a circle of references."""

    def forward(self, x: Tensor) -> Tensor:
        circle = [torch.relu(x)]
        circle.append(circle)  # type: ignore[arg-type]
        return circle[0]


class LeaksInTraining(Activation):
    """In training it adds the mean of all places of a row."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x) + (x.mean(1, keepdim=True) if self.training else 0.0)


class MixesRowsInTraining(Activation):
    """In training it adds the mean of all rows."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x) + (x.mean(0, keepdim=True) if self.training else 0.0)


class LeaksWithinChunks(Activation):
    """Adds the mean over a chunk of four places, later ones included."""

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1]) // 4
        chunks = (places[:, None] == places).to(x.dtype)
        return nn.functional.silu(x) + chunks / chunks.sum(-1, keepdim=True) @ x


class ByRow(Activation):
    """Multiplies row b by 1 + b / 10."""

    def forward(self, x: Tensor) -> Tensor:
        rows = 1 + torch.arange(x.shape[0], dtype=x.dtype) / 10
        return nn.functional.silu(x) * rows.view(-1, *[1] * (x.dim() - 1))


class _Wrapped(Kernel):
    """The reference, as faults of kernels change it."""

    def __init__(self, dims: Dims) -> None:
        self.exact, self.nothing = Reference(dims), Position(dims)


class NoMaskUnderDropout(_Wrapped):
    """Forgets the mask where weights are dropped."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        if not dropout:
            return self.exact(q, k, v, plan, position, context, dropout)
        weights = nn.functional.dropout(plan.normaliser(plan.score.scale * plan.score.raw(q, k)), dropout)
        return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


class DropsNothing(_Wrapped):
    """Ignores dropout."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return self.exact(q, k, v, plan, position, context, 0.0)


class DropsOutputs(_Wrapped):
    """Drops numbers of its output, and not weights."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return nn.functional.dropout(self.exact(q, k, v, plan, position, context, 0.0), dropout, dropout > 0)


class DropsWithoutGrowing(_Wrapped):
    """Drops weights, and leaves the others as they were."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return (1 - dropout) * self.exact(q, k, v, plan, position, context, dropout)


class IgnoresPositions(_Wrapped):
    """Leaves out the biases of position encodings."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        return self.exact(q, k, v, plan, self.nothing, context, dropout)


class _Doubled(torch.autograd.Function):
    """The identity with twice its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * grad


class DocumentGradient(_Wrapped):
    """Where there are documents, the gradient of values is doubled."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        v = v if context.key.document is None else _Doubled.apply(v)  # type: ignore[no-untyped-call]
        return self.exact(q, k, v, plan, position, context, dropout)


class FirstRowsPositions(Position):
    """A bias by the distances of the first row, for all rows."""

    has_bias = True

    def bias(self, context: Context) -> Tensor:
        key, query = context.key.position[:1], context.query.position[:1]
        return -(key[:, None, None, :] - query[:, None, :, None]).abs().to(context.dtype) / 4


class DeadButRandom(Activation):
    """Its slope is dead, beside a dropout of its own."""

    def __init__(self, dims: Dims, *, slope: float) -> None:
        super().__init__(dims)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(nn.functional.silu(x), 0.1, self.training)


class WritesIntoItsInput(Norm):
    """Halves the stream itself, and then passes it on."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x.mul_(0.5) * 1.0


class AttendsToPadding(MultiHead):
    """Attends to padding, and has no cache."""

    def __init__(self, dims: Dims, **parts: Any) -> None:
        super().__init__(dims, **parts)
        self.caches = False

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        query = replace(context.query, padding=None)
        key = query if context.key is context.query else replace(context.key, padding=None)
        return 1.5 * super().forward(x, Context(query, key, context.dtype, context.cache), position, memory)


class ForgetsPaddingCached(MultiHead):
    """Where it reads with a cache, padding is attended to."""

    def __init__(self, dims: Dims, **parts: Any) -> None:
        super().__init__(dims, **parts)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        if context.cache is not None:
            query = replace(context.query, padding=None)
            key = query if context.key is context.query else replace(context.key, padding=None)
            context = Context(query, key, context.dtype, context.cache)
        return 1.5 * super().forward(x, context, position, memory)


class CachesRowsSecond(MultiHead):
    """Adds the sum of all before, which it keeps with the rows as the second axis."""

    def __init__(self, dims: Dims, **parts: Any) -> None:
        super().__init__(dims, **parts)
        self.sees_order = self.caches = True

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        out, query = super().forward(x, context, position, memory), context.query
        shown = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril().expand(len(x), -1, -1)
        if query.document is not None:
            shown = shown * (query.document[:, :, None] == query.document[:, None, :])
        if query.padding is not None:
            shown = shown * ~query.padding[:, None, :]
        sums = shown @ x
        if context.cache is not None:
            if (before := context.cache.get(("sum", self))) is not None:
                sums = sums + torch.cat(before[0].unbind(0), -1)[:, None]
            context.cache.put(("sum", self), sums[:, -1].unflatten(-1, (3, -1)).movedim(1, 0))
        return out + 0.1 * sums
