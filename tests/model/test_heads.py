"""What heads are pulled to, and the first layer's values in later ones, by definition in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from configs import small
from swapformer.conformance.subject import VOCABULARY, ids
from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.model.attention import MultiHead
from swapformer.model.attention.guidance import Guide, overlap
from swapformer.model.auxiliary import take_auxiliary_loss
from swapformer.model.context import Context, Tokens
from swapformer.model.dims import Dims
from swapformer.model.kernel import Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Pattern, PerHead, Window
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.random import stream
from swapformer.study.config import check, compose
from swapformer.training.assemble import build_model

HEADS, HEAD_DIM, WIDTH, LENGTH = 4, 3, 10, 9
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 16, 5)
X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)
PADDING = torch.arange(LENGTH)[None] >= torch.tensor([[LENGTH], [LENGTH - 2]])
DOCUMENT = (torch.arange(LENGTH) >= 4).long()[None]
PLACES = [Tokens.of(LENGTH), Tokens.of(LENGTH, padding=PADDING), Tokens.of(LENGTH, document=DOCUMENT)]


def attention(name: str = "", pattern: Pattern | None = None, **options: Any) -> MultiHead:
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    part = MultiHead(DIMS, score=Dot(DIMS, exponent=-0.5), pattern=pattern or Causal(DIMS), **parts, **options).double()
    with torch.no_grad():
        for key, parameter in part.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("heads", name, key), dtype=torch.float64)
            parameter.copy_(0.5 * noise)
    return part


def context(tokens: Tokens) -> Context:
    return Context(tokens, tokens, torch.float64)


def loss_of(part: MultiHead, tokens: Tokens) -> Tensor:
    part.train()(X, context(tokens), Position(DIMS))
    loss = take_auxiliary_loss(part)
    assert loss is not None
    return loss


def heads_of(part: MultiHead, tokens: Tokens) -> Tensor:
    """[B, H, T, E], before the last matrix."""
    v = part.value(X).view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2)
    return part.weights(X, context(tokens), Position(DIMS)) @ v


@pytest.mark.parametrize("tokens", PLACES, ids=["plain", "padding", "documents"])
def test_the_orthogonality_penalty_is_the_mean_squared_cosine_of_two_heads(tokens: Tokens) -> None:
    part = attention(orthogonality=0.3)
    heads, found = heads_of(part, tokens), []
    for b in range(2):
        for t in range(LENGTH):
            if tokens.padding is not None and tokens.padding[b, t]:
                continue
            for h in range(HEADS):
                for g in set(range(HEADS)) - {h}:
                    a, c = heads[b, h, t], heads[b, g, t]
                    found.append((a @ c / (a.norm() * c.norm())) ** 2)
    expected, ours = 0.3 * torch.stack(found).mean(), loss_of(part, tokens)
    assert (ours - expected).abs() <= 1e-12
    leaves = [part.query.weight, part.value.weight, part.value.bias]
    grads = [torch.autograd.grad(loss, leaves) for loss in (ours, expected)]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_the_penalty_is_zero_for_orthogonal_heads_and_one_for_parallel_ones() -> None:
    apart = torch.eye(4, dtype=torch.float64)[None, :, None].expand(2, 4, 5, 4)
    assert overlap(3 * apart, None) == 0
    assert overlap(torch.ones(2, 4, 5, 3), None) == pytest.approx(1)


GUIDES: list[tuple[dict[str, Any], Pattern]] = [
    ({"head": 0, "nearest": 1, "farthest": 1, "weight": 0.2}, Causal(DIMS)),
    ({"head": 1, "nearest": 0, "farthest": 3, "weight": 1.0}, Window(DIMS, before=2)),
    ({"head": 3, "nearest": 0, "farthest": None, "weight": 0.5}, Causal(DIMS)),
    ({"head": 2, "nearest": -2, "farthest": -1, "weight": 0.5}, Full(DIMS)),
    (
        {"head": 3, "nearest": 0, "farthest": 4, "weight": 0.5},
        PerHead(DIMS, patterns={"a": Causal, "b": lambda dims: Window(dims, before=1)}),
    ),
]


@pytest.mark.parametrize("tokens", PLACES, ids=["plain", "padding", "documents"])
@pytest.mark.parametrize(("guide", "pattern"), GUIDES, ids=["previous", "local", "global", "next", "per head"])
def test_a_guided_head_pays_for_its_distance_from_even_weights(
    guide: dict[str, Any], pattern: Pattern, tokens: Tokens
) -> None:
    """Squared, over keys, for the queries that may see one of the places they shall look at, and are no padding."""
    part = attention(pattern=pattern, guided_heads=[guide])
    weights = part.weights(X, context(tokens), Position(DIMS))[:, guide["head"]]
    allowed = context(tokens).mask(pattern)
    found = []
    for b in range(2):
        for i in range(LENGTH):
            far = LENGTH if guide["farthest"] is None else guide["farthest"]
            seen = [j for j in range(LENGTH) if guide["nearest"] <= i - j <= far]
            if allowed is not None:
                every = allowed.expand(2, HEADS, LENGTH, LENGTH)
                seen = [j for j in seen if every[b, guide["head"], i, j]]
            if not seen or (tokens.padding is not None and tokens.padding[b, i]):
                continue
            target = torch.zeros(LENGTH, dtype=torch.float64)
            target[seen] = 1 / len(seen)
            found.append(((weights[b, i] - target) ** 2).sum())
    expected, ours = guide["weight"] * torch.stack(found).mean(), loss_of(part, tokens)
    assert (ours - expected).abs() <= 1e-12
    leaves = [part.query.weight, part.key.weight]
    grads = [torch.autograd.grad(loss, leaves) for loss in (ours, expected)]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_a_pulled_head_learns_to_look_at_the_previous_place() -> None:
    """With positions to tell places by: one-hot inputs."""
    global_, previous = {"head": 1, "nearest": 0, "farthest": None}, {"head": 0, "nearest": 1, "farthest": 1}
    part = attention(guided_heads=[{**previous, "weight": 1.0}, {**global_, "weight": 1.0}])
    tokens, x = Tokens.of(LENGTH), torch.eye(WIDTH, dtype=torch.float64)[None, :LENGTH]
    leaves = [part.query.weight, part.key.weight]
    for _ in range(200):
        part(x, context(tokens), Position(DIMS))
        loss = take_auxiliary_loss(part)
        assert loss is not None
        with torch.no_grad():
            for leaf, slope in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
                leaf.sub_(4 * slope)
    weights = part.weights(x, context(tokens), Position(DIMS))[0].detach()
    assert weights[0].diagonal(-1).min() > 0.9
    even = torch.ones(LENGTH, LENGTH).tril() / torch.arange(1, LENGTH + 1)[:, None]
    assert (weights[1] - even).abs().max() < 0.1


def test_pulls_change_no_output_and_leave_nothing_in_evaluation() -> None:
    guided = [{"head": 0, "nearest": 1, "farthest": 1, "weight": 0.1}]
    plain, pulled = attention(), attention(orthogonality=0.1, guided_heads=guided)
    for part in (plain.eval(), pulled.eval(), plain.train()):
        part(X, context(Tokens.of(LENGTH)), Position(DIMS))
        assert take_auxiliary_loss(part) is None
    outs = [part.train()(X, context(Tokens.of(LENGTH)), Position(DIMS)) for part in (plain, pulled)]
    assert torch.equal(*outs)
    assert (plain.has_auxiliary_loss, pulled.has_auxiliary_loss) == (False, True)


def test_a_memory_guides_nothing() -> None:
    guided = [{"head": 0, "nearest": 1, "farthest": 1, "weight": 0.1}]
    part = attention(pattern=Full(DIMS), guided_heads=guided).train()
    crossed = Context(Tokens.of(3), Tokens.of(LENGTH), torch.float64)
    part(X[:, :3], crossed, Position(DIMS), X)
    assert take_auxiliary_loss(part) is None


def test_later_layers_mix_in_the_first_layers_values() -> None:
    """ResFormer, Zhou et al. 2024: the weights are the layer's own, the values λ V₁ + (1 − λ) V_n."""
    parts = [attention(name, value_residual=share) for name, share in (("a", 0.5), ("b", 0.25), ("c", 0.75))]
    inputs = [X, X.flip(1), X.roll(1, 1)]
    shared = context(Tokens.of(LENGTH))
    ours = [part(x, shared, Position(DIMS)) for part, x in zip(parts, inputs, strict=True)]
    first = parts[0].value(X)
    theirs = []
    for part, x, share in zip(parts, inputs, (0.0, 0.25, 0.75), strict=True):
        values = share * first + (1 - share) * part.value(x)
        q, k, v = (y.view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2) for y in (part.query(x), part.key(x), values))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        theirs.append(part.out(mixed.transpose(1, 2).flatten(2)))
    leaves = [parameter for part in parts for parameter in part.parameters()]
    grads = [torch.autograd.grad(sum(out.square().sum() for out in outs), leaves) for outs in (ours, theirs)]
    assert max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)) <= 1e-12
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_values_of_one_forward_are_not_those_of_the_next() -> None:
    model: nn.Module = build_model(small(["model/attention=value_residual"]), Interface(VOCABULARY)).double().eval()
    once = model(ids(seed=1))
    model(ids(seed=2))
    assert torch.equal(model(ids(seed=1)), once)


GUIDED = "model.attention.guided_heads=[{{head: {}, nearest: {}, farthest: {}, weight: {}}}]"
SHARED = "model/attention=value_residual"
REFUSED = [
    (["model.attention.orthogonality=-0.1"], "`orthogonality` must be at least 0"),
    (["model.attention.orthogonality=0.1", "model.num_heads=1"], "0 for a single head, but it is 0.1 for `num_heads`"),
    (["model.attention.value_residual=1.0"], r"a share: it must lie in \[0, 1\), but it is 1.0"),
    ([GUIDED.format(4, 1, 1, 0.1)], "`head` of a guided head must be from 0 to 3, but it is 4"),
    ([GUIDED.format(0, 2, 1, 0.1)], "in this order, but they are 2 and 1; 1 and 1 is the previous place"),
    ([GUIDED.format(0, 1, 1, 0.0)], "`weight` must be above 0"),
    (["model.attention.guided_heads=[{head: 0}]"], "must have head, nearest, farthest, weight, but has head"),
    ([GUIDED.format(0, -2, -1, 0.1)], "the pattern Causal forbids all of -2 to -1 places back"),
    ([GUIDED.format(0, 20, 30, 0.1), "model/pattern=window"], "the pattern Window forbids all of 20 to 30 places back"),
    (["model/attention=orthogonal_heads", "model/residual=reversible"], "losses on heads of MultiHead could not act"),
    ([SHARED, "model/residual=reversible"], "first layer's values of model.attention.value_residual are not at hand"),
    ([SHARED, "model.num_layers=1"], "no later layer has it, so it would do nothing"),
    ([SHARED, "model.layers=[{at: 0, attention.value_residual: 0.0}]"], "it has none, but layer 1 has"),
    ([SHARED, "model.layers=[{at: 1, num_heads: 2}]"], r"differ \(layer 0: \(4, 16\), layer 1: \(2, 32\)\)"),
    ([SHARED, "model.layers=[{at: 1, attention.num_kv_heads: 2}]"], "give these layers the same num_heads, head_dim"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_cannot_work_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", *overrides]))


def test_a_guide_is_made_of_plain_settings() -> None:
    assert Guide.of({"head": 1, "nearest": 0, "farthest": None, "weight": 2}, 3) == Guide(1, 0, None, 2)


def test_layers_without_a_share_may_differ() -> None:
    """The sparse form of the paper: some layers have a share, the others any shape."""
    layers = "model.layers=[{at: 1, attention.value_residual: 0.0, num_heads: 2}]"
    check(compose(["task=copy", SHARED, "model.num_layers=3", layers]))
