"""Position encodings with a learned table by clipped distance: a bias, or terms with queries and keys."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Embedding, Role
from swapformer.model.position.base import Position
from swapformer.ranges import Count


def _row(context: Context, max_distance: int) -> Tensor:
    """Row of each distance p_i − p_j, clipped to ±max_distance, counted from −max_distance; [B|1, Q, K]."""
    return (-context.distance).clamp(-max_distance, max_distance) + max_distance


def query_table(x_BHTE: Tensor, table_RE: Tensor, row_BTS: Tensor) -> Tensor:
    """x_t · table[row_ts], [B, H, T, S], without a table for every pair of tokens."""
    product_BHTR = x_BHTE @ table_RE.mT
    return product_BHTR.gather(-1, row_BTS[:, None].expand(*product_BHTR.shape[:3], -1))


def _for_heads(scores_BGQK: Tensor, num_heads: int) -> Tensor:
    """[B, G, Q, K] → [B, H, Q, K], where H/G neighbouring query heads share a group's term."""
    return scores_BGQK.repeat_interleave(num_heads // scores_BGQK.shape[1], dim=1)


class RelativeBias(Position):
    """bias_h(i, j) = b[clip(p_i − p_j, ±max_distance), h] after the scaling: one learned number per distance and head.

    The unbucketed form of a scalar bias (Raffel et al. 2020, arXiv:1910.10683, section 2.1). The table is
    [2·max_distance + 1, H], or [max_distance + 1, H] if symmetric; beyond it all distances share the last row.

    Args:
        max_distance: distance from which all share a row, in positions.
        symmetric: whether |p_i − p_j| counts, so that both directions share a row.
    """

    has_bias = True
    reads = ("num_heads",)

    def __init__(self, dims: Dims, *, max_distance: Count, symmetric: bool) -> None:
        super().__init__(dims)
        self.max_distance, self.symmetric = max_distance, symmetric
        rows = max_distance + 1 if symmetric else 2 * max_distance + 1
        self.table = Embedding(rows, dims.num_heads, Role.POSITION_BIAS)

    def bias(self, context: Context) -> Tensor:
        row = _row(context, self.max_distance)
        if self.symmetric:
            row = (row - self.max_distance).abs()
        return self.table(row).permute(0, 3, 1, 2)


class RelativeKey(Position):
    """scores(i, j) = q_i · a[clip(p_i − p_j, ±max_distance)] inside the scaling, with a learned table a [2m + 1, E].

    Shaw et al. 2018, arXiv:1803.02155, equation 4, without its term on values. The heads share the table, as in the
    paper; so do the layers here.

    Args:
        max_distance: m, the distance from which all share a row, in positions.
    """

    has_scores = True
    reads = ("head_dim",)

    def __init__(self, dims: Dims, *, max_distance: Count) -> None:
        super().__init__(dims)
        self.max_distance = max_distance
        self.table = Embedding(2 * max_distance + 1, dims.head_dim, Role.POSITION_KEY)

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor:
        row = context.once(("row", self), lambda: _row(context, self.max_distance))
        return query_table(q, self.table.weight, row)


class RelativeKeyQuery(Position):
    """scores(i, j) = (q_i + k_j) · a[clip(p_i − p_j, ±max_distance)] inside the scaling, with a table a [2m + 1, E].

    Method 4 of Huang et al. 2020, arXiv:2009.13658: to Shaw's term for the query comes one for the key. Heads and
    layers share the table.

    Args:
        max_distance: m, the distance from which all share a row, in positions.
    """

    has_scores = True
    reads = ("head_dim",)

    def __init__(self, dims: Dims, *, max_distance: Count) -> None:
        super().__init__(dims)
        self.max_distance = max_distance
        self.table = Embedding(2 * max_distance + 1, dims.head_dim, Role.POSITION_KEY)

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor:
        row = context.once(("row", self), lambda: _row(context, self.max_distance))
        return query_table(q, self.table.weight, row) + _for_heads(
            query_table(k, self.table.weight, row.mT).mT, q.shape[1]
        )
