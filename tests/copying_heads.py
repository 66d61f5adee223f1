"""A model whose heads' doings are known by construction: two of four copy, and two do nothing."""

from __future__ import annotations

from typing import Any

import torch

from configs import small
from swapformer.conformance.subject import VOCABULARY, Subject
from swapformer.interface import Interface
from swapformer.model.topology import Topology
from swapformer.task.base import IGNORE, Batch, EvaluationSet

LENGTH, SYMBOLS, HEADS = 8, 8, 4
STRENGTH = 4.0
"""What a copying head adds to the right symbol's logit."""


class Next:
    """After the symbol t comes t + 1; the first place of each sequence is not asked for."""

    interface, vocab_size = Interface(VOCABULARY), VOCABULARY

    def train_batch(self, seed: int, step: int) -> Batch:
        inputs = torch.randint(SYMBOLS, (3, LENGTH), generator=torch.Generator().manual_seed(100 * seed + step))
        targets = (inputs + 1) % SYMBOLS
        targets[:, 0] = IGNORE
        return Batch(inputs=inputs, targets=targets)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        return [EvaluationSet("", 2, lambda index: self.train_batch(9, index))]


def copying() -> Topology:
    """A layer of four heads, of which the first two do the same: they write the next symbol. The others do nothing.

    The stream holds a symbol (dimensions 0–7) and a position (16–23); a copying head attends to its own place.
    """
    sizes = [f"model.num_heads={HEADS}", "model.num_layers=1", f"model.max_len={LENGTH}"]
    model = Subject(small(["model/position=learned", "model/norm=none", *sizes]), "position").build().eval()
    with torch.no_grad():
        named = dict(model.named_parameters())
        for parameter in named.values():
            parameter.zero_()
        one = torch.eye(8, dtype=torch.float64)
        named["embedding.weight"][:SYMBOLS, :8] = one
        (table,) = (parameter for name, parameter in named.items() if "position" in name)
        table[:, 16:24] = one
        layers: Any = model.stack.layers
        attention = layers[0].attention
        for rows in (slice(0, 8), slice(8, 16)):
            attention.query.weight[rows, 16:24] = 100 * one
            attention.key.weight[rows, 16:24] = one
            attention.value.weight[rows, :8] = one
            attention.out.weight[:8, rows] = STRENGTH * one.roll(1, 0)
    return model
