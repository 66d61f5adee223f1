"""Several documents in a row, for attentions that mix all places of a row at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from swapformer.model.context import Context

Hidden = Tensor | None
"""True where a place takes no part, bool [B|1, T]; None where all do."""


def each_document(mix: Callable[[Hidden, Hidden], Tensor], context: Context) -> Tensor:
    """What every query gets when its document is alone in the row: the others are hidden as padding is.

    It costs one `mix` for each document.

    Args:
        mix: (hidden queries [B|1, Q], hidden keys [B|1, K]) → [B, H, Q, X].
        context: what the places are.
    """
    query, key = context.query, context.key
    if query.document is None or key.document is None:
        return mix(query.padding, key.padding)
    out: Tensor | None = None
    for document in torch.unique(query.document):
        asks, asked = query.document == document, key.document == document
        mixed = mix(_others(asks, query.padding), _others(asked, key.padding))
        out = torch.where(asks[:, None, :, None], mixed, 0.0 if out is None else out)
    assert out is not None, "a row without places has no documents"
    return out


def masked(x: Tensor, hidden: Hidden) -> Tensor:
    """x [B, H, T, X] with zeros at the hidden places."""
    return x if hidden is None else x.masked_fill(hidden[:, None, :, None], 0.0)


def _others(taking: Tensor, padding: Hidden) -> Tensor:
    return ~taking if padding is None else ~taking | padding
