"""What lies far back."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, Reach, steps_ahead
from swapformer.model.tokens import Tokens


class Distant(Pattern):
    """Itself and all places at least `nearest` before it: what a causal window of `nearest` places leaves out.

    For a head that is held to what is far, beside heads with a window. Trained models have both kinds, positional heads
    and heads of broad attention (Clark et al. 2019, arXiv:1906.04341, section 3).

    Args:
        nearest: in places.

    Raises:
        ValueError: if `nearest` is below 2, which is the whole past.
    """

    causal = True
    reach = Reach(after=0)

    def __init__(self, dims: Dims, *, nearest: int) -> None:
        if nearest < 2:
            raise ValueError(
                f"`nearest` of a distant pattern must be at least 2, but it is {nearest}; 1 is model/pattern=causal."
            )
        self.nearest = nearest

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        return (back == 0) | (back >= self.nearest)
