"""Interface between tasks and models: the inputs that a task gives a model, and the answers that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MAIN = ""
"""The name of the answer that a task is about; others stand beside it under names of their own."""
IGNORE = -100
"""The target of a position that carries no loss."""
Direction = Literal["lower", "higher"]


@dataclass(frozen=True)
class Readout:
    """One answer that a task asks for.

    Attributes:
        size: numbers in an answer: logits of symbols or classes, or values.
        kind: symbols of the vocabulary, classes (both learned by cross-entropy, targets int64, IGNORE where there is
            none) or values (learned by squared error, targets float32 with one more axis [size], NaN where there is
            none).
        per: whether there is an answer for each position [B, T] or for each sequence [B].
    """

    size: int
    kind: Literal["symbols", "classes", "values"] = "symbols"
    per: Literal["position", "sequence"] = "position"


@dataclass(frozen=True)
class Interface:
    """The inputs and the answers of a model.

    Attributes:
        vocab_size: symbols of inputs and of a source; 0 where inputs are values.
        channels: numbers at each position where inputs are values, float32 [B, T, channels]; 0 where they are symbols.
        segments: values of the tag `segment`, which are embedded; 0 if missing.
        source: whether a sequence of its own is read before answering, which needs an encoder-decoder.
        readouts: the answers by name; MAIN is always among them.
    """

    vocab_size: int
    channels: int = 0
    segments: int = 0
    source: bool = False
    readouts: Mapping[str, Readout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.readouts:
            object.__setattr__(self, "readouts", {MAIN: Readout(self.vocab_size)})
        assert MAIN in self.readouts, "a task must ask for its main answer"
