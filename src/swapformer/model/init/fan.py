"""Initialisations with one deviation for all weights, or one by fan_in and fan_out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.init.base import Init
from swapformer.model.layers import Origin, Role
from swapformer.ranges import Positive


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

    def __init__(self, dims: Dims, *, std: Positive) -> None:
        super().__init__(dims)
        self.deviation = std

    def std(self, origin: Origin) -> float:
        return self.deviation


class Small(Init):
    """Variance 2/(5D) for every weight, tables too, biases zero (SmallInit, Nguyen & Salazar 2019, arXiv:1910.05895).

    It is Xavier's variance of a feed-forward matrix with F = 4D, given to the attention's matrices too.
    """

    def std(self, origin: Origin) -> float:
        return math.sqrt(2 / (5 * self.dims.d_model))


class Xavier(Init):
    """Variance gain² · 2/(fan_in + fan_out) for every weight, tables included, biases zero (Glorot & Bengio 2010).

    Args:
        gain: factor on the deviation.
    """

    def __init__(self, dims: Dims, *, gain: Positive) -> None:
        super().__init__(dims)
        self.gain = gain

    def std(self, origin: Origin) -> float:
        return self.gain * math.sqrt(2 / (origin.fan_in + origin.fan_out))


class Kaiming(Init):
    """Variance gain²/fan_in for matrices, table_std² for tables, biases zero (He et al. 2015, arXiv:1502.01852).

    Args:
        gain: factor on the deviation; √2 for relu.
        table_std: the deviation of tables, whose rows are read one at a time and so have no fan.
    """

    def __init__(self, dims: Dims, *, gain: Positive, table_std: Positive) -> None:
        super().__init__(dims)
        self.gain, self.table_std = gain, table_std

    def std(self, origin: Origin) -> float:
        return self.table_std if origin.role.is_embedding else self.gain / math.sqrt(origin.fan_in)


class Orthogonal(Init):
    """gain · Q for matrices, Q with orthonormal rows or columns, whichever are fewer (Saxe 2013, arXiv:1312.6120).

    Q comes from the QR decomposition of the standard normal, with the signs that make it uniform.

    Args:
        gain: factor on Q.
        table_std: the deviation of tables, which are normal.
    """

    def __init__(self, dims: Dims, *, gain: Positive, table_std: Positive) -> None:
        super().__init__(dims)
        self.gain, self.table_std = gain, table_std

    def std(self, origin: Origin) -> float:
        return self.table_std if origin.role.is_embedding else self.gain / math.sqrt(max(origin.fan_in, origin.fan_out))

    def shape(self, origin: Origin, noise: Tensor) -> Tensor:
        if origin.role.is_embedding or noise.ndim != 2:
            return self.std(origin) * noise
        wide = noise.shape[0] < noise.shape[1]
        q, r = torch.linalg.qr(noise.t() if wide else noise)
        q = q * r.diagonal().sign()
        return self.gain * (q.t() if wide else q)


class Natural(Init):
    """N(0, std²), but variance 1/(fan_in · √E) for query and key, instead of the factor 1/√E on their product.

    Of inputs with variance 1 the product q·k then has variance 1 without any scaling: use model/score=dot_unscaled. E
    is the width of a head. Chapter exercise 1.12; T5 (Raffel 2020, arXiv:1910.10683) folds 1/√E into the query alone.

    Args:
        std: the deviation of all other weights.
    """

    one_head_width = True

    def __init__(self, dims: Dims, *, std: Positive) -> None:
        super().__init__(dims)
        self.deviation = std

    def std(self, origin: Origin) -> float:
        if origin.role not in (Role.QUERY, Role.KEY):
            return self.deviation
        return self.dims.head_dim**-0.25 / math.sqrt(origin.fan_in)
