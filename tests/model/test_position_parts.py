"""The traps of relative, content-dependent, stretched, drawn and combined position encodings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import every_part, small
from swapformer.errors import UsageError
from swapformer.model.context import Context
from swapformer.model.plan import ModelPlan
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import check, compose
from swapformer.task.base import Batch
from swapformer.task.lists import Copy
from swapformer.training.assemble import build_model, build_plan
from swapformer.training.data import (
    EvaluationStream,
    TrainingStream,
    draw_positions,
    drawn_position_range,
    with_drawn_positions,
)

POSITIONS = [option for slot, option in every_part() if slot == "position"]
HEADS, LENGTH, WIDTH = 4, 12, 8


def plan(*overrides: str) -> ModelPlan:
    return build_plan(small(overrides), 11)


def part(option: str, **settings: Any) -> Position:
    """A part by its YAML name with wide weights, in float64."""
    chosen = [f"model.position.{name}={value}" for name, value in settings.items()]
    made = plan(f"model/position={option}", *chosen).layers[0].position().double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    return made


def terms(position: Position, q: Tensor, k: Tensor, query: Tokens, key: Tokens) -> Tensor:
    """Everything that a position does to the logits, [1, H, Q, K]."""
    context = Context(query, key, dtype=torch.float64)
    turned_q, turned_k = position.rotate(q, k, context)
    total = turned_q @ turned_k.mT
    for term in (position.scores(turned_q, turned_k, context), position.bias(context)):
        total = total if term is None else total + term
    return total


def vectors(length: int = LENGTH) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 1, HEADS, length, WIDTH, dtype=torch.float64)
    return q, k


@pytest.mark.parametrize("option", POSITIONS)
def test_a_cached_query_stands_at_its_absolute_place(option: str) -> None:
    """Shaw et al. 2018, Dai et al. 2019 and the rotary family: the last query alone sees what it sees among all."""
    position, (q, k), whole = part(option), vectors(), Tokens.of(LENGTH)
    last = Tokens.of(1, start=LENGTH - 1)
    alone = terms(position, q[:, :, -1:], k, last, whole)
    assert torch.allclose(alone, terms(position, q, k, whole, whole)[:, :, -1:], atol=1e-12)


@pytest.mark.parametrize("option", ["relative_key", "relative_key_query", "transformer_xl", "cope"])
def test_the_scores_stand_inside_the_scaling(option: str) -> None:
    """logits = (q·k + scores)/√E for Shaw et al. 2018, Huang et al. 2020, Dai et al. 2019, Golovneva et al. 2024."""
    layer = plan(f"model/position={option}", "model/kernel=reference").layers[0]
    attention, position = layer.attention().double(), part(option)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    x, tokens = torch.randn(1, LENGTH, 32, dtype=torch.float64), Tokens.of(LENGTH)
    context = Context(tokens, tokens, dtype=torch.float64)
    q, k = (f(x).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for f in (attention.query, attention.key))
    logits = (q @ k.mT + position.scores(q, k, context)) / math.sqrt(WIDTH)
    later = torch.ones(LENGTH, LENGTH).triu(1).bool()
    expected = logits.masked_fill(later, -math.inf).softmax(-1)
    assert torch.allclose(attention.weights(x, context, position), expected, atol=1e-12)


@pytest.mark.parametrize("option", ["relative_bias", "relative_key", "relative_key_query"])
def test_the_row_of_a_distance_is_query_minus_key_plus_the_largest(option: str) -> None:
    """Index q − k + max − 1 with max = max_distance + 1, clipped beyond the table (Huang et al. 2020)."""
    position = part(option, max_distance=3)
    with torch.no_grad():
        position.table.weight.copy_(torch.arange(7.0)[:, None].expand_as(position.table.weight))
    ones, tokens = torch.ones(1, HEADS, 6, WIDTH, dtype=torch.float64), Tokens.of(6)
    context = Context(tokens, tokens, dtype=torch.float64)
    term = position.bias(context) if position.has_bias else position.scores(ones, ones, context)
    rows = term[0, 0] / (1 if position.has_bias else WIDTH * (2 if option == "relative_key_query" else 1))
    assert rows[5].tolist() == [6, 6, 6, 5, 4, 3]
    assert rows[0].tolist() == [3, 2, 1, 0, 0, 0]


class TestStretched:
    def test_ntk_stretches_the_slowest_pair_by_the_factor_and_the_fastest_not_at_all(self) -> None:
        """Peng et al. 2023, section 3.1: ω_0 stays 1 and ω_last is divided by the factor."""
        stretched, rope = part("rope_ntk", factor=4.0), part("rope")
        angles = stretched.rotation.angles(stretched.base, Tokens.of(2), torch.float64)[0, 1]
        plain = rope.rotation.angles(rope.base, Tokens.of(2), torch.float64)[0, 1]
        assert angles[0] == plain[0]
        assert angles[-1].item() == pytest.approx(plain[-1].item() / 4, rel=1e-12)

    def test_dynamic_ntk_changes_nothing_within_the_length_of_training(self) -> None:
        for length, same in ((16, True), (17, False)):
            q, k = vectors(length)
            tokens = Tokens.of(length)
            dynamic = terms(part("rope_ntk_dynamic", factor=2.0, original_len=16), q, k, tokens, tokens)
            assert torch.allclose(dynamic, terms(part("rope"), q, k, tokens, tokens), atol=1e-12) is same

    @pytest.mark.parametrize("option", ["rope_linear", "rope_ntk", "rope_yarn"])
    def test_a_factor_of_one_is_rope(self, option: str) -> None:
        (q, k), tokens = vectors(), Tokens.of(LENGTH)
        stretched = terms(part(option, factor=1.0), q, k, tokens, tokens)
        assert torch.allclose(stretched, terms(part("rope"), q, k, tokens, tokens), atol=1e-12)

    @pytest.mark.parametrize("option", ["rope_linear", "rope_ntk", "rope_ntk_dynamic", "rope_yarn"])
    def test_a_factor_below_one_is_refused(self, option: str) -> None:
        with pytest.raises(ValueError, match="`factor`"):
            part(option, factor=0.5)

    def test_a_base_cannot_be_raised_for_a_single_pair(self) -> None:
        with pytest.raises(ValueError, match="at least 4 turning dimensions"):
            part("rope_ntk", fraction=0.25)

    def test_an_interpolated_table_keeps_its_ends_and_is_plain_within(self) -> None:
        position, x = part("learned_interpolated", rows=6), torch.zeros(1, 30, 32, dtype=torch.float64)
        within, beyond = position.embed(x[:, :6], Tokens.of(6))[0], position.embed(x, Tokens.of(30))[0]
        assert torch.equal(within, position.table.weight)
        assert torch.allclose(beyond[[0, -1]], position.table.weight[[0, -1]])


def test_xpos_depends_on_the_distance_alone_and_fades() -> None:
    """Sun et al. 2022: equal vectors match less the farther they are, beyond what the turning does."""
    position, (q, k) = part("xpos", span=4.0), vectors(1)
    near = terms(position, q, k, Tokens.of(1, start=7), Tokens.of(1, start=2))
    far = terms(position, q, k, Tokens.of(1, start=57), Tokens.of(1, start=52))
    assert torch.allclose(near, far, atol=1e-9)
    one = torch.ones(1, HEADS, 1, WIDTH, dtype=torch.float64)
    fades = [terms(position, one, one, Tokens.of(1, start=n), Tokens.of(1)).abs().max().item() for n in (0, 60, 120)]
    assert fades[0] == WIDTH
    assert fades[1] < 0.2
    assert fades[2] < 0.01


def test_fire_sees_the_same_quotients_in_longer_sequences() -> None:
    """Li et al. 2024: the first key is at the quotient 1 for every query beyond the threshold."""
    position, tokens = part("fire"), Tokens.of(300)
    with torch.no_grad():
        position.log_threshold.fill_(math.log(16.0))
    first = position.bias(Context(tokens, tokens, dtype=torch.float64))[0, :, 17:, 0]
    assert torch.allclose(first, first[:, :1].expand_as(first), atol=1e-12)


def test_cope_counts_tokens_when_every_gate_is_open() -> None:
    """Golovneva et al. 2024, section 3: with gates of 1, p_ij = i − j + 1, the usual relative position."""
    position = part("cope", rows=20, gate_exponent=3.0)
    same = torch.ones(1, HEADS, 6, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        position.table.weight.copy_(torch.arange(20.0)[:, None].expand(20, WIDTH))
    tokens = Tokens.of(6)
    counted = position.scores(same, same, Context(tokens, tokens, dtype=torch.float64))[0, 0] / WIDTH
    assert torch.allclose(counted[5], torch.tensor([6.0, 5, 4, 3, 2, 1], dtype=torch.float64))
    assert counted[0].tolist() == [1, 0, 0, 0, 0, 0]


def test_cope_does_not_count_padding() -> None:
    position, (q, k) = part("cope"), vectors()
    padding = torch.zeros(1, LENGTH, dtype=torch.bool)
    padding[0, 5:7] = True
    tokens = Tokens.of(LENGTH, padding=padding)
    context = Context(tokens, tokens, dtype=torch.float64)
    other = k.clone()
    other[:, :, 5:7] += 1
    assert torch.equal(position.scores(q, k, context), position.scores(q, other, context))


class TestSum:
    def test_it_is_chosen_by_names_and_adds_both(self) -> None:
        names = ["model/position=sum", "model/position@model.position.first=learned"]
        both = plan(*names, "model/position@model.position.second=t5").layers[0].position()
        learned, t5 = both.first, both.second
        with torch.no_grad():
            for parameter in both.parameters():
                parameter.normal_()
        tokens, x = Tokens.of(LENGTH), torch.randn(1, LENGTH, 32)
        context = Context(tokens, tokens)
        assert torch.equal(both.embed(x, tokens), x + learned.table.weight[:LENGTH])
        assert torch.equal(both.bias(context), t5.bias(context))
        assert (both.relative, both.has_bias, both.has_scores, both.limit) == (False, True, False, 320)

    def test_two_biases_and_two_scores_are_added(self) -> None:
        for first, second in (("alibi", "relative_bias"), ("relative_key", "transformer_xl")):
            names = [f"model/position@model.position.{n}={o}" for n, o in (("first", first), ("second", second))]
            both = plan("model/position=sum", *names).layers[0].position().double()
            with torch.no_grad():
                for parameter in both.parameters():
                    parameter.normal_()
            (q, k), tokens = vectors(), Tokens.of(LENGTH)
            alone = [terms(p, q, k, tokens, tokens) - q @ k.mT for p in (both.first, both.second)]
            assert torch.allclose(terms(both, q, k, tokens, tokens), q @ k.mT + alone[0] + alone[1], atol=1e-12)

    def test_layers_with_other_heads_share_the_absolute_part_which_is_added_once(self) -> None:
        config = compose(
            [
                "model/position=sum",
                "model/position@model.position.first=learned",
                "model/position@model.position.second=t5",
                "model.layers=[{at: 0, num_heads: 2}]",
            ]
        )
        model = build_model(config, 11)
        stack = model.stack
        first, second = stack.positions.values()
        assert first.first is second.first
        assert first.second is not second.second
        assert [type(encoding).__name__ for encoding in stack._encodings] == ["Learned", "T5", "T5"]

    def test_absolute_positions_are_added_once_whatever_the_heads_of_the_layers(self) -> None:
        model = build_model(compose(["model/position=learned", "model.layers=[{at: 0, num_heads: 2}]"]), 11)
        assert len(model.stack.positions) == 1

    def test_a_layer_may_have_a_sum(self) -> None:
        config = compose(["model/position=alibi", "model.layers=[{at: 0, position: sum}]"])
        assert config["model"]["layers"][0]["position"]["first"]["_target_"].endswith("Sinusoidal")
        names = [type(layer.position()).__name__ for layer in build_plan(config, 11).layers]
        assert names[:2] == ["Sum", "ALiBi"]

    def test_settings_within_are_part_of_the_identity(self) -> None:
        config = compose(["model/position=sum", "model.layers=[{at: 0, position: sum}]"])
        config["model"]["layers"] = [{} for _ in range(config["model"]["num_layers"])]
        layers = build_plan(config, 11).layers
        assert layers[0].position() is layers[1].position()
        other = {**config["model"]["position"], "second": {**config["model"]["position"]["second"], "decay": 4.0}}
        config["model"]["layers"][0]["position"] = other
        layers = build_plan(config, 11).layers
        assert layers[0].position() is not layers[1].position()
        assert layers[0].position().first is layers[1].position().first


class TestRandomized:
    task = Copy(symbols=8, distinct=None, lengths=[2, 6], eval_lengths=[10], batch_size=6)

    def streamed(self, *, seed: int = 0, start: int = 0, steps: int = 4, accumulate: int = 1) -> Sequence[Batch]:
        return [share.batch for share in TrainingStream(self.task, seed, start, steps, accumulate, 100)]

    def test_positions_are_sorted_different_and_from_the_range(self) -> None:
        """Ruoss et al. 2023, section 3.1: an ordered subset, drawn without repetition."""
        seen = torch.cat([draw_positions(10, 40, step) for step in range(50)]).reshape(50, 10)
        assert (seen.diff(dim=-1) > 0).all()
        assert seen.min() == 0
        assert seen.max() == 39

    def test_a_batch_depends_on_seed_and_step_alone(self) -> None:
        whole, resumed = self.streamed(), self.streamed(start=2)
        assert all(torch.equal(a.position, b.position) for a, b in zip(whole[2:], resumed, strict=True))
        assert not torch.equal(whole[0].position, whole[1].position)
        assert not torch.equal(whole[0].position, self.streamed(seed=1)[0].position)

    def test_the_parts_of_an_accumulated_batch_stand_at_the_same_positions(self) -> None:
        first, second = self.streamed(steps=1, accumulate=2)
        assert torch.equal(first.position, second.position)
        assert torch.equal(first.position, self.streamed(steps=1)[0].position)

    def test_evaluation_draws_what_it_drew_before(self) -> None:
        source = self.task.evaluation("val")[0]
        once, again = (list(EvaluationStream(source, 3, 100)) for _ in range(2))
        assert all(torch.equal(a.position, b.position) for a, b in zip(once, again, strict=True))
        assert not torch.equal(once[0].position, once[1].position)

    def test_nothing_is_drawn_for_other_encodings(self) -> None:
        batch = self.task.train_batch(0, 0)
        assert with_drawn_positions(batch, None, 0, 0) is batch
        assert drawn_position_range(build_model(small(), 11)) is None
        assert drawn_position_range(build_model(small(["model/position=randomized"]), 11)) == 2048

    def test_positions_that_a_task_gives_keep_their_order(self) -> None:
        batch = self.task.train_batch(0, 0)
        given = torch.arange(batch.inputs.shape[1])[None] // 2
        moved = with_drawn_positions(Batch(inputs=batch.inputs, targets=batch.targets, position=given), 50, 0).position
        assert torch.equal(moved.diff() > 0, given.diff() > 0)

    def test_a_range_shorter_than_a_sequence_is_refused(self) -> None:
        with pytest.raises(ValueError, match="10 tokens cannot have different ones of 9"):
            draw_positions(10, 9)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            ["model/position=randomized", "model.layers=[{at: 0, position: alibi}]"],
            "use model/position=randomized in all",
        ),
        (["model/position=randomized", "model.position.drawn_from=20"], "raise model.position.drawn_from"),
        (["model/position=randomized", "model/position@model.position.encoding=learned"], "set model.max_len=2048"),
        (
            ["model/position=relative_key", "model/kernel=sdpa"],
            "content-dependent scores of RelativeKey; use model/kernel",
        ),
        (
            ["model/position=sum", "model/position@model.position.second=randomized"],
            "choose position=randomized with the sum",
        ),
        (["model/position=rope_yarn", "model.position.beta_fast=0.5"], "`beta_fast` above `beta_slow`"),
    ],
)
def test_what_cannot_work_is_refused_at_composition(overrides: list[str], reason: str) -> None:
    with pytest.raises(UsageError) as error:
        check(compose(["task=copy", *overrides]))
    assert reason in str(error.value)
