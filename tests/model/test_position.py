"""The traps of position encodings, with the numbers that their papers and authors' code give."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import small
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position import T5, ALiBi, Learned, Rotary, Sinusoidal
from swapformer.model.position.bias import alibi_slopes
from swapformer.model.tokens import Tokens
from swapformer.training.assemble import build_model

ROTARY: dict[str, Any] = {"base": 10000.0, "fraction": 1.0, "interleaved": False}


def dims(**changes: int) -> Dims:
    return Dims(
        **{"d_model": 32, "num_layers": 2, "num_heads": 4, "head_dim": 8, "max_len": 16, "vocab_size": 5, **changes}
    )


def turn(x: Tensor, place: int, **settings: Any) -> Tensor:
    """x [E], rotated as if it stood at `place`."""
    part = Rotary(dims(head_dim=x.shape[-1]), **{**ROTARY, **settings})
    tokens = Tokens.of(1, start=place)
    return part.rotate(x[None, None, None], x[None, None, None], Context(tokens, tokens))[0][0, 0, 0]


class TestRotary:
    @pytest.mark.parametrize("interleaved", [False, True])
    def test_each_pair_turns_by_its_own_angle(self, interleaved: bool) -> None:
        """(x₁cos − x₂sin, x₂cos + x₁sin) with θ_i = p · base^(−2i/E): Su et al. 2021, equation 34, as a loop."""
        x, place = torch.randn(8, dtype=torch.float64), 5
        expected = x.clone()
        for i in range(4):
            first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + 4)
            angle = place * 10000.0 ** (-2 * i / 8)
            expected[first] = x[first] * math.cos(angle) - x[second] * math.sin(angle)
            expected[second] = x[second] * math.cos(angle) + x[first] * math.sin(angle)
        assert torch.allclose(turn(x, place, interleaved=interleaved), expected, atol=1e-12)

    @pytest.mark.parametrize("fraction", [1.0, 0.5])
    @pytest.mark.parametrize("interleaved", [False, True])
    def test_numbers_of_16_bits_turn_as_those_of_64_and_their_gradient_turns_back(
        self, interleaved: bool, fraction: float
    ) -> None:
        """To two roundings, of the table and of the product; held to the definition in float64."""
        settings = {**ROTARY, "interleaved": interleaved, "fraction": fraction}
        part, tokens = Rotary(dims(), **settings), Tokens.of(7, start=3)
        torch.manual_seed(0)
        low = torch.randn(2, 4, 7, 8).bfloat16().requires_grad_()
        high = low.detach().double().requires_grad_()
        weights = torch.randn(2, 4, 7, 8).bfloat16()
        turned = [part.rotate(x, x, Context(tokens, tokens))[0] for x in (low, high)]
        for out in turned:
            out.backward(weights.to(out.dtype))
        assert turned[0].dtype == torch.bfloat16 and low.grad is not None and high.grad is not None
        for mine, exact in ((turned[0], turned[1]), (low.grad, high.grad)):
            assert (mine.double() - exact).abs().max() < 0.03
        assert torch.equal(low[..., 4:], turned[0][..., 4:]) == (fraction == 0.5)

    def test_values_and_the_stream_never_turn(self) -> None:
        """Su et al. 2021, section 3.2: alone in a row a place gets its own value, wherever it stands."""
        model, ids = build_model(small(["model/position=rope"]), 11).double(), torch.tensor([[3]])
        assert torch.equal(model(ids, Tokens.of(1)), model(ids, Tokens.of(1, start=9)))

    def test_logits_depend_only_on_distance(self) -> None:
        """Su et al. 2021, equation 16."""
        q, k = torch.randn(2, 8, dtype=torch.float64)
        near = turn(q, 3) @ turn(k, 1)
        far = turn(q, 1003) @ turn(k, 1001)
        assert abs(near - far) < 1e-9
        assert abs(near - turn(q, 4) @ turn(k, 1)) > 1e-3

    def test_only_the_stated_fraction_turns(self) -> None:
        """GPT-J and GPT-NeoX 2021 turn a part of each head (transformers' rotary_dim, rotary_pct)."""
        x = torch.randn(8, dtype=torch.float64)
        turned = turn(x, 7, fraction=0.5)
        assert torch.equal(turned[4:], x[4:])
        assert not torch.allclose(turned[:4], x[:4])

    def test_a_cached_query_stands_at_its_absolute_place(self) -> None:
        part = Rotary(dims(), **ROTARY)
        x = torch.randn(1, 4, 6, 8, dtype=torch.float64)
        whole, last = Tokens.of(6), Tokens.of(1, start=5)
        q_all, k_all = part.rotate(x, x, Context(whole, whole))
        q_last, k_last = part.rotate(x[:, :, 5:], x, Context(last, whole))
        assert torch.equal(q_last, q_all[:, :, 5:])
        assert torch.equal(k_last, k_all)

    def test_angles_stay_exact_in_half_precision(self) -> None:
        """transformers computes rotary angles in float32: in bfloat16 place 1001 is place 1000."""
        x = torch.ones(8, dtype=torch.bfloat16)
        wide = turn(x.double(), 1000)
        assert (turn(x, 1000).double() - wide).abs().max() < 0.02

    def test_two_bases_in_one_process_do_not_disturb_each_other(self) -> None:
        x = torch.randn(8, dtype=torch.float64)
        before = turn(x, 9, base=10000.0)
        other = turn(x, 9, base=50.0)
        assert not torch.allclose(before, other)
        assert torch.equal(turn(x, 9, base=10000.0), before)

    @pytest.mark.parametrize(("head_dim", "fraction"), [(7, 1.0), (8, 0.4), (8, 0.1)])
    def test_an_odd_width_is_refused(self, head_dim: int, fraction: float) -> None:
        with pytest.raises(ValueError, match="must be even"):
            Rotary(dims(head_dim=head_dim), **{**ROTARY, "fraction": fraction})


class TestALiBi:
    def test_slopes_of_a_power_of_two(self) -> None:
        """Press et al. 2022, section 3: 8 heads have ½, ¼, … 1/256."""
        assert alibi_slopes(8, 8.0) == [2.0**-k for k in range(1, 9)]

    def test_slopes_of_twelve_heads(self) -> None:
        """Press et al. 2022, `get_slopes` of the authors: those of 8 heads, then every second of 16."""
        assert alibi_slopes(12, 8.0)[:8] == alibi_slopes(8, 8.0)
        assert alibi_slopes(12, 8.0)[8:] == pytest.approx([0.7071, 0.3536, 0.1768, 0.0884], abs=5e-5)

    def test_the_bias_falls_with_distance_on_both_sides(self) -> None:
        """Press et al. 2022, section 3, for a decoder; an encoder takes the distance on either side."""
        tokens = Tokens.of(4)
        bias = ALiBi(dims(num_heads=2, head_dim=16), decay=8.0).bias(Context(tokens, tokens))
        assert bias[0, 0, 3].tolist() == [-3 / 16, -2 / 16, -1 / 16, 0]
        assert torch.equal(bias, bias.mT)

    def test_nothing_is_added_to_the_embeddings(self) -> None:
        x = torch.randn(1, 4, 32)
        assert torch.equal(ALiBi(dims(), decay=8.0).embed(x, Tokens.of(4)), x)


class TestT5:
    """Buckets of key minus query as in transformers' `_relative_position_bucket` of T5, 32 buckets, distance 128."""

    @pytest.mark.parametrize(
        ("distance", "bucket"), [(0, 0), (-7, 7), (-8, 8), (-20, 10), (-128, 15), (1, 17), (128, 31)]
    )
    def test_bidirectional(self, distance: int, bucket: int) -> None:
        part = T5(dims(), buckets=32, max_distance=128, bidirectional=True)
        assert part.bucket(torch.tensor([distance])).item() == bucket

    @pytest.mark.parametrize(("distance", "bucket"), [(-15, 15), (-16, 16), (-50, 24), (-128, 31), (5, 0), (-9999, 31)])
    def test_causal(self, distance: int, bucket: int) -> None:
        part = T5(dims(), buckets=32, max_distance=128, bidirectional=False)
        assert part.bucket(torch.tensor([distance])).item() == bucket

    def test_impossible_buckets_are_refused(self) -> None:
        with pytest.raises(ValueError, match="max_distance"):
            T5(dims(), buckets=32, max_distance=16, bidirectional=False)


class TestAbsolute:
    def test_sinusoids_follow_the_paper(self) -> None:
        """PE(p, 2i) = sin(p / 10000^(2i/D)): the exponent is 2i/D, not 2·(2i)/D."""
        table = Sinusoidal(dims(), base=10000.0, amplitude=1.0).embed(
            torch.zeros(1, 9, 32, dtype=torch.float64), Tokens.of(9)
        )
        for i in range(16):
            assert table[0, 7, 2 * i].item() == pytest.approx(math.sin(7 / 10000 ** (2 * i / 32)), abs=1e-12)
            assert table[0, 7, 2 * i + 1].item() == pytest.approx(math.cos(7 / 10000 ** (2 * i / 32)), abs=1e-12)

    def test_a_position_beyond_the_learned_table_is_refused(self) -> None:
        """torch reads beyond a table with an IndexError on the CPU, and past its end on a GPU."""
        with pytest.raises(ValueError, match="position 16 lies beyond its 16 rows"):
            Learned(dims()).embed(torch.zeros(1, 1, 32), Tokens.of(1, start=16))
