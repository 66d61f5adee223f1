"""What attention by keys keeps of the places read so far."""

from __future__ import annotations

import math

from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position


def places_kept(pattern: Pattern, position: Position) -> int | None:
    """How many of the last places later ones may need, under a pattern and an encoding; None for all."""
    reach = pattern.reach
    cut = math.isfinite(reach.before) and not reach.landmarks and position.pairwise
    return int(reach.before) + 1 if cut else None


def with_kept(
    owner: object, k: Tensor, v: Tensor, context: Context, pattern: Pattern, position: Position, memory: Tensor | None
) -> tuple[Tensor, Tensor, Context]:
    """k and v [..., K, X] with those kept of the places before; those of a memory are the same for every place.

    The context is that of what is returned: of the keys in a cache, those out of the pattern's reach are left out.
    """
    if context.cache is None:
        return k, v, context
    if memory is not None:
        k, v = context.cache.once(owner, lambda: (k, v))
        return k, v, context
    k, v = context.cache.append(owner, k, v, last=places_kept(pattern, position))
    return k, v, context.latest(k.shape[-2])
