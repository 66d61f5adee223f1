"""Schemes whose deviation does not look at what a weight is for."""

from __future__ import annotations

import math

from swapformer.model.dims import Dims, require_positive
from swapformer.model.init.base import Init
from swapformer.model.layers import Origin


class Torch(Init):
    """The variances of torch's own layers: linear maps and their biases 1/(3·fan_in), tables 1.

    torch draws linear weights uniformly from ±1/√fan_in; here they are normal with the same variance.
    """

    def std(self, origin: Origin) -> float:
        return 1.0 if origin.role.is_embedding else 1 / math.sqrt(3 * origin.fan_in)

    def bias_std(self, origin: Origin) -> float:
        return 1 / math.sqrt(3 * origin.fan_in) if origin.fan_in else 0.0


class Normal(Init):
    """N(0, std²) for every weight, biases zero (BERT 2018, arXiv:1810.04805).

    Args:
        std: the deviation.
    """

    def __init__(self, dims: Dims, *, std: float) -> None:
        super().__init__(dims)
        require_positive(std=std)
        self.deviation = std

    def std(self, origin: Origin) -> float:
        return self.deviation


class Small(Init):
    """Variance 2/(5D) for every weight, tables too, biases zero (SmallInit, Nguyen & Salazar 2019, arXiv:1910.05895).

    It is Xavier's variance of a feed-forward matrix with F = 4D, given to the attention's matrices too.
    """

    def std(self, origin: Origin) -> float:
        return math.sqrt(2 / (5 * self.dims.d_model))
