"""What heads are pulled to, and the first layer's values in later ones, by definition in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from swapformer.model.attention.auxiliary_losses import overlap
from torch import Tensor, nn
from torch.nn import functional

from configs import accepted, small
from swapformer.conformance.subject import VOCABULARY, ids
from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.model.attention import MultiHead
from swapformer.model.auxiliary import take_auxiliary_loss
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal, Full, Pattern, PerHead, Window
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose
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


GUIDED = {
    "previous": lambda i, j: 1.0 if j == i - 1 else 0.0,
    "local": lambda i, j: 0.5 ** abs(i - j),
    "global": lambda i, j: 1.0,
}
PATTERNS = [
    Causal(DIMS),
    Full(DIMS),
    Window(DIMS, before=2),
    PerHead(DIMS, patterns={"a": Causal, "b": lambda dims: Window(dims, before=1)}),
]


@pytest.mark.parametrize("tokens", PLACES, ids=["plain", "padding", "documents"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=["causal", "full", "window", "per head"])
@pytest.mark.parametrize("behaviour", GUIDED)
def test_a_guided_head_pays_for_its_distance_from_the_behaviour(
    behaviour: str, pattern: Pattern, tokens: Tokens
) -> None:
    """Squared, over keys, for the queries that may see one of the places they shall look at, and are no padding."""
    pulls, found = {1: 0.2, 3: 0.5}, []
    part = attention(pattern=pattern, **{f"{behaviour}_pull": [0.0, 0.2, 0.0, 0.5]})
    weights = part.weights(X, context(tokens), Position(DIMS))
    mask = context(tokens).mask(pattern)
    allowed = torch.ones(2, HEADS, LENGTH, LENGTH) if mask is None else mask.expand(2, HEADS, LENGTH, LENGTH)
    for head, weight in pulls.items():
        each = []
        for b in range(2):
            for i in range(LENGTH):
                shares = [GUIDED[behaviour](i, j) * float(allowed[b, head, i, j]) for j in range(LENGTH)]
                if sum(shares) and not (tokens.padding is not None and tokens.padding[b, i]):
                    target = torch.tensor(shares, dtype=torch.float64) / sum(shares)
                    each.append(((weights[b, head, i] - target) ** 2).sum())
        found.append(weight * torch.stack(each).mean())
    expected, ours = torch.stack(found).sum(), loss_of(part, tokens)
    assert (ours - expected).abs() <= 1e-12
    leaves = [part.query.weight, part.key.weight]
    grads = [torch.autograd.grad(loss, leaves) for loss in (ours, expected)]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_pulled_heads_learn_their_behaviour() -> None:
    """With one-hot inputs to tell places by; of the last of nine places half the local head's weight is on itself."""
    part = attention(previous_pull=[1.0], global_pull=[0.0, 1.0], local_pull=[0.0, 0.0, 1.0])
    tokens, x = Tokens.of(LENGTH), torch.eye(WIDTH, dtype=torch.float64)[None, :LENGTH]
    leaves = [part.query.weight, part.key.weight]
    for _ in range(300):
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
    halves = torch.tensor([0.5**d for d in range(4)])
    assert (weights[2, -1].flip(0)[:4] - halves / 2).abs().max() < 0.1


def test_pulls_change_no_output_and_leave_nothing_in_evaluation() -> None:
    plain, pulled = attention(), attention(orthogonality=0.1, previous_pull=[0.1])
    for part in (plain.eval(), pulled.eval(), plain.train()):
        part(X, context(Tokens.of(LENGTH)), Position(DIMS))
        assert take_auxiliary_loss(part) is None
    outs = [part.train()(X, context(Tokens.of(LENGTH)), Position(DIMS)) for part in (plain, pulled)]
    assert torch.equal(*outs)
    assert (plain.has_auxiliary_loss, pulled.has_auxiliary_loss) == (False, True)


def test_a_memory_guides_nothing() -> None:
    part = attention(pattern=Full(DIMS), previous_pull=[0.1]).train()
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


SHARED = "model/attention=value_residual"
REFUSED = [
    (["model.attention.orthogonality=-0.1"], "`orthogonality` must be at least 0"),
    (["model.attention.orthogonality=0.1", "model.num_heads=1"], "0 for a single head, but it is 0.1 for `num_heads`"),
    (["model.attention.value_residual=1.0"], r"a share: it must lie in \[0, 1\), but it is 1.0"),
    (["model.attention.local_pull=[0,0,0,0,1]"], "a weight of at least 0 for each head from head 0, at most 4, but it"),
    (["model.attention.previous_pull=[-0.1]"], r"`previous_pull` must hold .* but it is \[-0.1\]"),
    (
        ["model.attention.global_pull=[1]", "model/pattern=window", "model.pattern.before=0"],
        "the pattern Window shows each place itself alone; use model/pattern=causal",
    ),
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


def test_layers_without_a_share_may_differ() -> None:
    """The sparse form of the paper: some layers have a share, the others any shape."""
    layers = "model.layers=[{at: 1, attention.value_residual: 0.0, num_heads: 2}]"
    found = accepted("task=copy", SHARED, "model.num_layers=3", layers)["model"]["layers"]
    assert found[1]["num_heads"] == 2 and found[1]["attention"]["value_residual"] == 0.0
