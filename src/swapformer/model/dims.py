"""The sizes that every part is built from, and the legend of shape suffixes.

Tensor names carry their shape: `q_BHTE` has the axes B, H, T, E.

| letter | axis | letter | axis |
|---|---|---|---|
| B | sequences of a batch | H | query heads |
| T | tokens of a sequence | G | key and value heads |
| Q | query tokens | E | width of one head |
| K | key tokens | F | width of the feed-forward layer |
| D | width of the stream, `d_model` | V | symbols of the vocabulary |
| W | width of a head's values where it is not E | N | width of a head's keys where it is not E |
| L | width of a latent vector | J | experts of a token |
| R | rotated part of E | n | streams of a residual |
| C | numbers of an answer that is no symbol | | |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from swapformer.ranges import Count, Natural, Within, check, check_settings


class Side(StrEnum):
    """The kind of stack that a layer belongs to."""

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
        side: whether the stack writes an answer token by token, or reads all tokens at once.
        encoder_layers: layers of the encoder whose output a decoder reads; 0 where there is one stack only.
        decoder_layers: layers of the decoder that reads an encoder; 0 where there is one stack only.
    """

    d_model: Count
    num_layers: Count
    num_heads: Count
    head_dim: Count
    max_len: Count
    vocab_size: Natural
    dropout: Annotated[float, Within("[0, 1)")] = 0.0
    bias: bool = True
    layer: int = 0
    branch: int = 0
    branches: int = 1
    side: Side = Side.DECODER
    encoder_layers: int = 0
    decoder_layers: int = 0

    def __post_init__(self) -> None:
        check_settings(Dims, vars(self))


def head_width(d_model: int, num_heads: int) -> int:
    """The width of a head when the heads share `d_model` evenly.

    Raises:
        ValueError: if they cannot; set `model.head_dim` to choose the width freely.
    """
    check(Count, num_heads, "num_heads")
    if d_model % num_heads:
        divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
        nearest = min(divisors, key=lambda n: (abs(n - num_heads), n))
        raise ValueError(
            f"`num_heads` must divide `d_model`, but {num_heads} does not divide {d_model}; "
            f"try {nearest}, or set `model.head_dim` to choose the width of a head freely."
        )
    return d_model // num_heads


def deepnorm_factors(dims: Dims) -> tuple[float, float]:
    """DeepNorm's factors (α, β) of a stack: α multiplies the stream, β is the Xavier gain of the value path.

    Wang et al. 2022 (arXiv:2203.00555, table 1). One stack of N layers has α = (2N)^¼ and β = (8N)^−¼.
    Of an encoder of N and a decoder of M layers the encoder has α = .81 (N⁴M)^(1/16) and β = .87 (N⁴M)^(−1/16), the
    decoder α = (3M)^¼ and β = (12M)^−¼.
    """
    n, m = dims.encoder_layers, dims.decoder_layers
    if not n:
        return (2 * dims.num_layers) ** 0.25, (8 * dims.num_layers) ** -0.25
    if dims.side is Side.DECODER:
        return (3 * m) ** 0.25, (12 * m) ** -0.25
    joint = (n**4 * m) ** (1 / 16)
    return 0.81 * joint, 0.87 / joint
