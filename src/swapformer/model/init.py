"""Initialisations: the deviation of each weight, by its declared role."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import nn

from swapformer.model.dims import Dims, require_positive
from swapformer.model.layers import Origin, Role, origin_of
from swapformer.random import stream


class Init(ABC):
    """Base of the slot: every parameter starts at `start + std · z`, where z is standard normal.

    z depends on the seed and the parameter's name alone, so weights that two models share start bit-identical under one
    scheme and proportional under two.
    """

    def __init__(self, dims: Dims) -> None:
        self.dims = dims

    @abstractmethod
    def std(self, origin: Origin) -> float:
        """The standard deviation for a weight matrix or table."""

    def bias_std(self, origin: Origin) -> float:
        """The standard deviation of a bias; zero unless a scheme says otherwise."""
        return 0.0


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


class Xavier(Init):
    """Variance gain² · 2/(fan_in + fan_out) for every weight, tables included, biases zero (Glorot & Bengio 2010).

    Args:
        gain: factor on the deviation.
    """

    def __init__(self, dims: Dims, *, gain: float) -> None:
        super().__init__(dims)
        require_positive(gain=gain)
        self.gain = gain

    def std(self, origin: Origin) -> float:
        return self.gain * math.sqrt(2 / (origin.fan_in + origin.fan_out))


class GPT2(Init):
    """N(0, std²), and N(0, std²/(2L)) for the 2L weights that end a residual branch, biases zero.

    Radford et al. 2019, section 2.3: the scaling falls on the initial weights, not on the forward pass. L is the number
    of layers.

    Args:
        std: the deviation.
    """

    def __init__(self, dims: Dims, *, std: float) -> None:
        super().__init__(dims)
        require_positive(std=std)
        self.deviation = std

    def std(self, origin: Origin) -> float:
        return self.deviation / math.sqrt(2 * self.dims.num_layers) if origin.role.ends_branch else self.deviation


@torch.no_grad()
def initialise(model: nn.Module, init: Init, seed: int) -> None:
    """Give every parameter its start, each from a random stream of its own keyed by (seed, name).

    Raises:
        ValueError: if a parameter declares no role.
    """
    for name, parameter in model.named_parameters():
        origin = origin_of(name, parameter)
        if origin.role is Role.GAIN:
            std = 0.0
        elif origin.role is Role.BIAS:
            std = init.bias_std(origin)
        else:
            std = init.std(origin)
        if std:
            noise = torch.randn(parameter.shape, generator=stream("weight", seed, name), dtype=torch.float32)
            parameter.copy_(origin.start + std * noise)
        else:
            parameter.fill_(origin.start)
