"""Attention by its kernels: time against the reference, and time and memory against length.

`python -m benchmarks.attention LENGTH …` prints the peak memory in megabytes for each length.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from operator import le
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.measurement import Act, Ratio, Slope, alternating, compare, growth, timed
from swapformer.model.context import Context
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose
from swapformer.tools.cost.step_timer import peak_memory
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


def attention_step(overrides: Sequence[str], length: int, *, rows: int = 1, device: str = "cpu") -> Act | None:
    """Forward and backward of attention over random heads [rows, 4, length, 64]; None if the kernel refuses it.

    In float32 on a CPU, in bfloat16 under autocast on a GPU.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    sizes = [f"model.d_model={HEADS * WIDTH}", f"model.num_heads={HEADS}", "model.num_layers=1"]
    layer = build_plan(compose(["task=copy", "model/position=none", *sizes, *overrides]), 2).layers[0]
    attention, position = initialised(layer.attention()), initialised(layer.position().to(device))
    if attention.refuses(position) is not None:
        return None
    tokens = Tokens.of(length, device=device)
    q, k, v = (torch.randn(rows, HEADS, length, WIDTH, device=device, dtype=dtype).requires_grad_() for _ in range(3))
    direction = torch.randn_like(q)
    kernel: Any = attention.kernel

    def act() -> None:
        with torch.autocast(device, dtype, enabled=device == "cuda"):
            out = kernel(q, k, v, attention.plan, position, Context(tokens, tokens), 0.0)
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


def memory(rounds: int, device: str) -> Iterator[Slope]:
    """Peak memory of a blocked window of 256 against length: forward and backward, in a process of its own."""
    lengths = (4096, 8192, 16384, 32768)
    command = [sys.executable, "-m", "benchmarks.attention", *map(str, lengths)]
    own = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "16384"}  # glibc then gives back at once what is freed
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=own).stdout)
    peaks = dict(zip(lengths, found, strict=True))
    yield growth("peak memory of kernel blocked, w=256, forward and backward", "MB", peaks, 1.1)


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


def peaks(lengths: Sequence[int]) -> list[float]:
    """Megabytes above the memory of the process after a short sequence, for each length, in rising order."""
    assert list(lengths) == sorted(lengths), "the peak of a process never falls"
    found = []
    for length in (256, *lengths):
        _must(attention_step(["model/kernel=blocked", *WINDOW], length))()
        found.append(peak_memory())
    return [held - found[0] for held in found[1:]]


if __name__ == "__main__":
    print(json.dumps(peaks([int(word) for word in sys.argv[1:]])))
