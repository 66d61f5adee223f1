"""`swapformer show`: a part draws itself, to a file, without a screen."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from swapformer.errors import UsageError, suggest
from swapformer.model.context import Context, Tokens
from swapformer.model.layers import Role, origin_of
from swapformer.model.plan import LayerPlan
from swapformer.random import stream
from swapformer.report.canvas import add_panel, label, new_figure, settings, title
from swapformer.report.style import styles
from swapformer.study.complaint import explained
from swapformer.study.config import compose
from swapformer.training.assemble import build_model, build_plan

SIZES = ["task=copy", "model.num_layers=8", "model.d_model=64", "model.num_heads=8", "model.max_len=256"]
VOCABULARY, LENGTH = 64, 128

Lines = dict[str, tuple[Tensor, Tensor]]


def main(arguments: Sequence[str]) -> int:
    """Draw the part and print the file's path."""
    options = _parser().parse_args(arguments)
    slot = options.part.partition("=")[0].removeprefix("model/")
    if slot not in DRAWINGS or not options.part.startswith("model/") or "=" not in options.part:
        raise UsageError(
            f"a part that can be shown is named by its slot, {', '.join(f'model/{name}=…' for name in DRAWINGS)}, "
            f"but {options.part!r} is not{suggest(slot, DRAWINGS)}"
        )
    overrides = [*SIZES, options.part, *options.overrides]
    with explained(overrides):
        config = compose(overrides)
    name = options.part.removeprefix("model/").replace("=", "_")
    path = Path(options.out or f"{name}.svg")
    if path.suffix not in (".svg", ".png"):
        raise UsageError(f"`--out` must end in .svg or .png, but it is {path}.")
    with settings():
        figure = DRAWINGS[slot](config)
        figure.suptitle(f"{options.part} {' '.join(options.overrides)}".strip(), fontsize=11, x=0.02, ha="left")
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise UsageError(f"`--out` must be a file that can be written, but {path} cannot: {error}") from error
    print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="swapformer show", description="A part draws itself, to a file.")
    parser.add_argument("part", help="model/position=alibi; also pattern, activation, normaliser, init")
    parser.add_argument("overrides", nargs="*", help="as for swapformer train, such as model.position.decay=4")
    parser.add_argument("--out", help="file.svg or file.png; default: the part's name, here")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _layer(config: Mapping[str, Any]) -> LayerPlan:
    return build_plan(config, VOCABULARY).layers[0]


def _curves(figure: Figure, place: int, lines: Lines, name: str, x: str, y: str) -> None:
    left, right = (0.7, 5.2) if place == 0 else (5.6, 0.3)
    axes = add_panel(figure, left, 0.6, right, 0.75)
    looks = styles(list(lines), next(iter(lines)), ordered=len(lines) > 3)
    for key, (xs, ys) in lines.items():
        axes.plot(xs.numpy(), ys.numpy(), color=looks[key].color, linestyle=looks[key].dash, linewidth=1.6, label=key)
    if len(lines) > 1:
        axes.legend(fontsize=7.5, frameon=False, ncols=2 if len(lines) > 4 else 1)
    label(axes, x, y)
    title(axes, name)


def _image(figure: Figure, place: int, matrix: Tensor, name: str, x: str, y: str) -> None:
    left, right = (0.7, 5.2) if place == 0 else (5.6, 0.3)
    axes = add_panel(figure, left, 0.6, right, 0.75)
    axes.grid(False)
    shown = axes.imshow(matrix.numpy(), cmap="viridis", interpolation="nearest", aspect="equal")
    figure.colorbar(shown, ax=axes, fraction=0.046)
    label(axes, x, y)
    title(axes, name)


def position(config: Mapping[str, Any]) -> Figure:
    """Logits of equal queries and keys against distance, and how alike two places are after `embed`."""
    model = build_model(config, VOCABULARY)
    part: Any = model.stack.positions[0]  # type: ignore[union-attr, index]
    dims = _layer(config).dims
    tokens = Tokens.of(LENGTH)
    context = Context(tokens, tokens)
    ones = torch.ones(1, dims.num_heads, LENGTH, dims.head_dim)
    with torch.no_grad():
        q, k = part.rotate(ones, ones, context)
        logits = (q @ k.mT) * dims.head_dim**-0.5 - dims.head_dim**0.5
        for term in (part.scores(q, k, context), part.bias(context)):
            logits = logits if term is None else logits + term
        places = part.embed(torch.zeros(1, LENGTH, dims.d_model), tokens)[0]
    figure = new_figure(3.6, 10)
    last = logits[0, :, -1].flip(-1)
    lines = {f"head {head + 1}": (torch.arange(LENGTH), last[head]) for head in range(dims.num_heads)}
    _curves(figure, 0, lines, "logit of the last query, equal content", "distance to the key, places", "logit")
    unit = nn.functional.normalize(places, dim=-1)
    _image(figure, 1, unit @ unit.T, "cosine of what is added to two places", "place", "place")
    return figure


def pattern(config: Mapping[str, Any]) -> Figure:
    """What each place may attend to, and how many places that is."""
    tokens = Tokens.of(64)
    allowed = _layer(config).pattern().allowed(tokens, tokens)
    dense = torch.ones(1, 1, 64, 64) if allowed is None else allowed.expand(1, -1, 64, 64).float()
    figure = new_figure(3.6, 10)
    share = f"mean over heads; {dense.mean():.0%} of all pairs"
    _image(figure, 0, dense[0].mean(0), share, "key", "query")
    counts: Lines = {
        f"head {head + 1}": (torch.arange(64), dense[0, head].sum(-1)) for head in range(min(8, dense.shape[1]))
    }
    _curves(figure, 1, counts, "keys that a query sees", "query", "keys")
    return figure


def activation(config: Mapping[str, Any]) -> Figure:
    """The function and its derivative."""
    part = _layer(config).part("activation")
    x = torch.linspace(-4, 4, 801, requires_grad=True)
    y = part(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    figure = new_figure(3.6, 10)
    _curves(figure, 0, {"f": (x.detach(), y.detach())}, "function", "x", "f(x)")
    _curves(figure, 1, {"f′": (x.detach(), slope)}, "derivative", "x", "f′(x)")
    return figure


def normaliser(config: Mapping[str, Any]) -> Figure:
    """Weights of sixteen random logits, sharpened and flattened; and the weight of one logit against three zeros."""
    part = _layer(config).part("normaliser")
    logits = torch.randn(16, generator=stream("show", "normaliser")).sort(descending=True).values
    figure = new_figure(3.6, 10)
    with torch.no_grad():
        lines = {
            f"logits × {scale:g}": (torch.arange(16), part(scale * logits[None, None, None])[0, 0, 0])
            for scale in (0.5, 1.0, 2.0)
        }
        _curves(figure, 0, lines, "weights of sixteen logits, sorted", "key", "weight")
        x = torch.linspace(-6, 6, 241)
        rows = torch.zeros(1, 1, 241, 4)
        rows[0, 0, :, 0] = x
        _curves(figure, 1, {"w": (x, part(rows)[0, 0, :, 0])}, "weight of one logit against three zeros", "logit", "weight")
    return figure


def init(config: Mapping[str, Any]) -> Figure:
    """Deviation of the weights by role and layer, and of the stream by layer for random tokens."""
    model = build_model(config, VOCABULARY).eval()
    lines: Lines = {}
    found: dict[str, list[float]] = {}
    for name, parameter in model.named_parameters():
        role = origin_of(name, parameter).role
        if role.is_matrix and ".layers." in name:
            found.setdefault(str(Role(role)), []).append(float(parameter.std()))
    for role_name, values in found.items():
        lines[role_name] = (torch.arange(1, len(values) + 1), torch.tensor(values))
    stream_std: list[float] = []
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out: stream_std.append(float(out.std())))
        for layer in model.stack.layers  # type: ignore[union-attr]
    ]
    with torch.no_grad():
        model(torch.randint(VOCABULARY, (4, LENGTH), generator=stream("show", "init")))
    for hook in hooks:
        hook.remove()
    figure = new_figure(3.6, 10)
    _curves(figure, 0, lines, "deviation of the weights", "layer", "standard deviation")
    depth = torch.arange(1, len(stream_std) + 1)
    _curves(figure, 1, {"stream": (depth, torch.tensor(stream_std))}, "deviation of the stream", "layer", "standard deviation")
    return figure


DRAWINGS: Mapping[str, Callable[[Mapping[str, Any]], Figure]] = {
    "position": position,
    "pattern": pattern,
    "activation": activation,
    "normaliser": normaliser,
    "init": init,
}
