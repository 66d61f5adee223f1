"""The decoder's training step: against nanoGPT, compiled against eager, and in bfloat16 against float32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.measurement import Act, Ratio, alternating, compare, in_turn
from benchmarks.nanogpt import NanoGPT, NanoGPTLoop
from benchmarks.step import BareLoop, trial_step
from swapformer.study.config.compose import compose
from swapformer.training.assemble import Config

SIZES = {"4/4/128, T 64, B 12": (4, 4, 128, 64, 12), "6/6/384, T 256, B 8": (6, 6, 384, 256, 8)}
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
        yield compare(f"decoder / nanoGPT, training step, {label}", "ms", pairs, "≤ 1.03", lambda ratio: ratio <= 1.03)
        pairs = alternating(*_without_update(ours, gpt), rounds, settle, seconds=0.5)
        yield compare(f"decoder / nanoGPT, forward and backward alone, {label}", "ms", pairs)
        if device == "cuda":
            pairs = alternating(BareLoop(config, device, compiled=True), ours, rounds, settle)
            yield compare(f"decoder, compiled / eager, training step, {label}", "ms", pairs)


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
