"""Activations: their derivatives and minima in closed form, and what they do to a signal of unit variance."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, optimize, special, stats
from torch import Tensor

from swapformer.model.activation import GELU, Activation, ReLU, SiLU, Tanh
from swapformer.model.dims import Dims

DIMS = Dims(vocab_size=8, d_model=8, num_layers=1, num_heads=1, head_dim=8, max_len=8)
PARTS = {part.__name__: part(DIMS) for part in (ReLU, GELU, SiLU, Tanh)}


def slope_of(part: Activation, x: Tensor) -> Tensor:
    given = x.clone().requires_grad_()
    return torch.autograd.grad(part(given).sum(), given)[0]


def value(name: str, x: float) -> float:
    return float(PARTS[name](torch.tensor(x, dtype=torch.float64)))


def slope(name: str, x: float) -> float:
    return float(slope_of(PARTS[name], torch.tensor(x, dtype=torch.float64)))


CLOSED = {
    "ReLU": lambda x: float(x > 0),
    "GELU": lambda x: stats.norm.cdf(x) + x * stats.norm.pdf(x),
    # The chapter's form: SiLU′ = SiLU + σ (1 − SiLU).
    "SiLU": lambda x: x * special.expit(x) + special.expit(x) * (1 - x * special.expit(x)),
    "Tanh": lambda x: 1 - math.tanh(x) ** 2,
}


@pytest.mark.parametrize("name", CLOSED)
def test_derivatives_are_the_closed_forms(name: str) -> None:
    xs = torch.linspace(-6, 6, 240, dtype=torch.float64)
    expected = torch.tensor([CLOSED[name](float(x)) for x in xs], dtype=torch.float64)
    torch.testing.assert_close(slope_of(PARTS[name], xs), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "x", "least"), [("GELU", -0.7518, -0.1700), ("SiLU", -1.2785, -0.2785)])
def test_gelu_and_silu_fall_before_they_rise(name: str, x: float, least: float) -> None:
    """The place where the closed derivative is 0, by bisection, is a minimum below 0: neither is monotone."""
    found = optimize.brentq(CLOSED[name], -3, -0.1)
    assert found == pytest.approx(x, abs=1e-4) and value(name, found) == pytest.approx(least, abs=1e-4)
    assert slope(name, found - 0.5) < 0 < slope(name, found + 0.5)
    assert value(name, found - 2) > least and value(name, found + 2) > least


@pytest.mark.parametrize(("name", "x", "steepest"), [("GELU", math.sqrt(2), 1.1289), ("SiLU", 2.3994, 1.0998)])
def test_the_steepest_slope_is_above_one(name: str, x: float, steepest: float) -> None:
    """Of GELU at √2, where its second derivative φ(x)(2 − x²) is 0; of SiLU at the root of 2 = x tanh(x/2)."""
    assert slope(name, x) == pytest.approx(steepest, abs=1e-4)
    assert slope(name, x - 0.2) < slope(name, x) > slope(name, x + 0.2)


def test_relu_alone_has_a_step_in_its_slope() -> None:
    assert (slope("ReLU", -1e-9), slope("ReLU", 1e-9)) == (0, 1)
    for name in ("GELU", "SiLU"):
        assert slope(name, 1e-9) - slope(name, -1e-9) < 1e-6
        assert slope(name, 0.0) == 0.5, "half of the identity near 0"


def ratio(name: str) -> float:
    """E f′(z)² / E f(z)² for z from N(0, 1), by quadrature."""

    def mean(function: str) -> float:
        of = slope if function == "slope" else value
        found, _ = integrate.quad(lambda x: of(name, x) ** 2 * stats.norm.pdf(x), -10, 10, points=[0], limit=200)
        return float(found)

    return mean("slope") / mean("value")


GAIN = {"ReLU": 1.0, "GELU": 1.072, "SiLU": 1.067, "Tanh": 1.178}


@pytest.mark.parametrize("name", GAIN)
def test_what_a_layer_does_to_a_gradient_at_unit_variance(name: str) -> None:
    """1 where weights that keep the signal's size keep the gradient's; above it gradients grow towards the input.

    ReLU's is exact: both means are ½. The other three agree with a random matrix of width 2000 that is scaled so that
    it keeps the signal: the squared gradient before the activation over that behind the next matrix.
    """
    expected = ratio(name)
    assert expected == pytest.approx(GAIN[name], abs=5e-4)
    generator = torch.Generator().manual_seed(0)
    width, rows = 2000, 40
    z = torch.randn(rows, width, generator=generator, dtype=torch.float64).requires_grad_()
    hidden = PARTS[name](z)
    scale = float(hidden.detach().square().mean().rsqrt()) / math.sqrt(width)
    weight = torch.randn(width, width, generator=generator, dtype=torch.float64) * scale
    behind = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(hidden @ weight, z, behind)
    assert float(gradient.square().mean() / behind.square().mean()) == pytest.approx(expected, rel=0.02)
