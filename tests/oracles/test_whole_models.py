"""Whole models of Hugging Face `transformers` compute the same function in float64: every layer, logits and gradients.

The weights are drawn wide (standard deviation 0.3), so that a wrong term shows. Most of these models cast something to
float32 on the way (angles, softmax, statistics of norms); here these casts are to float64, so that nothing but the
function is compared, and the bound is 1e-10 of the largest number. Where constants are rounded, the case says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from casts import casts_lifted
from configs import SMALL, small
from swapformer.interop.rules import Rule, Shapes, module, read
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose
from swapformer.training.assemble import build_model, build_plan
from whole_models import CASES, LAYERS, LENGTH, VOCABULARY, Case, Given, read_gradients

NOPE = Position(Dims(32, 1, 4, 8, LENGTH, VOCABULARY))


def widen(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


@contextmanager
def outputs(stacks: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """What each layer of some stacks returns; of a tuple, the first."""
    seen: list[Tensor] = []

    def see(module: nn.Module, inputs: Any, out: Any) -> None:
        seen.append(out if isinstance(out, Tensor) else out[0])

    hooks = [layer.register_forward_hook(see) for layers in stacks for layer in layers.children()]
    yield seen
    for hook in hooks:
        hook.remove()


def gap(mine: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to one more than the largest number."""
    return ((mine - theirs).abs().max() / (1 + theirs.abs().max())).item()


def family(case: Case) -> str:
    """`llama` of `llama, 2 key-value heads`; mbart is bart with its norms before."""
    return case.name.split(",")[0].removeprefix("m") if "bart" in case.name else case.name.split(",")[0]


FIRST = {family(case): case for case in reversed(CASES)}
"""One model of each family; the others are evidence."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case is FIRST[family(case)] else pytest.mark.evidence) for case in CASES],
    ids=lambda case: case.name,
)
def test_outputs_and_gradients_agree(case: Case, record_property: Any) -> None:
    torch.manual_seed(0)  # transformers draws its weights from the global state
    given = Given.made()
    with casts_lifted():
        theirs = case.theirs().double().eval()
        widen(theirs)
        case.prepare(theirs)
        with outputs([theirs.get_submodule(place) for place in case.stacks.values()]) as expected:
            expected.append(case.ask(theirs, given))
        probe = torch.randn(expected[-1].shape, generator=torch.Generator().manual_seed(2))
        (expected[-1] * probe).sum().backward()
    weights = {name: weight.detach() for name, weight in theirs.named_parameters()}
    gradients = {name: weight.grad for name, weight in theirs.named_parameters() if weight.grad is not None}

    config = compose(["task=copy", *SMALL, f"model.num_layers={LAYERS}", *case.ours])
    for kernel in ("reference", "auto"):  # auto is the fastest that can do what is asked
        config["model"]["kernel"] = kernel_node(kernel)
        ours = build_model(config, case.asked).double().eval()
        shapes = {name: weight.shape for name, weight in ours.state_dict().items()}
        ours.load_state_dict(read(case.all_rules, weights, shapes))
        with outputs([ours.get_submodule(f"{stack}.layers") for stack in case.stacks]) as found:
            found.append(case.ask_ours(ours, given))
        (found[-1] * probe).sum().backward()

        gaps = {f"layer {i}": gap(a, b) for i, (a, b) in enumerate(zip(found, expected, strict=True))}
        slopes = read_gradients(case.all_rules, gradients, shapes)
        mine = {name: weight.grad for name, weight in ours.named_parameters() if weight.grad is not None}
        gaps |= {name: gap(mine[name], slope) for name, slope in slopes.items()}
        assert mine.keys() - slopes.keys() == zero_here(case.all_rules, shapes), (
            "the others have a gradient on both sides"
        )
        worst = max(gaps, key=lambda name: gaps[name])
        record_property(f"largest_difference, {kernel}", gaps[worst])
        print(f"\n{case.name}, {kernel}: {gaps[worst]:.1e} ({worst})")
        assert gaps[worst] <= case.bound, worst


@cache
def kernel_node(name: str) -> dict[str, Any]:
    """What an option of model/kernel puts into a configuration."""
    return small([f"model/kernel={name}"])["model"]["kernel"]


def zero_here(rules: Sequence[Rule], shapes: Shapes) -> set[str]:
    """Weights of ours that they do not have."""
    return {name for rule in rules if rule.theirs is None for name in rule.ours if name in shapes}


def test_attention_weights_are_those_of_torch_with_padding_and_mask(record_property: Any) -> None:
    """torch.nn.MultiheadAttention: outputs and weights of each head, and the gradient by its input; exact float64."""
    config = compose(["task=copy", *SMALL, "model/position=none", "model/kernel=reference"])
    mine = build_plan(config, VOCABULARY).layers[0].attention().double().eval()
    theirs = nn.MultiheadAttention(32, 4, batch_first=True).double().eval()
    widen(theirs)
    rules = [Rule("in_proj_weight", tuple(f"{name}.weight" for name in ("query", "key", "value")))]
    rules += [Rule("in_proj_bias", tuple(f"{name}.bias" for name in ("query", "key", "value")))]
    rules += module("out_proj", "out")
    shapes = {name: weight.shape for name, weight in mine.state_dict().items()}
    mine.load_state_dict(read(rules, theirs.state_dict(), shapes))

    x = torch.randn(2, LENGTH, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, -4:] = True
    tokens = Tokens.of(LENGTH, padding=padding)
    context = Context(tokens, tokens, torch.float64)
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    expected, weights = theirs(x, x, x, key_padding_mask=padding, attn_mask=later, average_attn_weights=False)
    found = mine(x, context, NOPE)
    (expected_grad,) = torch.autograd.grad(expected.sum(), x)
    (grad,) = torch.autograd.grad(found.sum(), x)
    pairs = [(found, expected), (mine.weights(x, context, NOPE), weights), (grad, expected_grad)]
    worst = max(gap(a, b) for a, b in pairs)
    record_property("largest_difference", worst)
    print(f"\nMultiheadAttention: {worst:.1e}")
    assert worst <= 1e-10


def test_gradients_of_one_tensor_gather_those_of_its_copies_and_no_constant() -> None:
    grad = torch.arange(4.0)
    rules = [Rule("a", ("x",), plus=1.0, also=("b",))]
    assert torch.equal(read_gradients(rules, {"a": grad, "b": grad}, ["x"])["x"], 2 * grad)
