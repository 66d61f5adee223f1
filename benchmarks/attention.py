"""Attention by its kernels: time against the reference, biases against none, and time and memory against length.

`python -m benchmarks.attention LENGTH … OVERRIDE …` prints the peak memory in megabytes for each length; with the word
`dense`, where the bias is formed for all pairs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from operator import ge, le
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.measurement import Act, Ratio, Slope, alternating, compare, growth, peak_memory, timed
from swapformer.model.context import Context
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose
from swapformer.training.assemble import build_plan

HEADS, WIDTH = 4, 64
WINDOW = ("model/pattern=window", "model.pattern.before=255")
"""A causal window of 256 tokens."""

CASES = {
    "causal": (),
    "full": ("model/pattern=full",),
    "causal, alibi": ("model/position=alibi",),
    "causal, t5": ("model/position=t5",),
    "window of 64": ("model/pattern=window", "model.pattern.before=63"),
    "window of 64, t5": ("model/pattern=window", "model.pattern.before=63", "model/position=t5"),
    "dilated 16 × 4": ("model/pattern=dilated", "model.pattern.before=15", "model.pattern.step=4"),
    "longformer of 64": ("model/pattern=longformer", "model.pattern.before=32", "model.pattern.after=31"),
    "causal, entmax15": ("model/normaliser=entmax15",),
}
"""Overrides of each case."""


TIMED, BY_ALL_PAIRS = ("alibi", "t5", "kerple", "relative_bias"), ("alibi", "t5")
"""Encodings whose bias is timed; those that are also compared with a bias for all pairs, and at narrow heads."""
LONG, SHORT = (1024, 4096, 8192), (1024, 2048, 4096)
"""Lengths that are timed and whose memory is measured; those at which a bias for all pairs still fits."""


def attention_step(
    overrides: Sequence[str],
    length: int,
    *,
    rows: int = 1,
    device: str = "cpu",
    heads: int = HEADS,
    width: int = WIDTH,
    backward: bool = True,
    dense: bool = False,
) -> Act | None:
    """Forward, and backward, of attention over random heads [rows, heads, length, width]; None if the kernel refuses.

    In float32 on a CPU, in bfloat16 under autocast on a GPU. `dense` forms a bias for all pairs of tokens.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    sizes = [f"model.d_model={heads * width}", f"model.num_heads={heads}", "model.num_layers=1"]
    layer = build_plan(compose(["task=copy", "model/position=none", *sizes, *overrides]), 2).layers[0]
    attention, position = initialised(layer.attention()), initialised(layer.position().to(device))
    if attention.refuses(position) is not None:
        return None
    tokens = Tokens.of(length, device=device)
    q, k, v = (torch.randn(rows, heads, length, width, device=device, dtype=dtype).requires_grad_() for _ in range(3))
    direction = torch.randn_like(q)
    kernel: Any = attention.kernel
    if dense:
        kernel.fused.in_blocks = lambda *_: False

    def act() -> None:
        with torch.autocast(device, dtype, enabled=device == "cuda"), torch.set_grad_enabled(backward):
            out = kernel(q, k, v, attention.plan, position, Context(tokens, tokens), 0.0)
        if backward:
            torch.autograd.grad(out, [q, k, v, *position.parameters()], direction, allow_unused=True)

    return act


def initialised(module: Any) -> Any:
    """The module with normal weights: until an initialisation draws them they are undefined."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.02)
    return module


def kernels(rounds: int, device: str) -> Iterator[Ratio]:
    """Each kernel against the reference at 512 tokens, on a GPU 4096, in every case that it accepts."""
    settle, length = (torch.cuda.synchronize, 4096) if device == "cuda" else (None, 512)
    for case, overrides in CASES.items():
        reference = attention_step(["model/kernel=reference", *overrides], length, rows=4, device=device)
        assert reference is not None, "the reference takes everything"
        for kernel in ("sdpa", "blocked", "auto", *(["flex"] if device == "cuda" else [])):
            act = attention_step([f"model/kernel={kernel}", *overrides], length, rows=4, device=device)
            if act is not None:
                pairs = alternating(act, reference, rounds, settle)
                yield compare(f"kernel {kernel} / reference, {case}, T={length}, {device}", "ms", pairs)


def blocked(rounds: int, device: str) -> Iterator[Ratio]:
    """A blocked window of 256 at 8192 tokens, against the dense kernel with the same mask and with a causal mask."""
    length = 8192
    fast = _must(attention_step(["model/kernel=blocked", *WINDOW], length))
    for name, overrides, least in (("masked sdpa", WINDOW, 6), ("causal sdpa", (), 3)):
        slow = _must(attention_step(["model/kernel=sdpa", *overrides], length))
        rates = [(length / ours, length / theirs) for ours, theirs in alternating(fast, slow, rounds)]
        name = f"kernel blocked / {name}, T=8192, w=256, forward and backward"
        yield compare(name, "tokens a ms", rates, f"≥ {least}", partial(le, least))


def bias(rounds: int, device: str) -> Iterator[Ratio | Slope]:
    """Causal attention with a bias against none, and against a bias for all pairs, in time and in peak memory.

    With one thread: two wait for each other at every block, which on a shared machine is longer than the block.
    """
    torch.set_num_threads(1)
    for option, width, length, backward in product(TIMED, (64, 16), LONG, (False, True)):
        if width == 64 or option in BY_ALL_PAIRS:
            step = partial(attention_step, length=length, heads=8192 // length, width=width, backward=backward)
            ours, plain = (_must(step([f"model/position={position}"])) for position in (option, "none"))
            case = f"T={length}, {8192 // length} × {width} wide, forward{' and backward' if backward else ''}"
            target, met = ("≤ 1.3", partial(ge, 1.3)) if option == "alibi" and width == 64 else (None, None)
            yield compare(f"{option} / no bias, {case}", "ms", alternating(ours, plain, rounds), target, met)
            if option in BY_ALL_PAIRS and length < 8192:
                whole = _must(step([f"model/position={option}"], dense=True))
                yield compare(f"{option} / formed for all pairs, {case}", "ms", alternating(ours, whole, rounds))
    for option in ("none", *TIMED, "fire"):
        name, overrides = f"peak memory of {option}, 64 wide, forward and backward", [f"model/position={option}"]
        yield growth(name, "MB", _peaks_alone(LONG, *overrides), 1.2)
        if option in BY_ALL_PAIRS:
            yield growth(f"{name}, formed for all pairs", "MB", _peaks_alone(SHORT, *overrides, "dense"), 1.2)


def memory(rounds: int, device: str) -> Iterator[Slope]:
    """Peak memory of a blocked window of 256 against length: forward and backward, in a process of its own."""
    peaks = _peaks_alone((4096, 8192, 16384, 32768), "model/kernel=blocked", *WINDOW)
    yield growth("peak memory of kernel blocked, w=256, forward and backward", "MB", peaks, 1.1)


def _peaks_alone(lengths: Sequence[int], *words: str) -> dict[int, float]:
    """Megabytes of forward and backward for each length, measured by this module in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.attention", *map(str, lengths), *words]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return dict(zip(lengths, found, strict=True))


def linear(rounds: int, device: str) -> Iterator[Slope]:
    """Time of linear attention against length, projections included."""
    lengths = (1024, 2048, 4096, 8192, 16384)
    sizes = ["model.d_model=128", "model.num_heads=4", "model.num_layers=1", "model/position=none"]
    layer = build_plan(compose(["task=copy", "model/attention=linear", *sizes]), 2).layers[0]
    attention, position = initialised(layer.attention()), Position(layer.dims)
    times: dict[int, list[float]] = {length: [] for length in lengths}

    def act(length: int) -> None:
        tokens = Tokens.of(length)
        x = torch.randn(1, length, 128, requires_grad=True)
        attention(x, Context(tokens, tokens), position).sum().backward()

    for _ in range(rounds):
        for length in lengths:
            times[length].append(timed(partial(act, length)))
    medians = {length: median(values) for length, values in times.items()}
    yield growth("time of causal linear attention, forward and backward", "ms", medians, 1.2)


def _must(act: Act | None) -> Act:
    assert act is not None, "the kernel takes it"
    return act


def peaks(lengths: Sequence[int], overrides: Sequence[str], *, dense: bool) -> list[float]:
    """Megabytes above the memory of the process after a short sequence, for each length, in rising order."""
    assert list(lengths) == sorted(lengths), "the peak of a process never falls"
    found = []
    for length in (256, *lengths):
        _must(attention_step(overrides, length, dense=dense))()
        found.append(peak_memory())
    return [held - found[0] for held in found[1:]]


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()]
    changes = [word for word in sys.argv[1:] if "=" in word]
    print(json.dumps(peaks(sizes, changes, dense="dense" in sys.argv[1:])))
