"""Fixup's scalars against the formula of the authors' Transformer, place by place in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from configs import accepted, small
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.training.assemble import build_model

HEADS, LAYERS = 4, 2
PRESET = ["+preset=fixup", "model/position=none", f"model.num_layers={LAYERS}", f"model.num_heads={HEADS}"]
IDS = torch.randint(11, (2, 7), generator=stream("ids"))


def wide(*more: str) -> Topology:
    """The preset's model in float64 with wide weights, so that its zeros and ones take part."""
    model = build_model(small([*PRESET, *more]), 11).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("wide", name), dtype=torch.float64)
            parameter.add_(noise * (0.5 if parameter.numel() == 1 else parameter.shape[-1] ** -0.5))
    return model


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def attend(weights: dict[str, Tensor], layer: str, shifted: list[Tensor], place: int) -> Tensor:
    """Σ_j softmax_j(q·k_j / √E) v_j over the places up to one, head by head, then W_o; no bias before W_o."""
    query, key, value, out = (weights[f"{layer}.attention.{name}.weight"] for name in ("query", "key", "value", "out"))
    heads, width = [], len(query) // HEADS
    for head in range(HEADS):
        rows = slice(head * width, (head + 1) * width)
        logits = [query[rows] @ shifted[place] @ (key[rows] @ shifted[j]) / width**0.5 for j in range(place + 1)]
        total = sum(logit.exp() for logit in logits)
        heads.append(sum(logits[j].exp() / total * (value[rows] @ shifted[j]) for j in range(place + 1)))
    return out @ torch.cat(heads)


def definition(weights: dict[str, Tensor], row: list[int]) -> Tensor:
    """Zhang et al. 2019, rule 3, as `TransformerZeroDecoderLayer` of their code places its shifts and scales:

    x ← x + s₀·Attention(x + b₀), x ← x + s₁·W₂(act(W₁(x + b₁) + b₂) + b₃), and W(x + b) at the end.
    """
    x = [weights["embedding.weight"][index] for index in row]
    for number in range(LAYERS):
        layer = f"stack.layers.{number}"
        scales = [weights[f"{layer}.block.sublayers.{branch}.residual.alpha"] for branch in (0, 1)]
        first, second = (weights[f"{layer}.block.sublayers.{branch}.before.bias"] for branch in (0, 1))
        before, behind = (weights[f"{layer}.ffn.activation.{where}"] for where in ("before", "behind"))
        up, down = (weights[f"{layer}.ffn.{name}.weight"] for name in ("up", "down"))
        shifted = [place + first for place in x]
        x = [place + scales[0] * attend(weights, layer, shifted, index) for index, place in enumerate(x)]
        x = [place + scales[1] * (down @ (gelu(up @ (place + second) + before) + behind)) for place in x]
    return torch.stack([weights["head.weight"] @ (place + weights["stack.final_norm.bias"]) for place in x])


def test_outputs_and_gradients_are_those_of_the_authors_formula() -> None:
    """Zhang et al. 2019, whose Transformer the formula is of."""
    model = wide()
    weights = dict(model.named_parameters())
    ours, theirs = model(IDS), torch.stack([definition(weights, row) for row in IDS.tolist()])
    mask = torch.randn(ours.shape, generator=stream("loss"), dtype=torch.float64)
    grads = [torch.autograd.grad((out * mask).sum(), list(weights.values())) for out in (ours, theirs)]
    assert (ours - theirs).abs().max() <= 1e-10
    assert all((a - b).abs().max() <= 1e-10 * (1 + b.abs().max()) for a, b in zip(*grads, strict=True))
    assert all(grad.any() for grad in grads[0])


def test_every_scalar_starts_neutral_and_no_linear_map_has_a_bias() -> None:
    """Rule 3: biases at 0 and multipliers at 1; and their code's linear maps have `bias=False`."""
    model = build_model(small(PRESET), 11)
    scalars = {name: p.item() for name, p in model.named_parameters() if p.numel() == 1}
    assert len(scalars) == LAYERS * (2 + 2 + 2) + 1
    assert all(value == (1.0 if name.endswith("alpha") else 0.0) for name, value in scalars.items())
    assert all(p.ndim == 2 for name, p in model.named_parameters() if name not in scalars)


@pytest.mark.parametrize("option", ["relu", "silu"])
def test_the_activation_between_the_biases_can_be_chosen(option: str) -> None:
    function = {"relu": torch.relu, "silu": torch.nn.functional.silu}[option]
    part = wide(f"model/activation@model.activation.inner={option}").stack.layers[0].ffn.activation
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    assert torch.equal(part(x), function(x + part.before) + part.behind)


def test_an_encoder_shifts_what_the_decoder_reads_of_it() -> None:
    """`TransformerZeroEncoder` ends with a shift in place of its last norm."""
    model = wide("model/topology=encoder_decoder", "model.topology.tie_embeddings=false")
    model(IDS, None, IDS.flip(1)).square().sum().backward()
    ends = [p for name, p in model.named_parameters() if name.endswith("final_norm.bias")]
    assert len(ends) == 2 and all(end.grad is not None and bool(end.grad.any()) for end in ends)


def test_a_shift_is_no_norm_to_the_initialisation() -> None:
    """`fixup` and `t_fixup` are for models without a norm, and refuse what holds the stream's size."""
    accepted("task=copy", "+preset=fixup")
    accepted("task=copy", "model/init=t_fixup", "model/norm=shift")
