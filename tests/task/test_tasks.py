"""What each synthetic task promises of its items, beside their labels."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from typing import Any

import pytest
import torch

from settings_of_tasks import ROWS
from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose
from swapformer.task import Copy
from swapformer.task.arithmetic import Addition, ModularAddition
from swapformer.task.brackets import Brackets, Dyck
from swapformer.task.listops import ListOps
from swapformer.task.lists import Count, Parity
from swapformer.task.recall import AssociativeRecall, FactRecall, Needle
from swapformer.task.reference import Coreference, Dialogue
from swapformer.task.repetition import Induction, Ordered, Periodic
from swapformer.task.synthetic import Synthetic
from task.test_labels import written


def drawn(task: Synthetic, split: str = "train", batches: int = 1) -> list[tuple[list[str], list[str | None]]]:
    """The items of some batches, in words."""
    if split == "train":
        return [item for step in range(batches) for item in written(task, task.train_batch(0, step))]
    return [item for index in range(batches) for item in written(task, task.evaluation(split)[0].batch(index))]  # type: ignore[arg-type]


def alike(counts: Counter[Any], number: int) -> bool:
    """Whether so many different things came up, equally often up to five standard deviations of a binomial."""
    share = counts.total() / number
    return len(counts) == number and all(abs(count - share) < 5 * math.sqrt(share) for count in counts.values())


def test_every_count_is_asked_for_equally_often() -> None:
    items = drawn(Count(symbols=5, lengths=[9, 9], batch_size=1024))
    assert alike(Counter(inputs[inputs.index("|") + 1] for inputs, _ in items), 10)
    assert alike(Counter(inputs[inputs.index("|") - 1] for inputs, _ in items), 5)


def test_motifs_have_every_period_and_never_a_symbol_twice() -> None:
    items = drawn(Periodic(symbols=12, periods=[2, 5], lengths=[9, 9], batch_size=1024))
    periods = Counter(len(set(inputs)) for inputs, _ in items)
    assert alike(periods, 4) and set(periods) == {2, 3, 4, 5}


def test_orders_have_every_stride_and_begin_anywhere() -> None:
    order = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    items = drawn(Ordered(strides=3, lengths=[5, 5], batch_size=2048))
    # Of the 78 sequences a fifth is not for training, so that not all beginnings are equally frequent.
    assert {inputs[0] for inputs, _ in items} == set(order)
    assert {(order.index(inputs[1]) - order.index(inputs[0])) % 26 for inputs, _ in items} == {1, 2, 3}


def test_half_of_a_table_is_trained_on_and_the_rest_is_shared_by_the_others() -> None:
    task = ModularAddition(modulus=31, fraction=0.5, batch_size=512)
    tables = {
        split: {(int(inputs[0]), int(inputs[2])) for inputs, _ in drawn(task, split, 12)} for split in ("train", "val")
    }
    assert {split: round(len(table) / 31**2, 1) for split, table in tables.items()} == {"train": 0.5, "val": 0.2}
    assert all((b, a) in table for table in tables.values() for a, b in table), "a + b goes with b + a"


def test_both_orders_of_a_sum_may_be_in_different_splits_as_in_the_papers() -> None:
    """A random half of the ordered pairs: about half of the sums a + b with a ≠ b have b + a in another split."""
    task = ModularAddition(modulus=31, fraction=0.5, batch_size=512, ordered_operands=True)
    table = {(int(inputs[0]), int(inputs[2])) for inputs, _ in drawn(task, "train", 12)}
    assert round(len(table) / 31**2, 1) == 0.5
    assert 0.4 < sum((b, a) in table for a, b in table if a != b) / len(table) < 0.6
    sums = Addition(digits=3, batch_size=256, ordered_operands=True)
    content, lengths = sums.sample(torch.Generator().manual_seed(0), "train", torch.tensor([3]), 400)
    assert 0.7 < sums.belongs("train", content.flip(1), lengths).double().mean() < 0.9, "the share of training is 0.8"
    plain = Addition(digits=3)
    assert plain.belongs("train", *plain.sample(torch.Generator(), "train", torch.tensor([3]), 40)).all()
    assert Addition().fingerprint() == Addition(ordered_operands=False).fingerprint() != sums.fingerprint()


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["task=copy", "task.batch_size=9000"], "about 600 are of length 2, .* there are 541; .*=8115 or less"),
        (["task=modular_addition", "task.batch_size=4800"], "of which there are 4705; take task.batch_size=4705 or"),
        (["task=addition", "task.train_samples=700", "task.batch_size=701"], "take task.batch_size=700 or less"),
        (["task=fact_recall", "task.forms=2", "task.batch_size=462"], "take task.batch_size=461 or less"),
        (["task=elnino", "task.batch_size=500"], "more than the 403 blocks that it has; take .*=403 or less"),
        (["task=classification", f"task.source.path={ROWS}", "task.batch_size=9999"], "is more than their [0-9]+ rows"),
        (["task=text", "task/source=files", f"task.source.path={__file__}", "task.batch_size=5000"],
         "task.batch_size=5000 times task.block=64 are more than its [0-9]+ tokens; take task.batch_size="),
    ],
)  # fmt: skip
def test_a_batch_that_is_larger_than_its_data_is_refused_with_what_fits(overrides: list[str], complaint: str) -> None:
    config = compose(overrides)
    with pytest.raises(UsageError, match=complaint) as error:
        check(config)
    assert len(str(error.value)) <= 300 + len(str(ROWS))
    if fits := re.search(r"task\.batch_size=(\d+) or less", str(error.value)):
        check(compose([*overrides, fits[0].removesuffix(" or less")]))
        with pytest.raises(UsageError, match="a batch must not"):
            check(compose([*overrides, f"task.batch_size={int(fits[1]) + 1}"]))


def test_training_states_every_fact_and_evaluation_asks_in_other_forms() -> None:
    task = FactRecall(entities=12, relations=3, values=7, forms=3, batch_size=512)
    stated = {tuple(inputs[:3]): targets[3] for inputs, targets in drawn(task, "train", 3)}
    asked = {tuple(inputs[:3]): targets[3] for inputs, targets in drawn(task, "val", 2) + drawn(task, "test", 2)}
    whole = {(f"e{e}", f"r{r}"): f"v{int(task.facts[e, r])}" for e, r in itertools.product(range(12), range(3))}
    assert {key[1:]: value for key, value in stated.items() if key[0] == "f0"} == whole
    assert not stated.keys() & asked.keys() and all(whole[key[1:]] == value for key, value in asked.items())
    assert {key[0] for key in asked} == {"f1", "f2"} and len(stated) + len(asked) == 3 * len(whole)


def test_a_table_is_fixed_by_its_number_alone() -> None:
    facts = [FactRecall(table=table, batch_size=size, forms=forms).facts for table, size, forms in
             ((3, 5, 2), (3, 9, 4), (4, 5, 2))]  # fmt: skip
    assert torch.equal(facts[0], facts[1]) and not torch.equal(facts[0], facts[2])


def test_queries_ask_for_as_many_keys_as_told_each_once() -> None:
    for queries, spread in ((None, 3), (2, 1)):
        task = AssociativeRecall(keys=20, queries=queries, spread=spread, lengths=[3, 6], batch_size=256)
        for inputs, targets in drawn(task):
            pairs = len({word for word in inputs if word[0] == "k"})
            asked = [word for word, target in zip(inputs, targets, strict=True) if target is not None]
            assert len(asked) == len(set(asked)) == (pairs if queries is None else 2)
            assert len(inputs) == 2 * pairs + 2 * spread * len(asked)


def test_gaps_follow_the_power_law() -> None:
    # One query among 8 slots: slot g is taken with probability g^(power − 1) / Σ.
    for power in (1.0, 0.01):
        task = AssociativeRecall(queries=1, spread=8, power=power, lengths=[2, 2], batch_size=4096)
        slots = Counter((next(i for i, t in enumerate(targets) if t) - 4) // 2 for _, targets in drawn(task))
        weights = [(slot + 1) ** (power - 1) for slot in range(8)]
        for slot, weight in enumerate(weights):
            expected = 4096 * weight / sum(weights)
            assert abs(slots[slot] - expected) < 5 * math.sqrt(expected)


def test_needles_lie_at_every_depth_and_no_key_lies_there_twice() -> None:
    task = Needle(distractors=1, lengths=[12, 12], batch_size=2048)
    depths: Counter[int] = Counter()
    for inputs, _ in drawn(task):
        *haystack, asked = inputs
        keys = [word for word in haystack if word[0] == "k"]
        assert len(haystack) == 12 and len(keys) == len(set(keys)) == 2 and asked in keys
        depths[haystack.index(asked)] += 1
    assert set(depths) == set(range(11)) and min(depths.values()) > 100


def test_pronouns_and_names_are_equally_often_what_comes_next() -> None:
    task = Coreference(features=2, distractors=0, lengths=[12, 12], batch_size=512)
    kinds = Counter(word[0] for inputs, _ in drawn(task) for word in inputs[12:22:2])  # features are known by then
    assert abs(kinds["p"] / kinds.total() - 0.5) < 0.05


def test_tags_say_whose_turn_it_is_and_what_it_is_about() -> None:
    task = Dialogue(speakers=3, distractors=2, lengths=[3, 7], batch_size=64)
    batch = task.train_batch(0, 0)
    for row, (inputs, _) in enumerate(written(task, batch)):
        turn, speaker, topic = -1, "", ""
        for place, word in enumerate(inputs):
            if word[0] == "s":
                turn, speaker, topic = turn + 1, word, f"t{task.topics}"
            topic = word if word[0] == "t" else topic
            found = [int(batch.tags[name][row, place]) for name in ("turn", "speaker", "topic")]
            assert found == [turn, int(speaker[1:]), int(topic[1:])]


def test_the_pattern_for_dialogues_takes_the_dialogue() -> None:
    check(compose(["task=dialogue", "model/pattern=dialogue"]))
    with pytest.raises(UsageError, match="needs the tags turn, speaker"):
        check(compose(["task=copy", "model/pattern=dialogue"]))


def test_a_source_needs_a_topology_that_reads_it() -> None:
    check(compose(["task=sort", "task.as_source=true", "model/topology=encoder_decoder"]))
    with pytest.raises(UsageError, match="has a source that is read first"):
        check(compose(["task=sort", "task.as_source=true"]))


def test_a_batch_that_is_changed_in_place_does_not_change_the_next() -> None:
    task = Count(batch_size=8)
    first = task.train_batch(0, 0)
    kept = first.inputs.clone()
    first.inputs.zero_()
    assert torch.equal(task.train_batch(0, 0).inputs, kept)


def test_items_of_a_split_are_not_looked_for_for_ever() -> None:
    class Nothing(Copy):
        def belongs(self, split: Any, content: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(lengths, dtype=torch.bool)

    with pytest.raises(UsageError, match=r"the val split must have items, but none was found; raise task\.symbols"):
        Nothing().evaluation("val")[0].batch(0)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Parity, {"lengths": [5, 9]}, "needs 40 different items .* but length 5 has only 32; let task.lengths"),
        (Ordered, {"symbols": 30, "strides": 1}, "length 4 has only 30; raise task.symbols or task.strides"),
        (Dyck, {"kinds": 1, "depth": 1}, "has only 1; raise task.kinds"),
        (Brackets, {"lengths": [1, 9]}, "length 1 has only 3; raise task.kinds"),
        (ModularAddition, {"modulus": 3}, "needs 16 different items .* has only 9; raise task.modulus"),
        (ModularAddition, {"fraction": 0.9995}, "so that each split has 4, but .* 9409; .* another task.fraction"),
        (Periodic, {"symbols": 6}, "task.symbols must be at least 7, but is 6"),
        (Periodic, {"lengths": [7, 9]}, "task.lengths entries must be at least 8"),
        (Induction, {"symbols": 17}, "task.symbols must be at least 18, since a passage repeats none .* but is 17"),
        (AssociativeRecall, {"keys": 9}, "task.keys must be at least 10, since the keys of an item differ .* is 9"),
        (Needle, {"lengths": [5, 9]}, "task.lengths entries must be at least 6, but is 5"),
        (Needle, {"keys": 3}, "task.keys must be at least 4, but is 3"),
        (Coreference, {"names": 12}, "task.names must be at least 13, but is 12"),
        (Coreference, {"names": 7, "fixed": True}, "task.names must be at least 8, but is 7"),
        (ListOps, {"arguments": 2, "depth": 2}, "must be at most 3 operations, .* have room for, but one is 6; raise"),
        (FactRecall, {"entities": 2, "relations": 2}, "needs 40 different items .* has only 12; raise task.entities"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(kind: type[Synthetic], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        kind(**settings)
    assert "\n" not in str(caught.value)
