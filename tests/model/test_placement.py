"""The Jacobians of stacks with pre-norm and post-norm, derived by hand and held to automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from configs import small
from swapformer.interface import Interface
from swapformer.model.block import Sublayer
from swapformer.random import stream
from swapformer.training.assemble import build_model

WIDTH, SUBLAYERS = 32, 8
MATRICES = torch.randn(SUBLAYERS, WIDTH, WIDTH, generator=stream("placement", 0), dtype=torch.float64) / WIDTH**0.5
X = torch.randn(WIDTH, generator=stream("placement", 1), dtype=torch.float64)
EYE = torch.eye(WIDTH, dtype=torch.float64)
EPS = 1e-5


def branch(index: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.tanh(x @ MATRICES[index])


def of_branch(index: int, x: Tensor) -> Tensor:
    """∂ tanh(xM) / ∂x = diag(1 − tanh²(xM)) Mᵀ."""
    return torch.diag(1 - torch.tanh(x @ MATRICES[index]).square()) @ MATRICES[index].mT


def of_norm(x: Tensor) -> Tensor:
    """∂ LayerNorm(x) / ∂x = (I − 11ᵀ/D − zzᵀ/D) / σ, z = (x − mean) / σ, σ² = variance + ε."""
    sigma = ((x - x.mean()).square().mean() + EPS).sqrt()
    z = (x - x.mean()) / sigma
    return (EYE - 1 / WIDTH - torch.outer(z, z) / WIDTH) / sigma


def normed(x: Tensor) -> Tensor:
    return (x - x.mean()) / ((x - x.mean()).square().mean() + EPS).sqrt()


def sublayers(placement: str) -> list[Sublayer]:
    """Those of a model of four layers, in float64."""
    config = small([f"model/placement={placement}", "model.num_layers=4"])
    stack = build_model(config, Interface(8)).stack
    found = [layer.block.sublayer(index) for layer in stack.double().layers for index in range(2)]
    assert len(found) == SUBLAYERS
    return found


def through(placement: str, x: Tensor) -> Tensor:
    """The stream [D] after all sublayers, with known functions in the place of attention and feed-forward layers."""
    state = x[None, None]
    for index, sublayer in enumerate(sublayers(placement)):
        state = sublayer(state, branch(index))
    return state[0, 0]


def derived(placement: str) -> tuple[Tensor, Tensor]:
    """∂x_L/∂x_0 as a product over sublayers, and the stream x_L, in numbers that know nothing of the model.

    Pre:  x ← x + f(n(x)),   J = I + J_f(n(x)) J_n(x).     Post:  x ← n(x + f(x)),   J = J_n(x + f(x)) (I + J_f(x)).
    """
    product, x = EYE, X
    for index in range(SUBLAYERS):
        if placement == "pre":
            product = (EYE + of_branch(index, normed(x)) @ of_norm(x)) @ product
            x = x + branch(index)(normed(x))
        else:
            added = x + branch(index)(x)
            product = of_norm(added) @ (EYE + of_branch(index, x)) @ product
            x = normed(added)
    return product, x


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_jacobian_of_a_stack_is_the_product_that_its_placement_gives(placement: str) -> None:
    product, x = derived(placement)
    torch.testing.assert_close(through(placement, X), x, rtol=0, atol=1e-12)
    found = jacobian(lambda start: through(placement, start), X)
    torch.testing.assert_close(found, product, rtol=0, atol=1e-11)
    other, _ = derived("post" if placement == "pre" else "pre")
    assert float((found - other).norm()) > 0.1, "the other placement's product is another one"


def test_pre_norm_has_a_path_on_which_no_norm_stands_and_post_norm_has_none() -> None:
    """Of pre, J − I is what the branches add, whatever they are; of post every product ends in a norm's Jacobian.

    LayerNorm's Jacobian takes away the mean, so that no gradient along 1 passes a post-norm.
    """
    ones = torch.ones(WIDTH, dtype=torch.float64)
    post, _ = derived("post")
    assert float((ones @ post).norm()) < 1e-10
    pre, _ = derived("pre")
    assert float((ones @ pre).norm()) > 1
