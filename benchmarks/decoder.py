"""The decoder's training step: against nanoGPT, compiled against eager, and in bfloat16 against float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from benchmarks.measurement import Act, Ratio, alternating, compare, in_turn
from benchmarks.nanogpt import NanoGPT, NanoGPTLoop
from benchmarks.step import BareLoop, trial_step
from swapformer.interface import MAIN, Interface, Readout
from swapformer.model.topology import Topology
from swapformer.study.config.compose import compose
from swapformer.training.assemble import Config, build_model
from swapformer.training.inputs import total_loss

SIZES = {
    "4/4/128, T 64, B 12": (4, 4, 128, 64, 12),
    "6/6/384, T 256, B 8": (6, 6, 384, 256, 8),
    "2/4/64, T 64, B 16": (2, 4, 64, 64, 16),
}
"""Layers, heads, width, tokens and rows."""


def decoder(rounds: int, device: str) -> Iterator[Ratio]:
    """A step (batch, forward, backward, clipping, AdamW), and the module's forward and backward alone."""
    settle = torch.cuda.synchronize if device == "cuda" else None
    for name, (layers, heads, width, length, rows) in SIZES.items():
        config = _config(layers, heads, width, length, rows)
        ours = BareLoop(config, device)
        gpt = NanoGPT(layers, heads, width, length, ours.task.vocab_size)
        tokens = np.random.default_rng(0).integers(0, ours.task.vocab_size, 1_000_000, dtype=np.uint16)
        theirs = NanoGPTLoop(gpt, tokens, rows, length, device)
        label = f"{name}, {device}"
        pairs = alternating(ours, theirs, rounds, settle, seconds=0.5)
        yield compare(f"decoder / nanoGPT, training step, {label}", "ms", pairs, "≤ 1.02", lambda ratio: ratio <= 1.02)
        pairs = alternating(*_without_update(ours, gpt), rounds, settle, seconds=0.5)
        yield compare(f"decoder / nanoGPT, forward and backward alone, {label}", "ms", pairs)
        if device == "cuda":
            pairs = alternating(BareLoop(config, device, compiled=True), ours, rounds, settle)
            yield compare(f"decoder, compiled / eager, training step, {label}", "ms", pairs)
    if device == "cuda":
        yield from with_many_symbols(rounds, device, GPT2, settle)


GPT2 = (12, 12, 768, 1024, 16)
"""The smallest GPT-2, as `SIZES`."""
SYMBOLS = (50_257, 50_304)
"""GPT-2's, and the multiple of 64 that nanoGPT makes of them."""


def with_many_symbols(
    rounds: int, device: str, size: tuple[int, int, int, int, int], settle: Act | None
) -> Iterator[Ratio]:
    """A step in bfloat16 of a decoder with GPT-2's number of symbols, as a trial takes it, against nanoGPT's."""
    layers, heads, width, length, rows = size
    sizes = [f"model.num_layers={layers}", f"model.num_heads={heads}", f"model.d_model={width}"]
    config = compose(["task=text", "model/position=learned", f"model.max_len={length}", *sizes])
    for symbols in SYMBOLS:
        model = build_model(config, Interface(symbols)).to(device)
        gpt = NanoGPT(layers, heads, width, length, symbols).to(device)
        ids = torch.randint(0, symbols, (rows, length), device=device)

        ours, theirs = partial(_loss, model, Readout(symbols), ids), partial(_nanogpt_loss, gpt, ids)
        pairs = alternating(_step(model, ours), _step(gpt, theirs), rounds, settle)
        yield compare(f"decoder / nanoGPT, training step in bfloat16, {symbols} symbols, {device}", "ms", pairs)


def _loss(model: Topology, readout: Readout, ids: Tensor) -> Tensor:
    return total_loss(readout, model.answers(ids)[MAIN], ids) / ids.numel()


def _nanogpt_loss(gpt: NanoGPT, ids: Tensor) -> Tensor:
    loss: Tensor = gpt(ids, ids)[1]
    return loss


def _step(model: nn.Module, loss: Callable[[], Tensor]) -> Act:
    """A step: forward and backward under autocast, clipping, AdamW in one kernel."""
    device = next(model.parameters()).device.type
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, cache_enabled=False):
            found = loss()
        found.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return step


def _without_update(ours: BareLoop, gpt: NanoGPT) -> tuple[Act, Act]:
    """Forward and backward on one batch, by our module and the other."""
    batch = ours.task.train_batch(0, 0).to(ours.device)

    def mine() -> None:
        ours.loss(batch).backward()  # type: ignore[no-untyped-call]
        ours.model.zero_grad()

    def other() -> None:
        gpt(batch.inputs, batch.targets)[1].backward()
        gpt.zero_grad()

    return mine, other


def bf16(rounds: int, device: str) -> Iterator[Ratio]:
    """The step of trainer=cpu_bf16 over that of trainer=cpu: whole trials, 4 layers of width 256, T 256, B 8."""
    sizes = ["model.d_model=256", "task.block=256", "task.batch_size=8", "trainer.threads=2", "budget.steps=15"]
    quiet = ["schedule.warmup_steps=1", "eval.every=1000000", "checkpoint_every=1000000"]
    half, full = (
        compose(["+preset=nanogpt_cpu", "task/source=python", f"trainer={trainer}", *sizes, *quiet])
        for trainer in ("cpu_bf16", "cpu")
    )
    pairs = in_turn(lambda: trial_step(half), lambda: trial_step(full), rounds)
    yield compare("trainer cpu_bf16 / cpu, training step, 4/4/256, T 256, B 8", "ms", pairs)


def _config(layers: int, heads: int, width: int, length: int, rows: int) -> Config:
    sizes = [f"model.num_layers={layers}", f"model.num_heads={heads}", f"model.d_model={width}"]
    batch = [f"task.block={length}", f"task.batch_size={rows}"]
    return compose(["+preset=nanogpt_cpu", "task/source=python", "trainer.threads=2", *sizes, *batch])
