"""Linformer: attention to landmarks, by its definition (Wang et al. 2020, arXiv:2006.04768, section 4)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from configs import accepted
from swapformer.errors import UsageError
from swapformer.model.attention import Linformer
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full, Window
from swapformer.model.position import Position, Rotary
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.study.config.compose import check, compose

HEADS, HEAD_DIM, WIDTH, LENGTH, ROOM, LANDMARKS = 2, 4, 6, 9, 12, 3
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, ROOM, 5)
NOPE = Position(DIMS)
SHARING = ["none", "heads", "key_value"]


def linformer(sharing: str = "none") -> Linformer:
    part = Linformer(DIMS, pattern=Full(DIMS), landmarks=LANDMARKS, sharing=sharing).double()
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=stream("linformer", name)))
    return part.eval()


X = torch.randn(2, LENGTH, WIDTH, generator=stream("x"), dtype=torch.float64)


def run(part: Linformer, x: Tensor, **given: Tensor) -> Tensor:
    tokens = Tokens.of(x.shape[1], **given)
    return part(x, Context(tokens, tokens, torch.float64), NOPE)


def definition(part: Linformer, x: Tensor, padding: Tensor) -> Tensor:
    """Every sum written out."""
    rows, (q, k, v) = [], (layer(x).view(2, LENGTH, HEADS, HEAD_DIM) for layer in (part.query, part.key, part.value))
    keys, values = part.of_keys.weight, (part.of_values or part.of_keys).weight
    for b in range(2):
        kept = [j for j in range(LENGTH) if not padding[b, j]]
        for i in range(LENGTH):
            outs = []
            for h in range(HEADS):
                a, c = keys[h % len(keys)], values[h % len(values)]
                logits = torch.stack(
                    [sum(a[m, j] * (q[b, i, h] @ k[b, j, h]) for j in kept) for m in range(LANDMARKS)]
                ) / math.sqrt(HEAD_DIM)
                shares = logits.exp() / logits.exp().sum()
                outs.append(sum(shares[m] * c[m, j] * v[b, j, h] for m in range(LANDMARKS) for j in kept))
            rows.append(part.out(torch.cat(outs)))
    return torch.stack(rows).view(2, LENGTH, WIDTH)


@pytest.mark.parametrize("sharing", SHARING)
def test_every_sum_is_the_definitions_with_gradients(sharing: str) -> None:
    part, x, padding = linformer(sharing), X.clone().requires_grad_(), torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, :4] = True
    leaves = [x, *part.parameters()]
    ours, theirs = run(part, x, padding=padding), definition(part, x, padding)
    probe = torch.randn(ours.shape, generator=stream("probe"), dtype=torch.float64)
    grads = [torch.autograd.grad((out * probe).sum(), leaves) for out in (ours, theirs)]
    gap = max((a - b).abs().max().item() for a, b in [(ours, theirs), *zip(*grads, strict=True)])
    print(f"largest difference {gap:.1e}")
    assert gap <= 1e-10


def test_sharing_is_what_it_says() -> None:
    """Matrices [M, max_len]: A and C of every head, A and C of a layer, A alone."""
    shapes = {s: [tuple(p.shape) for n, p in linformer(s).named_parameters() if n.startswith("of_")] for s in SHARING}
    one, each = (1, LANDMARKS, ROOM), (HEADS, LANDMARKS, ROOM)
    assert shapes == {"none": [each, each], "heads": [one, one], "key_value": [one]}


def test_landmarks_that_copy_the_places_make_full_attention() -> None:
    """A = C = 1 with as many landmarks as places is softmax attention: torch's."""
    part = Linformer(DIMS, pattern=Full(DIMS), landmarks=LENGTH, sharing="key_value").double()
    generator = stream("full")
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        part.of_keys.weight.copy_(torch.eye(LENGTH, ROOM))
    heads = (layer(X).view(2, LENGTH, HEADS, HEAD_DIM).transpose(1, 2) for layer in (part.query, part.key, part.value))
    full = torch.nn.functional.scaled_dot_product_attention(*heads)
    assert torch.allclose(run(part, X), part.out(full.transpose(1, 2).flatten(2)), atol=1e-12)


def test_columns_go_by_position() -> None:
    """A row whose positions start later uses later columns; beyond `max_len` there are none."""
    part, start = linformer(), ROOM - LENGTH
    later = run(part, X, position=torch.arange(LENGTH)[None] + start)
    with torch.no_grad():
        for maps in (part.of_keys, part.of_values):
            assert maps is not None
            maps.weight.copy_(maps.weight.roll(-start, dims=-1))
    assert torch.allclose(run(part, X), later, atol=1e-12)
    with pytest.raises(ValueError, match=f"mixes {ROOM} positions .model.max_len., but there are {ROOM + 1}; raise"):
        run(part, X, position=torch.arange(LENGTH)[None] + start + 1)


def test_a_document_is_mixed_as_if_it_were_alone() -> None:
    part, cut = linformer(), 4
    document, position = (torch.arange(LENGTH) >= cut).long()[None], torch.arange(LENGTH)[None]
    packed = run(part, X, document=document, position=torch.where(document == 1, position - cut, position))
    alone = torch.cat([run(part, X[:, :cut]), run(part, X[:, cut:])], dim=1)
    assert torch.allclose(packed, alone, atol=1e-12)


def test_a_memory_of_another_length_can_be_read() -> None:
    """The rows of a sequence that asks itself and of one that asks it from outside agree."""
    part, tokens, few = linformer(), Tokens.of(LENGTH), Tokens.of(2)
    position = Rotary(DIMS, base=100.0, fraction=1.0, interleaved=False)
    whole = part(X, Context(tokens, tokens, torch.float64), position)
    read = part(X[:, :2], Context(few, tokens, torch.float64), position, X)
    assert part.crosses
    assert torch.allclose(read, whole[:, :2], atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pattern": Window(DIMS, before=2, after=2)}, "cannot follow the pattern Window; use model/pattern=full"),
        ({"pattern": Causal(DIMS)}, "linear, performer, reformer or mha to keep this pattern"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    given = {"pattern": Full(DIMS), "landmarks": 3, "sharing": "heads", **settings}
    with pytest.raises(ValueError, match=message):
        Linformer(DIMS, **given)  # type: ignore[arg-type]


ENCODING = ["task=copy", "model/attention=linformer", "model/pattern=full", "allow=[future]"]
REFUSED = [
    (
        ["task=copy", "model/attention=linformer"],
        "no position of the topology Decoder may see a later one, but attention Linformer mixes all positions of a row",
    ),
    (
        ["task=copy", "model/attention=linformer", "allow=[future]"],
        "mixes all positions of a row before any of them is a query, so it cannot follow the pattern Causal",
    ),
    ([*ENCODING, "model/position=alibi"], "linformer attention has no scores that the position ALiBi could add to"),
    (
        [*ENCODING, "model.max_len=20"],
        "Linformer attention has a table of 20 rows .model.max_len., but positions reach",
    ),
    ([*ENCODING, "model/position=randomized"], "but positions reach to 2048; set model.max_len=2048"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_linformer_cannot_take_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(overrides))


def test_linformer_goes_with_the_full_pattern() -> None:
    assert accepted(*ENCODING)["model"]["pattern"]["_target_"] == "swapformer.model.pattern.Full"
