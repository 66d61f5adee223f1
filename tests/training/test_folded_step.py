"""The pieces of a folded step against a loop over its trials."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from swapformer.training.folded_step import Streams, _Folding

TRIALS, ROWS, HEADS, LENGTH, WIDTH = 3, 2, 4, 5, 8


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def fold(function: Callable[..., Tensor], *held: Tensor, seeds: tuple[int, ...] = (5, 6, 7)) -> Tensor:
    """`function` of each trial's tensors as a folded step computes it."""
    streams, marker = Streams(seeds, torch.device("cpu")), torch.zeros(len(seeds))

    def one(marker: Tensor, *own: Tensor) -> Tensor:
        with _Folding(streams, marker):
            return function(*own)

    return torch.func.vmap(one)(marker, *held)


@pytest.mark.parametrize("groups", [HEADS, 2, 1])
@pytest.mark.parametrize(
    "mask", [None, (1, HEADS, LENGTH, LENGTH), (ROWS, 1, LENGTH, LENGTH), (1, 1, LENGTH, LENGTH)], ids=str
)
@pytest.mark.parametrize("own", [True, False])
def test_attention_is_that_of_each_trial_and_never_falls_back_to_a_loop(
    groups: int, mask: tuple[int, ...] | None, own: bool
) -> None:
    """The loop over trials is torch's own kernel, called for each."""
    q = tensor(TRIALS, ROWS, HEADS, LENGTH, WIDTH).requires_grad_()
    k, v = (tensor(TRIALS, ROWS, groups, LENGTH, WIDTH) for _ in range(2))
    bias = None if mask is None else tensor(*((TRIALS,) if own else ()), *mask)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = bias if mask is None else mask
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True, scale=0.3)

    batched = own and bias is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fold(attend, q, k, v, *([bias] if batched and bias is not None else []))
    expected = torch.stack(
        [attend(q[i], k[i], v[i], bias[i] if batched and bias is not None else None) for i in range(TRIALS)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    direction = tensor(*found.shape)
    (mine,), (theirs,) = (torch.autograd.grad(out, [q], direction) for out in (found, expected))
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: functional.dropout(functional.dropout(x, 0.3), 0.2),
        lambda x: x * (torch.rand(len(x), 1) < 0.5),
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
    ],
    ids=["dropout", "rand", "attention"],
)
def test_each_trial_draws_what_it_draws_alone(draw: Callable[[Tensor], Tensor]) -> None:
    x = tensor(TRIALS, LENGTH, WIDTH)
    before = torch.get_rng_state()
    found = fold(draw, x)
    assert torch.equal(torch.get_rng_state(), before)
    for trial, seed in enumerate((5, 6, 7)):
        torch.manual_seed(seed)
        torch.testing.assert_close(found[trial], draw(x[trial]), rtol=0, atol=1e-15)


def test_what_else_draws_at_random_is_refused() -> None:
    with pytest.raises(RuntimeError, match="random"):
        fold(lambda x: x + torch.randn_like(x), tensor(TRIALS, LENGTH))
