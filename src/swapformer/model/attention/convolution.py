"""Causal convolution over places, one filter for each channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.layers import gain
from swapformer.model.tokens import Tokens


def filters(width: int, *channels: int) -> nn.ParameterList:
    """What each convolution adds to its input, tap by tap, [width, channels]: first the place itself, then the past."""
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise ValueError(f"`convolution` must be at least 1 place wide, but it is {width!r}; 1 sees itself alone.")
    return nn.ParameterList(gain(width, count, start=0.0) for count in channels)


def convolve(
    y: Tensor, taps: Tensor, tokens: Tokens, before: Tensor | None = None, document: Tensor | None = None
) -> Tensor:
    """y_i + Σ_s taps_s ⊙ y_{i−s}, for y [B, T, C], over the places before i of the same document.

    Padding counts as zero. Where y goes on, `before` [B, W − 1, C] is what `recent` kept, and `document` [B|1, 1] the
    document that it belongs to.
    """
    whole, same = _with_past(y, len(taps) - 1, tokens, before, document)
    length = y.shape[1]
    y = whole[:, len(taps) - 1 :]
    out = y + taps[0] * y
    for back in range(1, len(taps)):
        start = len(taps) - 1 - back
        earlier = whole[:, start : start + length]
        if same is not None:
            earlier = earlier.masked_fill((same[:, start : start + length] != same[:, -length:])[..., None], 0.0)
        out = out + taps[back] * earlier
    return out


def recent(
    y: Tensor, reach: int, tokens: Tokens, before: Tensor | None = None, document: Tensor | None = None
) -> Tensor:
    """The last `reach` places [B, reach, C] of y and what went before, zero outside the last place's document."""
    whole, same = _with_past(y, reach, tokens, before, document)
    last = whole[:, y.shape[1] :]
    if same is None:
        return last
    return last.masked_fill((same[:, y.shape[1] :] != same[:, -1:])[..., None], 0.0)


def _with_past(
    y: Tensor, reach: int, tokens: Tokens, before: Tensor | None, document: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """y behind `reach` earlier places, which are zero where there were none, and the document of each place."""
    if tokens.padding is not None:
        y = y.masked_fill(tokens.padding[..., None], 0.0)
    whole = functional.pad(y, (0, 0, reach, 0)) if before is None else torch.cat([before, y], dim=1)
    if tokens.document is None:
        return whole, None
    first = tokens.document[:, :1] if document is None else document
    return whole, torch.cat([first.expand(-1, reach), tokens.document], dim=1)
