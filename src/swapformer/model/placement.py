"""Placements: which norms a residual branch and a stack have, such as pre-norm and post-norm."""

from __future__ import annotations

from swapformer.model.dims import Dims
from swapformer.ranges import Declared


class Placement(Declared):
    """Base of the slot: update = inside(f(before(x))), x ← after(write(x, update)).

    `embed` is a norm of the embeddings, `final` one of the stack's output; a norm that is false is left out.

    Post (Vaswani et al. 2017, arXiv:1706.03762) is after; pre (Xiong et al. 2020, arXiv:2002.04745) before + final;
    sandwich (Ding et al. 2021, arXiv:2105.13290) before + inside + final; peri (Kim et al. 2025, arXiv:2502.02732) adds
    embed; OLMo-2 (2024, arXiv:2501.00656) is inside + final.

    Facts:
        embed, before, inside, after, final: whether the placement has that norm.

    Raises:
        ValueError: if one of them is neither true nor false.
    """

    def __init__(self, dims: Dims, *, embed: bool, before: bool, inside: bool, after: bool, final: bool) -> None:
        self.embed, self.before, self.inside, self.after, self.final = embed, before, inside, after, final
