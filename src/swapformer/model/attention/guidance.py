"""Losses that pull the heads of a layer: apart from each other, or each towards a behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.attention.sums import wide
from swapformer.model.context import Context, Tokens
from swapformer.model.dims import require_positive
from swapformer.model.kernel import Plan, Reference
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position


def overlap(heads: Tensor, padding: Tensor | None) -> Tensor:
    """Mean of cos²(o_h, o_g) over pairs of heads h ≠ g and places that are not padding, of heads [B, H, T, E].

    0 when the heads' outputs are orthogonal at every place, 1 when they are parallel.
    """
    unit = functional.normalize(wide(heads).transpose(1, 2), dim=-1)
    squared = (unit @ unit.mT).square()
    count = heads.shape[1]
    pairs = squared.sum(dim=(-1, -2)) - squared.diagonal(dim1=-2, dim2=-1).sum(-1)
    return _mean(pairs / (count * (count - 1)), None if padding is None else ~padding)


@dataclass(frozen=True)
class Guide:
    """A head that shall look at the places `nearest` to `farthest` before each place, all of them alike.

    Attributes:
        head: which, from 0.
        nearest, farthest: in places back, by order; negative looks ahead; `farthest = None` for all there are.
        weight: of its loss.
    """

    head: int
    nearest: int
    farthest: int | None
    weight: float

    @classmethod
    def of(cls, settings: Mapping[str, Any], num_heads: int) -> Guide:
        """A guide from its settings by name.

        Raises:
            ValueError: if a name is missing or unknown, the head does not exist, or no place lies in between.
        """
        names = ("head", "nearest", "farthest", "weight")
        if not hasattr(settings, "keys") or set(settings) != set(names):
            raise ValueError(f"an entry of `guided_heads` must have {', '.join(names)}, but it is {settings!r}.")
        head, nearest, farthest, weight = (settings[name] for name in names)
        if not isinstance(head, int) or not 0 <= head < num_heads:
            raise ValueError(f"`head` of a guided head must be from 0 to {num_heads - 1}, but it is {head!r}.")
        far = nearest if farthest is None else farthest
        if not isinstance(nearest, int) or not isinstance(far, int) or far < nearest:
            raise ValueError(
                "`nearest` and `farthest` of a guided head are whole numbers of places back, in this order, but they "
                f"are {nearest!r} and {farthest!r}; 1 and 1 is the previous place, 0 and null the whole past."
            )
        require_positive(weight=weight)
        return cls(head, nearest, farthest, weight)

    def loss(self, weights: Tensor, target: Tensor) -> Tensor:
        """weight · mean_i Σ_j (w_ij − p_ij)², p_i even over what query i shall look at; without queries that have none.

        Weights are [B, H, Q, K], the target bool [B|1, Q, K].
        """
        found = target.sum(-1, keepdim=True)
        even = target / found.clamp(min=1)
        off = (wide(weights[:, self.head]) - even).square().sum(-1)
        return self.weight * _mean(off, (found > 0).squeeze(-1))

    def target(self, context: Context, pattern: Pattern) -> Tensor:
        """True where the head shall look and may, bool [B|1, Q, K]; padding asks nothing."""
        target = self._band(context.query, context.key)
        if (allowed := context.mask(pattern)) is not None:
            target = target & allowed[:, self.head if allowed.shape[1] > 1 else 0]
        return target if context.query.padding is None else target & ~context.query.padding[..., None]

    def _band(self, query: Tokens, key: Tokens) -> Tensor:
        back = query.order[:, :, None] - key.order[:, None, :]
        band = back >= self.nearest
        return band if self.farthest is None else band & (back <= self.farthest)


class Pulls:
    """What the heads of a layer are pulled to, as a loss.

    Args:
        orthogonality: weight of `overlap`; 0 for none.
        guided_heads: settings of guides.
        num_heads: H.
        plan: what the attention computes.

    Raises:
        ValueError: if a weight is negative, there is no pair of heads, or a guided head may see none of its places.
    """

    def __init__(
        self, orthogonality: float, guided_heads: Sequence[Mapping[str, Any]], num_heads: int, plan: Plan
    ) -> None:
        if orthogonality < 0 or (orthogonality and num_heads < 2):
            raise ValueError(
                "`orthogonality` must be at least 0, and 0 for a single head, but it is "
                f"{orthogonality} for `num_heads` = {num_heads}."
            )
        self.orthogonality, self.plan = orthogonality, plan
        self.guides = [Guide.of(entry, num_heads) for entry in guided_heads]
        reach = plan.pattern.reach
        for guide in self.guides:
            behind = guide.farthest is not None and guide.farthest < -reach.after
            if not reach.landmarks and (behind or guide.nearest > reach.before):
                raise ValueError(
                    f"a guided head must be able to see what it is pulled to, but the pattern "
                    f"{type(plan.pattern).__name__} forbids all of {guide.nearest} to {guide.farthest} places back."
                )

    def __bool__(self) -> bool:
        return bool(self.orthogonality or self.guides)

    def loss(
        self, q: Tensor, k: Tensor, heads: Tensor, position: Position, context: Context, *, own: bool
    ) -> Tensor | None:
        """The sum of all pulls; guides count where places look at their `own` sequence. None if nothing pulls."""
        losses = [self.orthogonality * overlap(heads, context.query.padding)] if self.orthogonality else []
        if self.guides and own:
            weights = Reference.weights(q, k, self.plan, position, context)
            losses += [guide.loss(weights, guide.target(context, self.plan.pattern)) for guide in self.guides]
        return torch.stack(losses).sum() if losses else None


def _mean(values: Tensor, counted: Tensor | None) -> Tensor:
    """The mean over the counted ones of values [B, T]; 0 if there are none."""
    if counted is None:
        return values.mean()
    shares = counted.to(values.dtype).expand_as(values)
    return torch.where(counted, values, 0.0).sum() / shares.sum().clamp(min=1)
