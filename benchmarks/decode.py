"""Generation of one token after a context: shared keys without copies, and keys that are turned once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.measurement import Act, Ratio, alternating, compare
from swapformer.model.cache import Cache, Entry
from swapformer.model.context import Context
from swapformer.model.kernel import AttentionPlan, Kernel
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose, task_of
from swapformer.training.assemble import build_model

LAYERS, WIDTH, HEADS = 2, 512, 8
KINDS = {"mha": ["model/attention=mha"], "gqa, 4 groups": ["model/attention=gqa", "model.attention.num_kv_heads=4"],
         "mqa": ["model/attention=mqa"]}  # fmt: skip
CONTEXTS, ROWS = (256, 1024, 4096), (1, 32)


class ConcatenatingCache(Cache):
    """A cache that copies all it holds for every token."""

    def append(self, key: object, *new: Tensor, last: int | None = None) -> Entry:
        before = self.get(key)
        values = new if before is None else tuple(torch.cat(pair, -2) for pair in zip(before, new, strict=True))
        self.put(key, *values)
        return values


class CopyingKernel(Kernel):
    """A kernel that copies shared keys and values for each head."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tensor:
        if (repeats := q.shape[1] // k.shape[1]) > 1:
            k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        return self.kernel(q, k, v, *others)


class TurningKernel(Kernel):
    """A kernel that turns all keys by their positions for every token, as if the cache held them unturned."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        q, k = position.rotate(q, k, context)
        return self.kernel(q, k, v, plan, position, context, dropout)


def decode(rounds: int, device: str) -> Iterator[Ratio]:
    """Milliseconds of one token of every row, by kind of attention, rows and tokens of context."""
    settle = torch.cuda.synchronize if device == "cuda" else None
    for (kind, overrides), rows, context in product(KINDS.items(), ROWS, CONTEXTS):
        step = partial(_step, overrides, rows, context, device)
        name = f"a token after {context}, {kind}, {rows} rows, {LAYERS}/{HEADS}/{WIDTH}, {device}"
        copying = alternating(step(), step(CopyingKernel, ConcatenatingCache), rounds, settle)
        yield compare(f"{name}: no copies / copies", "ms", copying)
        if rows == 1:
            turning = alternating(step(), step(TurningKernel), rounds, settle)
            yield compare(f"{name}: keys turned once / at every token", "ms", turning)


def _step(
    overrides: list[str],
    rows: int,
    context: int,
    device: str,
    wrap: Callable[[Kernel], Kernel] | None = None,
    kept: type[Cache] = Cache,
) -> Act:
    """One token after a context of random keys and values, in float32; every step makes the context one longer."""
    sizes = [f"model.num_layers={LAYERS}", f"model.d_model={WIDTH}", f"model.num_heads={HEADS}"]
    config = compose(["task=copy", "model/position=rope", f"model.max_len={4 * context}", *sizes, *overrides])
    model = build_model(config, task_of(config).interface).to(device).eval()
    attentions: list[Any] = [part for part in model.modules() if hasattr(part, "kernel")]
    cache = kept()
    cache.extend(Tokens.of(context, device=device))
    for attention in attentions:
        width = attention.cache_width // 2 // (WIDTH // HEADS)
        cache.append(attention, *(torch.randn(rows, width, context, WIDTH // HEADS, device=device) for _ in range(2)))
        if wrap is not None:
            attention.kernel = wrap(attention.kernel)
    symbols = torch.zeros(rows, 1, dtype=torch.int64, device=device)

    @torch.no_grad()
    def act() -> None:
        assert cache.tokens is not None
        tokens = Tokens.of(1, start=len(cache.tokens), device=device)
        model(symbols, tokens, None, None, cache)

    return act
