"""DeepNorm's two factors, which a residual and an initialisation share (Wang et al. 2022, arXiv:2203.00555)."""

from __future__ import annotations

from swapformer.model.dims import Dims, Side


def deepnorm_factors(dims: Dims) -> tuple[float, float]:
    """(α, β) of the stack that `dims` is of: α multiplies the stream, β is the Xavier gain of the value path (table 1).

    One stack of N layers has α = (2N)^¼ and β = (8N)^−¼. Of an encoder of N and a decoder of M layers the encoder has
    α = .81 (N⁴M)^(1/16) and β = .87 (N⁴M)^(−1/16), the decoder α = (3M)^¼ and β = (12M)^−¼.
    """
    n, m = dims.encoder_layers, dims.decoder_layers
    if not n:
        return (2 * dims.num_layers) ** 0.25, (8 * dims.num_layers) ** -0.25
    if dims.side is Side.DECODER:
        return (3 * m) ** 0.25, (12 * m) ** -0.25
    joint = (n**4 * m) ** (1 / 16)
    return 0.81 * joint, 0.87 / joint
