"""Figures of parts: a position's logits, a pattern's mask, an activation, a normaliser's weights, an init's scales."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.layers import origin_of
from swapformer.model.plan import LayerPlan
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.report.figures.style import arm_styles
from swapformer.report.figures.svg import add_panel, label, new_figure, title
from swapformer.training.assemble import build_model, build_plan

VOCABULARY, LENGTH, SHORT = 64, 128, 64

Config = Mapping[str, Any]
Curves = dict[str, tuple[Tensor, Tensor]]
Panel = Callable[[Figure, float, float], None]
"""Draws into a figure between two margins, in inches from its left and right edge."""


def figure_of(*panels: Panel) -> Figure:
    """A figure of panels side by side."""
    width = 5.0 * len(panels)
    drawn = new_figure(3.6, width)
    for index, draw in enumerate(panels):
        draw(drawn, 5.0 * index + 0.75, width - 5.0 * (index + 1) + 0.35)
    return drawn


def curves(lines: Curves, name: str, x: str, y: str) -> Panel:
    """A panel of curves, with a legend if there are several."""

    def draw(figure: Figure, left: float, right: float) -> None:
        axes = add_panel(figure, left, 0.6, right, 0.75)
        looks = arm_styles(list(lines), next(iter(lines)), ordered=len(lines) > 3)
        for key, (xs, ys) in lines.items():
            look = looks[key]
            axes.plot(xs.numpy(), ys.numpy(), color=look.color, linestyle=look.dash, linewidth=1.6, label=key)
        if len(lines) > 1:
            axes.legend(fontsize=7.5, frameon=False, ncols=2 if len(lines) > 4 else 1)
        label(axes, x, y)
        title(axes, name)

    return draw


def image(matrix: Tensor, name: str, x: str, y: str) -> Panel:
    """A panel that shows a matrix as colours, with their scale."""

    def draw(figure: Figure, left: float, right: float) -> None:
        axes = add_panel(figure, left, 0.6, right + 0.45, 0.75)
        axes.grid(False)
        shown = axes.imshow(matrix.numpy(), cmap="viridis", interpolation="nearest", aspect="equal")
        figure.colorbar(shown, ax=axes, fraction=0.046).ax.tick_params(labelsize=8)
        label(axes, x, y)
        title(axes, name)

    return draw


def by_head(x: Tensor, y_HT: Tensor) -> Curves:
    """A curve for each head, or one for all where they agree."""
    if torch.allclose(y_HT, y_HT[:1].expand_as(y_HT), atol=1e-5):
        return {"every head": (x, y_HT[0])}
    return {f"head {head + 1}": (x, line) for head, line in enumerate(y_HT)}


def _layer(config: Config) -> LayerPlan:
    return build_plan(config, VOCABULARY).layers[0]


@torch.no_grad()
def position(config: Config) -> Figure:
    """Logits of equal queries and keys against distance, and the cosine of what `embed` adds at two positions."""
    last_HT, added = _by_distance(config)
    panels: list[Panel] = []
    if last_HT is not None:
        lines = by_head(torch.arange(LENGTH), last_HT)
        panels += [curves(lines, "logit of the last query, equal content", "distance to the key, positions", "logit")]
    if added is not None:
        panels += [image(added @ added.T, "cosine of what is added at two positions", "position", "position")]
    return figure_of(*panels)


@torch.no_grad()
def positions(configs: Mapping[str, Config]) -> Figure:
    """The logit of equal queries and keys against distance, a head's mean, and the cosine of what is added, by name."""
    logits: Curves = {}
    cosines: Curves = {}
    for name, config in configs.items():
        last_HT, added = _by_distance(config)
        if last_HT is not None:
            logits[name] = torch.arange(LENGTH), last_HT.mean(0)
        if added is not None:
            mean = [(added @ added.T).diagonal(distance).mean() for distance in range(LENGTH)]
            cosines[name] = torch.arange(LENGTH), torch.stack(mean)
    axis = "distance of two positions"
    panels = [
        curves(lines, title, axis, unit)
        for lines, title, unit in (
            (logits, "logit of equal content, mean over heads", "logit"),
            (cosines, "cosine of what is added, mean over pairs", "cosine"),
        )
        if lines
    ]
    return figure_of(*panels)


def _by_distance(config: Config) -> tuple[Tensor | None, Tensor | None]:
    """Logits of the last query by distance [H,T], and the unit vectors that are added [T,D]; None where there are none.

    Queries and keys are all ones; logits are less that of equal positions, a bias apart.
    """
    part: Any = next(iter(build_model(config, VOCABULARY).stack.positions.values()))
    dims = _layer(config).position_dims
    tokens = Tokens.of(LENGTH)
    context = Context(tokens, tokens)
    ones = torch.ones(1, dims.num_heads, LENGTH, dims.head_dim)
    q, k = part.rotate(ones, ones, context)
    scores, bias = part.scores(q, k, context), part.bias(context)
    logits = (q @ k.mT + (0.0 if scores is None else scores)) * dims.head_dim**-0.5 - dims.head_dim**0.5
    last_HT = (logits if bias is None else logits + bias)[0, :, -1].flip(-1)
    added = None
    if part.embeds:
        added = nn.functional.normalize(part.embed(torch.zeros(1, LENGTH, dims.d_model), tokens)[0], dim=-1)
    return (last_HT if added is None or float(last_HT.abs().max()) > 1e-4 else None), added


def pattern(config: Config) -> Figure:
    """The keys that each query may attend to, and their number; tags change every eight tokens, from 0 to 2."""
    part = _layer(config).pattern()
    tag = (torch.arange(SHORT) // 8 % 3)[None]
    tokens = Tokens.of(SHORT, tags=dict.fromkeys(part.tags, tag))
    allowed = part.allowed(tokens, tokens)
    dense = torch.ones(1, 1, SHORT, SHORT) if allowed is None else allowed.float()
    share = f"{'mean over heads; ' if dense.shape[1] > 1 else ''}{dense.mean():.0%} of all pairs"
    counts = by_head(torch.arange(SHORT), dense[0].sum(-1))
    return figure_of(
        image(dense[0].mean(0), share, "key", "query"), curves(counts, "keys that a query sees", "query", "keys")
    )


def activation(config: Config) -> Figure:
    """An activation function and its derivative."""
    return activations({"": config})


def activations(configs: Mapping[str, Config]) -> Figure:
    """Activation functions by name, and their derivatives, side by side."""
    values: Curves = {}
    slopes: Curves = {}
    for name, config in configs.items():
        x = torch.linspace(-4, 4, 801, requires_grad=True)
        y = _layer(config).part("activation")(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        values[name], slopes[name] = (x.detach(), y.detach()), (x.detach(), slope)
    return figure_of(curves(values, "function", "x", "f(x)"), curves(slopes, "derivative", "x", "f′(x)"))


@torch.no_grad()
def normaliser(config: Config) -> Figure:
    """Weights of sixteen random logits at three scales, and the weight of one logit against three zeros."""
    layer = _layer(config)
    part, heads = layer.part("normaliser"), (1, layer.dims.num_heads, -1, -1)
    logits = torch.randn(16, generator=stream("show", "normaliser")).sort(descending=True).values
    weights = {scale: part((scale * logits[None, None, None]).expand(heads))[0, 0, 0] for scale in (0.5, 1.0, 2.0)}
    lines = {f"logits × {scale:g}": (torch.arange(16), line) for scale, line in weights.items()}
    x = torch.linspace(-6, 6, 241)
    against = part(torch.stack([x, *torch.zeros(3, 241)], dim=-1).expand(heads))[0, 0, :, 0]
    return figure_of(
        curves(lines, "weights of sixteen logits, sorted", "key", "weight"),
        curves({"w": (x, against)}, "weight of one logit against three zeros", "logit", "weight"),
    )


@torch.no_grad()
def init(config: Config) -> Figure:
    """Standard deviation of the weights by role and layer, and of the stream by layer for random tokens.

    It is that of all weights of a role in the layer together.
    """
    model = build_model(config, VOCABULARY).eval()
    found: dict[str, dict[int, list[Tensor]]] = {}
    for name, parameter in model.named_parameters():
        if (role := origin_of(name, parameter).role).is_matrix and (at := re.search(r"(\w+)\.layers\.(\d+)\.", name)):
            side = "" if at[1] == "stack" else f"{at[1]}: "
            layers = found.setdefault(side + str(role), {})
            layers.setdefault(int(at[2]) + 1, []).append(parameter.flatten())
    lines = {
        name: (torch.tensor(list(layers)), torch.stack([torch.cat(each).std() for each in layers.values()]))
        for name, layers in found.items()
    }
    deviations: list[float] = []
    for layer in model.stack.layers:
        layer.register_forward_hook(lambda _module, _given, out: deviations.append(float(out.std())))
    inputs = torch.randint(VOCABULARY, (4, LENGTH), generator=stream("show", "init"))
    model(inputs, source=inputs if model.reads_source and not model.reads_ahead else None)
    depth = torch.arange(1, len(deviations) + 1)
    return figure_of(
        curves(lines, "deviation of the weights", "layer", "standard deviation"),
        curves({"": (depth, torch.tensor(deviations))}, "deviation of the stream", "layer", "standard deviation"),
    )


DRAWINGS: Mapping[str, Callable[[Config], Figure]] = {
    "position": position,
    "pattern": pattern,
    "activation": activation,
    "normaliser": normaliser,
    "init": init,
}
OVERLAYS: Mapping[str, Callable[[Mapping[str, Config]], Figure]] = {"activation": activations, "position": positions}
"""The slots of which several parts can be drawn into one figure."""
