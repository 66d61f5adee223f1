"""Copying and addition: their lengths, the laws of their splits, limited samples, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.task import Addition, Batch, Copy, Ordered, Periodic
from swapformer.task.base import Split
from swapformer.task.synthetic import Synthetic
from task import solvers
from task.test_labels import batches, written


def rows(task: Synthetic, batch: Batch) -> list[tuple[list[str], list[str]]]:
    """Each sequence as the written tokens that are no filler, and the written targets."""
    return [(inputs, [each for each in targets if each is not None]) for inputs, targets in written(task, batch)]


def test_zero_padding_gives_operands_the_digits_of_the_item_and_the_answer_one_more() -> None:
    task = Addition(zero_padded=True, eval_digits=[5])
    for label, batch in batches(task):
        for words, targets in rows(task, batch):
            first, second = "".join(words[: words.index("=")]).split("+")
            assert len(first) == len(second) == len(targets) - 2
            assert label != "@5" or len(first) == 5


def test_an_evaluation_length_holds_items_of_that_length_only() -> None:
    copy, addition = Copy(lengths=[2, 9], eval_lengths=[3, 20]), Addition(digits=3, eval_digits=[2, 6])
    assert [one.name for one in copy.evaluation("val")] == ["", "@3", "@20"]
    for task in (copy, addition):
        for one in task.evaluation("test")[1:]:
            for index in range(4):
                for words, _ in rows(task, one.batch(index)):
                    prompt = "".join(w if w in "+=|" else "x" for w in words)
                    lengths = [len(part) for part in prompt.replace("=", "|").split("|")[0].split("+")]
                    assert max(lengths) == int(one.name[1:])


def test_training_draws_every_length_equally_often() -> None:
    task = Copy(symbols=9, lengths=[2, 6], batch_size=2000)
    counts = Counter(words.index("|") for words, _ in rows(task, task.train_batch(0, 0)))
    assert set(counts) == {2, 3, 4, 5, 6}
    assert all(abs(count - 400) < 100 for count in counts.values()), "five standard deviations of a binomial"


@pytest.mark.parametrize("distinct", [1, 2, 3])
def test_an_item_holds_as_many_different_symbols_as_asked_for(distinct: int) -> None:
    task = Copy(symbols=40, distinct=distinct, lengths=[8, 8], batch_size=400)
    numbers = {len(set(words[: words.index("|")])) for words, _ in rows(task, task.train_batch(0, 0))}
    assert max(numbers) == distinct


def test_sums_longer_than_an_integer_are_right() -> None:
    task = Addition(digits=40, batch_size=8)
    for words, targets in rows(task, task.train_batch(0, 1)):
        assert targets[:-1] == solvers.added(task, words[: words.index("=")])


# --- Splits


def slow_hash(parts: tuple[tuple[int, ...], ...]) -> int:
    """The content hash with Python's whole numbers, straight from the definition."""

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    words = (sum(mix((place << 32) + symbol + 1) for place, symbol in enumerate(part)) % 2**64 for part in parts)
    return sum(mix(word) for word in words) % 2**63


def test_the_mixing_step_is_splitmix64() -> None:
    # The generator's first outputs from state 1234567, as published with its reference implementation (Vigna).
    from swapformer.task.content_split import _mix

    increment = 0x9E3779B97F4A7C15
    states = [(1234567 + step * increment) % 2**64 for step in range(3)]
    signed = torch.tensor([state - 2**64 if state >= 2**63 else state for state in states])
    assert [word % 2**64 for word in _mix(signed).tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_the_content_hash_equals_its_slow_twin() -> None:
    copy, addition = Copy(symbols=5, lengths=[3, 5]), Addition()
    for task in (copy, addition):
        content, lengths = task.sample(torch.Generator().manual_seed(0), "train", task.mixture, 50)
        for item, length, found in zip(content, lengths, task.splits.hash(content), strict=True):
            parts = tuple(tuple(part[:length].tolist()) for part in item)
            assert int(found) == slow_hash(parts)


def prompts(task: Synthetic, split: Split, batch_count: int) -> set[str]:
    if split == "train":
        drawn = [task.train_batch(seed, step) for seed in range(2) for step in range(batch_count)]
    else:
        drawn = [one.batch(index) for one in task.evaluation(split) for index in range(batch_count)]
    mark = "=" if isinstance(task, Addition) else "|"
    return {" ".join(words[: words.index(mark)]) for batch in drawn for words, _ in rows(task, batch)}


@pytest.mark.parametrize(
    ("task", "everything"),
    [
        (Copy(symbols=4, lengths=[3, 4], batch_size=512), {3: 4**3, 4: 4**4}),
        (Copy(symbols=45, distinct=1, lengths=[1, 3], eval_lengths=[7], batch_size=512), {1: 45, 2: 45, 3: 45, 7: 45}),
        (Copy(symbols=4, distinct=2, lengths=[4, 4], batch_size=512), {4: 4 + 6 * 14}),
        (Addition(digits=1, batch_size=512), {1: 100}),
    ],
)
def test_splits_of_small_spaces_are_disjoint_and_exact_item_by_item(
    task: Synthetic, everything: dict[int, int]
) -> None:
    drawn = {split: prompts(task, split, 6) for split in ("train", "val", "test")}
    assert not drawn["train"] & drawn["val"] and not drawn["train"] & drawn["test"] and not drawn["val"] & drawn["test"]
    total = sum(everything.values())
    for length, count in everything.items():
        items = task.list_items(length)
        assert items is not None and len(items) == count == len({str(item.tolist()) for item in items})
        lengths = torch.full((count,), length)
        members = torch.stack([task.splits.contains(split, items, lengths) for split in ("train", "val", "test")])
        assert (members.sum(0) == 1).all(), "every item is in one split"
        # a+b and b+a go together, so a share may be one item off there.
        assert abs(int(members[1].sum()) - count // 10) <= isinstance(task, Addition)
    # All items come up: training lacks those of evaluation lengths, and these are few.
    unseen = total - sum(len(items) for items in drawn.values())
    assert unseen == (45 - int(45 * 0.2) if 7 in everything else 0)


@pytest.mark.parametrize(
    "task", [Ordered(symbols=128, lengths=[4, 16]), Periodic(symbols=9, periods=[2, 3], lengths=[5, 14])]
)
def test_a_motif_is_in_one_split_at_every_length(task: Synthetic) -> None:
    """With about 500 motifs the draws may list them at one length and not at the next."""
    count = 20_000
    content = task.draw(stream("any"), torch.full((count,), 16), 16)
    splits = [
        task.belongs("train", content, torch.full((count,), length))
        for length in range(task.lengths[0], task.lengths[1] + 1)
    ]
    assert all(torch.equal(one, splits[0]) for one in splits)


def test_two_digit_sums_never_cross_splits_and_neither_do_their_mirror_images() -> None:
    task = Addition(digits=2, batch_size=512)
    drawn = {split: prompts(task, split, 14) for split in ("train", "val", "test")}
    mirrored = {name: {" + ".join(reversed(p.split(" + "))) for p in items} | items for name, items in drawn.items()}
    for one, other in itertools.combinations(mirrored, 2):
        assert not mirrored[one] & mirrored[other]
    assert len(drawn["val"]) > 900 and len(drawn["test"]) > 900


def test_splits_of_large_spaces_have_their_shares() -> None:
    task = Copy(symbols=26, lengths=[8, 8])
    lengths = torch.full((40_000,), 8)
    items = task.draw(torch.Generator().manual_seed(0), lengths, 8)
    val, test = (int(task.splits.contains(split, items, lengths).sum()) for split in ("val", "test"))
    assert abs(val - 4000) < 300 and abs(test - 4000) < 300, "five standard deviations of a binomial"
    assert not (task.splits.contains("val", items, lengths) & task.splits.contains("test", items, lengths)).any()


def test_the_split_of_an_item_does_not_depend_on_the_other_settings() -> None:
    items = Copy(symbols=5, lengths=[4, 4]).list_items(4)
    assert items is not None
    lengths = torch.full((len(items),), 4)
    narrow, wide = Copy(symbols=5, lengths=[4, 4]), Copy(symbols=5, lengths=[3, 9], eval_lengths=[20], batch_size=7)
    assert torch.equal(narrow.splits.contains("val", items, lengths), wide.splits.contains("val", items, lengths))


@pytest.mark.parametrize("settings", [{"symbols": 39, "lengths": [1, 8]}, {"symbols": 39, "distinct": 1}])
def test_a_space_too_small_to_split_is_refused_with_the_remedy(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"needs 40 different items .* has only 39; raise task.symbols"):
        Copy(**settings)
    Copy(**settings | {"symbols": 40})


# --- Limited training samples


def test_limited_samples_are_balanced_as_by_lee_and_belong_to_training() -> None:
    task = Addition(digits=3, train_samples=10_000, batch_size=2048)
    counts = Counter(task.mixture.tolist())
    # Lee et al. take 100, 900 and 9000; 20 of the 100 one-digit sums belong to validation and test here.
    assert counts == {1: 80, 2: 900, 3: 9020}
    drawn = prompts(task, "train", 4)
    assert 7_000 < len(drawn) <= 10_000
    assert not drawn & prompts(task, "val", 2) and not drawn & prompts(task, "test", 2)


def test_the_limited_samples_do_not_depend_on_the_seed() -> None:
    task = Addition(digits=2, train_samples=200, batch_size=512)
    seen = [prompts_of(task, seed) for seed in (0, 1)]
    assert seen[0] == seen[1] and len(seen[0]) == 200


def prompts_of(task: Addition, seed: int) -> set[str]:
    return {"".join(words).split("=")[0] for step in range(12) for words, _ in rows(task, task.train_batch(seed, step))}


def test_more_samples_than_sums_are_refused() -> None:
    with pytest.raises(UsageError, match=r"task.train_samples must be at most 8000 for task.digits=2, but is 8001"):
        Addition(digits=2, train_samples=8001)
    assert len(Addition(digits=2, train_samples=8000).mixture) == 8000


# --- Wrong use


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Copy, {"distinct": 27}, "task.distinct must be at most task.symbols=26, but is 27"),
        (Copy, {"lengths": [9, 4]}, r"task.lengths must be \[shortest, longest\], but is \[9, 4\]"),
        (Copy, {"lengths": [4]}, r"task.lengths must be \[shortest, longest\]"),
        (Copy, {"eval_lengths": [0]}, "task.eval_lengths entries must be at least 1"),
        (Addition, {"eval_digits": [4, -1]}, "task.eval_digits entries must be"),
    ],
)
def test_wrong_settings_get_one_line_that_says_what_must_hold(
    kind: type[Synthetic], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        kind(**settings)
    assert "\n" not in str(caught.value)


def test_written_items_are_read_back() -> None:
    copy, addition = Copy(symbols=9), Addition()
    assert copy.decode(copy.encode("3 1 4 |")) == "3 1 4 |"
    assert addition.decode(addition.encode("12+34=")) == "12+34="
    with pytest.raises(UsageError, match="'9' is not"):
        copy.encode("9 |")


@pytest.mark.parametrize(
    ("task", "unit"),
    [
        (Copy(symbols=26, distinct=None, lengths=[2, 6], eval_lengths=[9], batch_size=2), 6),
        (Addition(digits=3, reversed=False, zero_padded=False, eval_digits=[4], train_samples=None, batch_size=2), 3),
    ],
)
def test_the_longest_trained_length_is_in_the_unit_of_the_evaluation_sets(task: Synthetic, unit: int) -> None:
    assert task.longest_trained == unit
    assert unit < min(int(part.name.removeprefix("@")) for part in task.evaluation("val") if part.name)
