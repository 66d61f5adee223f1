"""The init slot's base, and the function that draws a model's weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.layers import Origin, Role, origin_of
from swapformer.random import stream
from swapformer.ranges import Declared


class Init(Declared, ABC):
    """Base of the slot: every parameter starts at `start + std · z`, where z is standard normal.

    z depends on the seed and the parameter's name alone, so weights that two models share start bit-identical under one
    scheme and proportional under two. Matrices that are stacked have a z of their own each.

    Facts:
        without_norm: the scheme bounds the stream's size by itself and is meant for models without any norm.
        zero_head: the output matrix starts at zero, so it cannot be the embedding table.
        one_head_width: what it draws follows the width of the model's heads, so no layer may have others.
    """

    without_norm: bool = False
    zero_head: bool = False
    one_head_width: bool = False

    def __init__(self, dims: Dims) -> None:
        self.dims = dims

    @abstractmethod
    def std(self, origin: Origin) -> float:
        """The standard deviation for a weight matrix or table."""

    def bias_std(self, origin: Origin) -> float:
        """The standard deviation of a bias; zero unless a scheme says otherwise."""
        return 0.0

    def shape(self, origin: Origin, noise: Tensor) -> Tensor:
        """A matrix or table from standard normal noise of its shape; `std · noise` unless a scheme says otherwise."""
        return self.std(origin) * noise


@torch.no_grad()
def initialise(model: nn.Module, init: Init, seed: int, starts: Mapping[str, float] | None = None) -> None:
    """Set every parameter to its starting value, from a separate random stream keyed by (seed, name).

    `starts` are factors on what is drawn, by name; 1 for what it does not name.

    Raises:
        ValueError: if a parameter declares no role.
    """
    for name, parameter in model.named_parameters():
        origin = origin_of(name, parameter)
        parameter.fill_(origin.start)
        std = deviation(init, origin)
        if not std:
            continue
        scale = starts.get(name, 1.0) if starts else 1.0
        stacked = origin.slices is not None
        for index, part in enumerate(parameter if stacked else parameter[None]):
            key = ("weight", seed, name, index) if stacked else ("weight", seed, name)
            noise = torch.randn(part.shape, generator=stream(*key), dtype=torch.float32)
            drawn = init.shape(origin, noise) if origin.role.is_matrix else std * noise
            part.add_(drawn if scale == 1 else scale * drawn)


def deviation(init: Init, origin: Origin) -> float:
    """The standard deviation that a scheme gives a parameter: a weight, a bias, or a gain, which has none."""
    if origin.role is Role.GAIN:
        return 0.0
    return init.bias_std(origin) if origin.role is Role.BIAS else init.std(origin)
