"""Initialisations that treat the weights at the end of a residual branch apart, most of them by the stack's depth."""

from __future__ import annotations

import math
from dataclasses import replace

from swapformer.model.dims import Dims, Side, deepnorm_factors
from swapformer.model.init.base import Init
from swapformer.model.layers import Origin, Role
from swapformer.ranges import Positive, Several

_ATTENTION = (Role.QUERY, Role.KEY, Role.VALUE, Role.SCORE)
_FFN = (Role.FFN_IN, Role.FFN_GATE)
_VALUE_PATH = (Role.VALUE, Role.ATTENTION_OUT, Role.FFN_IN, Role.FFN_GATE, Role.FFN_OUT)
"""The weights whose product is a branch's update; query and key only set the mixing weights."""


def _xavier(origin: Origin) -> float:
    return math.sqrt(2 / (origin.fan_in + origin.fan_out))


class GPT2(Init):
    """N(0, std²), and N(0, std²/(2L)) for the 2L weights that end a residual branch, biases zero.

    Radford et al. 2019, section 2.3: the scaling falls on the initial weights, not on the forward pass. L is the number
    of layers; in an encoder-decoder the decoder's, for both stacks.

    Args:
        std: the deviation.
    """

    def __init__(self, dims: Dims, *, std: Positive) -> None:
        super().__init__(dims)
        self.deviation = std

    def std(self, origin: Origin) -> float:
        return self.deviation / math.sqrt(2 * self.dims.num_layers) if origin.role.ends_branch else self.deviation


class ZeroBranch(Init):
    """N(0, std²), and zero for the weights that end a residual branch: the stack starts as the identity.

    Goyal et al. 2017 (arXiv:1706.02677, section 5.1) zero the last norm's γ of a branch to the same end.

    Args:
        std: the deviation.
    """

    def __init__(self, dims: Dims, *, std: Positive) -> None:
        super().__init__(dims)
        self.deviation = std

    def std(self, origin: Origin) -> float:
        return 0.0 if origin.role.ends_branch else self.deviation


class DeepNorm(Init):
    """Xavier with gain β = (8N)^−¼ on values, output and feed-forward weights and 1 on all others; tables N(0, 1/D).

    The other half is the stream's factor α = (2N)^¼ in post-norm: +preset=deepnorm sets both. N is the number of layers
    of the one stack; an encoder of N and a decoder of M layers have the factors of `deepnorm_factors` (Wang et al.
    2022, arXiv:2203.00555).
    """

    def std(self, origin: Origin) -> float:
        if origin.role.is_embedding:
            return self.dims.d_model**-0.5
        _, beta = deepnorm_factors(replace(self.dims, side=origin.side))
        return _xavier(origin) * (beta if origin.role in _VALUE_PATH else 1.0)


class Fixup(Init):
    """Zero for the ends of branches and the head, He's √(2/fan_in) · L^(−1/(2m−2)) for a branch's other weights.

    Zhang et al. 2019 (arXiv:1901.09321). L is the number of branches (2 for each layer of a
    decoder, for both stacks), m the matrices in a branch. Tables
    are N(0, 1/D), all else is He's.

    The paper's scalars are parts, as in the authors' Transformer, and +preset=fixup sets all of them: the multiplier of
    each branch is model/residual=rezero with start 1; the biases before its first matrices and before the head are
    model/norm=shift, those before an mlp's activation and second matrix model/activation=shifted. What is missing: the
    bias between the heads and W_o, which the authors have neither; those before the second matrix of a glu and the
    second factors of low_rank (all of these are contained in the vectors of model.bias=true); and the multiplier that
    the authors have at the end of an encoder.

    Args:
        attention_matrices: m of the attention: 2 for values and output, which are multiplied; 4 counts query and key.
        ffn_matrices: m of the feed-forward layer; 2, and 4 for low_rank.

    Raises:
        ValueError: if a number of matrices is below 2.
    """

    without_norm = True
    zero_head = True

    def __init__(
        self,
        dims: Dims,
        *,
        attention_matrices: Several,
        ffn_matrices: Several,
    ) -> None:
        super().__init__(dims)
        self.matrices = {**dict.fromkeys(_ATTENTION, attention_matrices), **dict.fromkeys(_FFN, ffn_matrices)}

    def std(self, origin: Origin) -> float:
        if origin.role.ends_branch or origin.role is Role.HEAD:
            return 0.0
        if origin.role.is_embedding:
            return self.dims.d_model**-0.5
        he = math.sqrt(2 / origin.fan_in)
        if origin.role not in self.matrices:
            return he
        return he * (2 * self.dims.num_layers) ** (-1 / (2 * self.matrices[origin.role] - 2))


class TFixup(Init):
    """Xavier with a factor on values, output and feed-forward weights, tables N(0, 1/D) · (9N)^−¼, no norms.

    The factor is (9N)^−¼ in a decoder and 0.67 N^−¼ in an encoder, N the number of layers of each; that of tables is
    the decoder's, where there is one (Huang et al. 2020, “Improving Transformer Optimization Through Better
    Initialization”, ICML). It trains without warm-up.
    """

    without_norm = True

    def std(self, origin: Origin) -> float:
        nine = (9 * self.dims.num_layers) ** -0.25
        if origin.role.is_embedding:
            return nine * self.dims.d_model**-0.5
        encoder = 0.67 * (self.dims.encoder_layers or self.dims.num_layers) ** -0.25
        factor = encoder if origin.side is Side.ENCODER else nine
        return _xavier(origin) * (factor if origin.role in _VALUE_PATH else 1.0)
