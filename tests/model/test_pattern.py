"""Patterns against their definitions, place by place; every place sees something, and random blocks repeat."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hydra.utils import instantiate

from configs import small
from swapformer.errors import UsageError
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.pattern import (
    AllOf,
    AnyOf,
    BigBird,
    Causal,
    Dilated,
    Distant,
    Exponential,
    Fixed,
    Full,
    Function,
    Longformer,
    Pattern,
    PerHead,
    Seasonal,
    Strided,
    TaggedKeys,
    TagLink,
    TagWindow,
    Window,
)
from swapformer.model.pattern.function import same_remainder
from swapformer.model.tokens import Tokens
from swapformer.paths import conf_dir
from swapformer.study.config.compose import check, compose
from swapformer.training.assemble import build_plan
from swapformer.yaml_reader import read_yaml

DIMS = Dims(d_model=32, num_layers=1, num_heads=4, head_dim=8, max_len=64, vocab_size=5)
LENGTH = 30

TAGS = {"speaker": torch.arange(LENGTH)[None] // 4 % 2, "turn": torch.arange(LENGTH)[None] // 4}

DEFINITIONS: list[tuple[Pattern, Callable[[int, int], bool]]] = [
    (Window(DIMS, before=3, after=1), lambda i, j: -3 <= j - i <= 1),
    (Dilated(DIMS, before=2, after=1, step=3), lambda i, j: j - i in (-6, -3, 0, 3)),
    (Dilated(DIMS, before=None, after=0, step=4), lambda i, j: j in range(i, -1, -4)),
    (Exponential(DIMS, base=2), lambda i, j: i - j in (0, 1, 2, 4, 8, 16)),
    (Exponential(DIMS, base=3), lambda i, j: i - j in (0, 1, 3, 9, 27)),
    (Strided(DIMS, stride=5), lambda i, j: j in range(max(0, i - 4), i + 1) or j in range(i, -1, -5)),
    (
        Fixed(DIMS, stride=6, summary=2),
        lambda i, j: j in range(i // 6 * 6, i + 1) or (j <= i and j % 6 in (4, 5)),
    ),
    (Longformer(DIMS, before=2, after=3, places=[0, 7]), lambda i, j: -2 <= j - i <= 3 or bool({i, j} & {0, 7})),
    (TagWindow(DIMS, tag="speaker", before=0), lambda i, j: i // 4 % 2 == j // 4 % 2),
    (TagWindow(DIMS, tag="turn", before=1), lambda i, j: 0 <= i // 4 - j // 4 <= 1),
    (TaggedKeys(DIMS, tag="turn", value=3), lambda i, j: j // 4 == 3 or i == j),
    (TagLink(DIMS, query=["speaker"], key="turn"), lambda i, j: i // 4 % 2 == j // 4 or i == j),
    (TagLink(DIMS, query=["speaker", "turn"], key="turn"), lambda i, j: j // 4 in (i // 4, i // 4 % 2)),
    (Seasonal(DIMS, period=5, ahead=1), lambda i, j: j in {i, *range(i - 4, -1, -5)}),
    (Seasonal(DIMS, period=5, ahead=0), lambda i, j: j in range(i, -1, -5)),
    (Seasonal(DIMS, period=3, ahead=7), lambda i, j: j in {i, *range(i - 2, -1, -3)}),
    (Function(DIMS, rule=partial(same_remainder, period=3)), lambda i, j: (i - j) % 3 == 0),
    (
        AllOf(DIMS, patterns={"a": Causal, "b": partial(Window, before=9, after=9), "c": Full}),
        lambda i, j: 0 <= i - j <= 9,
    ),
    (Distant(DIMS, nearest=4), lambda i, j: i == j or i - j >= 4),
    (
        AnyOf(DIMS, patterns={"a": partial(Window, before=1), "b": partial(Dilated, before=None, after=0, step=5)}),
        lambda i, j: 0 <= i - j <= 1 or j in range(i, -1, -5),
    ),
]


@pytest.mark.parametrize(("pattern", "rule"), DEFINITIONS, ids=[type(p).__name__ for p, _ in DEFINITIONS])
@pytest.mark.parametrize("queries", [LENGTH, 4, 1])
def test_a_pattern_equals_its_definition_also_for_the_last_queries_alone(
    pattern: Pattern, rule: Callable[[int, int], bool], queries: int
) -> None:
    """The rules on the right are the papers' index sets, written place by place; few queries are those of a cache."""
    start = LENGTH - queries
    tags = {name: tag[:, start:] for name, tag in TAGS.items()}
    allowed = pattern.allowed(Tokens.of(queries, start=start, tags=tags), Tokens.of(LENGTH, tags=TAGS))
    assert allowed is not None
    expected = torch.tensor([[rule(i, j) for j in range(LENGTH)] for i in range(start, LENGTH)])
    assert torch.equal(allowed.expand(1, 1, queries, LENGTH)[0, 0], expected)


def test_heads_are_shared_out_among_the_patterns_in_order() -> None:
    tokens = Tokens.of(LENGTH)
    near, far = Window(DIMS, before=1), Dilated(DIMS, before=None, after=0, step=5)
    pattern = PerHead(DIMS, patterns={"a": lambda dims: near, "b": lambda dims: far})
    allowed = pattern.allowed(tokens, tokens)
    for head, part in enumerate((near, near, far, far)):
        assert torch.equal(allowed[0, head], part.allowed(tokens, tokens)[0, 0])
    with pytest.raises(ValueError, match=r"number of `patterns` must divide `num_heads`, but 3 \(a, b, c\)"):
        PerHead(DIMS, patterns=dict.fromkeys("abc", Full))


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_bigbird_blocks_follow_the_paper(count: int) -> None:
    """Band of three, first and last block both ways, and as many random blocks as asked, outside band and ends."""
    pattern = BigBird(DIMS, block=4, before=1, after=1, random_before=1, random_after=2, first=1, last=1, seed=0)
    blocks = pattern.blocks(count)
    for b in range(count):
        band = {c for c in range(count) if abs(c - b) <= 1} | {0, count - 1}
        seen = set(blocks[b].nonzero().flatten().tolist())
        assert band <= seen
        if b in (0, count - 1):
            assert seen == set(range(count))
            continue
        outside = set(range(count)) - band
        before, after = {c for c in outside if c < b}, {c for c in outside if c > b}
        assert len(seen & before) == min(1, len(before))
        assert len(seen & after) == min(2, len(after))


def test_random_blocks_repeat_in_every_build_and_do_not_move_as_the_sequence_grows() -> None:
    """BigBird (Zaheer et al. 2020): the same on every rank, in evaluation too; and a cache needs those of the past."""
    make = partial(BigBird, DIMS, block=2, before=1, random_before=2, first=1, seed=3)
    torch.manual_seed(1)
    first = make().blocks(20)
    torch.manual_seed(2)
    again = make().blocks(20)
    assert torch.equal(first, again)
    shorter = make().blocks(15)
    assert torch.equal(shorter.tril(), first[:15, :15].tril())
    assert not torch.equal(first, BigBird(DIMS, block=2, before=1, random_before=2, first=1, seed=4).blocks(20))


def test_a_pattern_whose_tag_is_missing_says_so() -> None:
    tokens = Tokens.of(5, tags={"turn": torch.zeros(1, 5, dtype=torch.int64)})
    with pytest.raises(ValueError, match=r"needs the channel 'speaker', but the task supplies \['turn'\]"):
        TagWindow(DIMS, tag="speaker", before=0).allowed(tokens, tokens)


@pytest.mark.parametrize(("option", "tag"), [("same_tag", "speaker"), ("code", "block"), ("dialogue", "turn")])
def test_a_task_without_the_tags_of_a_pattern_is_refused(option: str, tag: str) -> None:
    config = compose([f"model/pattern={option}", "task=copy"])
    with pytest.raises(UsageError, match=rf"needs the tags .*{tag}.*, but the task Copy supplies none"):
        check(config)


WRONG: list[tuple[Callable[[], Pattern], str]] = [
    (lambda: Window(DIMS, before=-1), "at least 0"),
    (lambda: Dilated(DIMS, before=1, after=0, step=0), "`step` must be a whole number of at least 1"),
    (lambda: Exponential(DIMS, base=1), "at least 2"),
    (lambda: Strided(DIMS, stride=0), "at least 1"),
    (lambda: Seasonal(DIMS, period=0, ahead=1), "at least 1"),
    (lambda: Seasonal(DIMS, period=4, ahead=-1), "at least 0"),
    (lambda: TagLink(DIMS, query=[], key="turn"), "at least one tag"),
    (lambda: Fixed(DIMS, stride=4, summary=5), "between 1 and `stride`"),
    (lambda: Longformer(DIMS, before=1, places=[-1]), "at least 0"),
    (
        lambda: BigBird(DIMS, block=0, before=1, random_before=0, first=1, seed=0),
        "`block` must be .* at least 1",
    ),
    (lambda: AllOf(DIMS, patterns={}), "at least one entry"),
    (lambda: TagWindow(DIMS, tag="turn", before=-1), "at least 0"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_wrong_settings_are_refused(make: Callable[[], Pattern], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_bands_alone_bound_the_work_and_patterns_by_tags_do_not() -> None:
    """What is not bounded is a mask over all pairs: it forbids, and saves no time."""
    nodes = {path.stem: read_yaml(path) for path in (conf_dir() / "model" / "pattern").glob("*.yaml")}
    made: dict[str, Pattern] = {name: instantiate(node)(DIMS) for name, node in nodes.items()}
    bounded = {name for name, pattern in made.items() if pattern.reach.bounded}
    assert bounded == {"window", "dilated", "longformer", "longformer_causal", "multi_scale"}
    assert not any(pattern.reach.bounded for pattern in made.values() if pattern.tags)


def test_a_mask_of_a_pattern_is_computed_once_for_all_layers() -> None:
    """Two layers with equal settings share one instance, so the context remembers one mask."""
    first, second = (layer.pattern() for layer in build_plan(small(["model/pattern=multi_scale"]), 11).layers)
    tokens = Tokens.of(8)
    context = Context(tokens, tokens)
    assert first is second
    assert context.mask(first) is context.mask(second)
