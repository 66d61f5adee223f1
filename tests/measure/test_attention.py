"""One attention layer: operations by a clock whose seconds are known, bytes by what an algorithm writes down."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from measure.conftest import TINY, Hand, measured, subject_of
from swapformer.errors import UsageError
from swapformer.measure.attention import _Layer, first_attention
from swapformer.model.context import Context
from swapformer.model.kernel import dense
from swapformer.model.layers import Linear
from swapformer.model.normaliser import Softmax
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import check, compose

QUICK = ("measure=attention", "measure.warm_up=0", "measure.repeats=1")
HEADS, PROJECTIONS, RAW, NORMALISE, SUM = 2, 3.0, 7.0, 5.0, 11.0


@pytest.fixture
def slowed(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> Hand:
    """A clock by which each operation takes seconds of its own, and nothing else any."""
    monkeypatch.setattr(Linear, "forward", hand.slow(Linear.forward, PROJECTIONS))
    monkeypatch.setattr(Dot, "raw", hand.slow(Dot.raw, RAW))
    monkeypatch.setattr(Softmax, "forward", hand.slow(Softmax.forward, NORMALISE))
    monkeypatch.setattr(dense, "head_sums", hand.slow(dense.head_sums, SUM))
    return hand


def test_each_operation_takes_its_own_seconds(slowed: Hand) -> None:
    found = measured(*QUICK, "measure.lengths=[8]", "model/kernel=reference", now=slowed).metrics
    assert {name: value for name, value in found.items() if name.startswith("time/")} == {
        "time/projections@8": 4 * PROJECTIONS, "time/product@8": RAW, "time/scores@8": RAW,
        "time/softmax@8": NORMALISE, "time/mix@8": SUM,
        "time/all@8": 4 * PROJECTIONS + RAW + NORMALISE + SUM, "time/attention@8": RAW + NORMALISE + SUM,
    }  # fmt: skip


@pytest.mark.parametrize("other", ["model/kernel=sdpa", "model/attention=linear", "model/attention=reformer"])
def test_operations_that_a_mechanism_does_not_have_are_absent(other: str) -> None:
    found = measured(*QUICK, "measure.lengths=[8]", other).metrics
    names = {"time/projections@8", "time/all@8", "time/attention@8", "bytes/all@8"}
    assert found.keys() == names


def test_scale_and_mask_are_no_part_of_the_product(slowed: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "mask", slowed.slow(Context.mask, 13.0))
    found = measured(*QUICK, "measure.lengths=[8]", "model/kernel=reference", now=slowed).metrics
    assert (found["time/product@8"], found["time/scores@8"]) == (RAW, RAW + 13.0)


HOLD = """
import resource, sys
from swapformer.measure.clock import hold_memory
if sys.argv[1] == "hold":
    hold_memory()
import torch
size = 64 * 2**20
for _ in range(3):
    torch.zeros(size, dtype=torch.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.zeros(size, dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")
def test_memory_that_is_held_is_not_asked_of_the_system_again() -> None:
    """Five buffers of 64 MB are 81 920 pages, each a fault where the system gives it anew."""
    faults = {
        word: int(subprocess.run([sys.executable, "-c", HOLD, word], capture_output=True, check=True).stdout)
        for word in ("hold", "free")
    }
    assert 4 * faults["hold"] < faults["free"] and faults["free"] > 80_000, faults


def test_the_backward_pass_is_measured_where_asked(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", hand.slow(torch.autograd.backward, 13.0))
    found = measured(*QUICK, "measure.lengths=[8]", "measure.backward=true", now=hand).metrics
    assert found["time/backward@8"] == 13 and found["bytes/backward@8"] > found["bytes/all@8"]


def test_the_bytes_of_a_backward_pass_hold_the_gradients_of_the_weights() -> None:
    """Four maps of D × D of few tokens: their gradients, in float32, are most of what a pass holds."""
    small = measured(*QUICK, "measure.lengths=[4]", "measure.backward=true", "model.d_model=256").metrics
    assert small["bytes/backward@4"] > 4 * 256 * 256 * 4


def test_the_backward_pass_goes_back_to_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product of the forward pass has two in the backward pass, that of the input among them."""
    config, counts = compose([*TINY, "model/kernel=reference", "model.dropout=0"]), []
    attention, position = first_attention(subject_of(config).model, 16, torch.device("cpu"))
    layer = _Layer(attention, position, 1, 16, subject_of(config))
    for run in (layer.fresh_forward, layer.fresh_backward):
        with FlopCounterMode(display=False) as counter:
            run()
        counts.append(counter.get_total_flops())
    assert counts[1] == 3 * counts[0]


def operations(length: int, width: int) -> int:
    """Operations of products in one reference attention, counted by torch; two for a multiplication and an addition."""
    config = compose([*TINY, "model/kernel=reference", f"model.d_model={width}", "model.max_len=512"])
    attention, position = first_attention(subject_of(config).model, length, torch.device("cpu"))
    x, tokens = torch.randn(1, length, width), Tokens.of(length)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        attention(x, context=Context(tokens, tokens, x.dtype), position=position)
    return counter.get_total_flops()


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("length", [24, 64, 192])
def test_attention_takes_n_n_d_operations_and_its_projections_n_d_d(length: int, width: int) -> None:
    """q, k, v and output: 4 · 2nd². QKᵀ and weights times V over all heads: 2 · 2n²d, whatever the number of heads."""
    assert operations(length, width) == 8 * length * width**2 + 4 * length**2 * width


def test_the_operations_of_attention_and_of_its_projections_are_equal_at_twice_the_width() -> None:
    """4n²d = 8nd² at n = 2d."""
    assert operations(64, 32) == 2 * 8 * 64 * 32**2


class Elements(TorchDispatchMode):
    """Counts the numbers that additions and multiplications element by element make."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mul, torch.ops.aten.add, torch.ops.aten.sub):
            self.count += out.numel()
        return out


def elements(position: str, length: int) -> int:
    """Of a second layer's forward with the reference: tables, bias and mask are there, as layers share them."""
    config = compose([*TINY, "model/kernel=reference", f"model/position={position}", "model.max_len=512"])
    attention, encoding = first_attention(subject_of(config).model, length, torch.device("cpu"))
    x, tokens = torch.randn(1, length, 16), Tokens.of(length)
    context = Context(tokens, tokens, x.dtype)
    with torch.no_grad():
        attention(x, context=context, position=encoding)
        with Elements() as counter:
            attention(x, context=context, position=encoding)
    return counter.count


@pytest.mark.parametrize("length", [24, 48, 96])
def test_rope_takes_6nd_operations_a_layer_and_alibi_h_n_n(length: int) -> None:
    """Rope: two products and a sum for each number of q and of k. ALiBi: a sum for each pair and head, h = 2.

    So alibi takes more from n = 6d/h on, six times the width of a head: 48 with d = 16.
    """
    none, rope, alibi = (elements(position, length) for position in ("none", "rope", "alibi"))
    assert rope - none == 6 * length * 16
    assert alibi - none == 2 * length**2
    assert (alibi > rope, alibi == rope) == (length > 48, length == 48)


def curvature(*overrides: str, lengths: tuple[int, int, int] = (256, 512, 768)) -> float:
    """The coefficient of n² in the bytes at three lengths with equal steps."""
    found = measured(*QUICK, f"measure.lengths={list(lengths)}", "model.max_len=1024", *overrides).metrics
    first, second, third = (found[f"bytes/all@{length}"] for length in lengths)
    return (third - 2 * second + first) / (2 * (lengths[1] - lengths[0]) ** 2)


def test_the_reference_writes_matrices_of_all_pairs() -> None:
    """At its peak logits, those without blind rows, and weights: three matrices [heads, n, n] in float32."""
    assert curvature("model/kernel=reference", "model/pattern=full", lengths=(16, 32, 48)) == 3 * 4 * HEADS


def test_the_mask_of_a_causal_pattern_counts() -> None:
    """It and what it forbids are [1, 1, n, n] of one byte; raw, scaled and masked products are the three matrices."""
    assert curvature("model/kernel=reference", lengths=(16, 32, 48)) == 3 * 4 * HEADS + 2


@pytest.mark.parametrize(
    "overrides",
    [("model/kernel=sdpa",), ("model/kernel=blocked", "model/pattern=window"), ("model/attention=linear",)],
    ids=["sdpa", "blocked", "linear"],
)
def test_fused_blocked_and_linear_attention_hold_bytes_in_proportion_to_the_length(overrides: tuple[str, ...]) -> None:
    assert curvature(*overrides) == 0


def test_a_fused_kernel_that_wrote_all_pairs_would_be_noticed() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        assert curvature("model/kernel=sdpa") >= 4 * HEADS


@pytest.mark.parametrize("attention", ["linformer", "nystrom"])
def test_attentions_that_see_the_future_are_measured_with_the_full_pattern(attention: str) -> None:
    found = measured(*QUICK, "measure.lengths=[8]", f"model/attention={attention}", "model/pattern=full").metrics
    assert found["bytes/all@8"] > 0


def test_a_length_beyond_a_table_is_refused() -> None:
    config = compose([*TINY, *QUICK, "measure.lengths=[8,300]", "model/attention=linformer", "model/pattern=full"])
    with pytest.raises(UsageError, match="300 positions, but the table of Linformer has 65"):
        check(config)
