"""The sizes that every part is built from, and the legend of the shape suffixes.

Tensor names carry their shape: `q_BHTE` has the axes B, H, T, E.

| letter | axis | letter | axis |
|---|---|---|---|
| B | sequences of a batch | H | query heads |
| T | places of a sequence | G | key and value heads |
| Q | places that ask (queries) | E | width of one head |
| K | places that are asked (keys) | F | width of the feed-forward layer |
| D | width of the stream, `d_model` | V | symbols of the vocabulary |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Side(StrEnum):
    """Which kind of stack a layer stands in."""

    ENCODER = "encoder"
    DECODER = "decoder"


@dataclass(frozen=True)
class Dims:
    """Sizes of a model, or of one of its layers where a layer override changes them.

    Attributes:
        d_model: width of the residual stream.
        num_layers: layers of the stack.
        num_heads: query heads of an attention.
        head_dim: width of one head.
        max_len: positions that tables are made for; parts without a table ignore it.
        vocab_size: symbols of the vocabulary; 0 where inputs are values.
        dropout: probability with which embeddings, attention weights and sublayer outputs are zeroed in training.
        bias: whether linear maps and LayerNorm add a bias.
        layer: which layer of the stack a part is for, from 0.
        branch: which residual branch of its layer a part is for, from 0.
        branches: residual branches of each layer.
        side: whether the stack writes an answer place by place, or reads all places at once.
        encoder_layers: layers of the encoder whose output a decoder reads; 0 where there is one stack only.
        decoder_layers: layers of the decoder that reads an encoder; 0 where there is one stack only.
    """

    d_model: int
    num_layers: int
    num_heads: int
    head_dim: int
    max_len: int
    vocab_size: int
    dropout: float = 0.0
    bias: bool = True
    layer: int = 0
    branch: int = 0
    branches: int = 1
    side: Side = Side.DECODER
    encoder_layers: int = 0
    decoder_layers: int = 0

    def __post_init__(self) -> None:
        least = {"d_model": 1, "num_layers": 1, "num_heads": 1, "head_dim": 1, "max_len": 1, "vocab_size": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < bound:
                raise ValueError(f"`{name}` must be a whole number of at least {bound}, but it is {value!r}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1), but it is {self.dropout}.")
        require_presence(bias=self.bias)


def require_presence(**flags: object) -> None:
    """Raise ValueError unless each flag, by name, is true or false: a word or a number would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"`{name}` must be true or false, but it is {value!r}.")


def require_positive(**numbers: float) -> None:
    """Raise ValueError unless each number, by name, is above zero."""
    for name, value in numbers.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise ValueError(f"`{name}` must be above 0, but it is {value!r}.")


def require_counts(**numbers: int) -> None:
    """Raise ValueError unless each number, by name, is a whole number of at least 1."""
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"`{name}` must be a whole number of at least 1, but it is {value!r}.")


def head_width(d_model: int, num_heads: int) -> int:
    """The width of a head when the heads share `d_model` evenly.

    Raises:
        ValueError: if they cannot; set `model.head_dim` to choose the width freely.
    """
    if num_heads < 1:
        raise ValueError(f"`num_heads` must be at least 1, but it is {num_heads}.")
    if d_model % num_heads:
        divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
        nearest = min(divisors, key=lambda n: (abs(n - num_heads), n))
        raise ValueError(
            f"`num_heads` must divide `d_model`, but {num_heads} does not divide {d_model}; "
            f"try {nearest}, or set `model.head_dim` to choose the width of a head freely."
        )
    return d_model // num_heads
