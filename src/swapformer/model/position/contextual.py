"""Position encodings whose term depends on the contents of queries and keys: Transformer-XL and CoPE."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Embedding, Linear, Role
from swapformer.model.ops import cumulative_sum, head_products
from swapformer.model.pattern import Causal
from swapformer.model.position.base import Position, wide
from swapformer.model.position.relative import query_table
from swapformer.ranges import Positive, Several


class TransformerXL(Position):
    """scores_h(i, j) = u_h·k_j + (q_i + v_h) · (W_r R(p_i − p_j))_h inside the scaling.

    With q_i·k_j these are the four terms of Dai et al. 2019, arXiv:1901.02860, section 3.3. R(d) = [sin(d·ω), cos(d·ω)]
    with ω_i = base^(−2i/D); W_r is [H·E, D]; u and v are [H, E]. Layers share u, v and W_r (the authors share u and v).

    Args:
        base: the longest wavelength is 2π·base positions.

    Raises:
        ValueError: if `d_model` is odd.
    """

    has_scores = True

    def __init__(self, dims: Dims, *, base: Positive) -> None:
        super().__init__(dims)
        if dims.d_model % 2:
            raise ValueError(f"transformer_xl needs an even `d_model`, but it is {dims.d_model}; make it even.")
        self.base, self.heads = base, (dims.num_heads, dims.head_dim)
        self.map = Linear(dims.d_model, dims.num_heads * dims.head_dim, Role.POSITION_MAP, bias=False)
        self.content_bias = Embedding(dims.num_heads, dims.head_dim, Role.POSITION_KEY)
        self.distance_bias = Embedding(dims.num_heads, dims.head_dim, Role.POSITION_KEY)

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor:
        table_HNE, row = context.once(("rows", self), lambda: self._rows(context))
        by_content = head_products(self.content_bias.weight[:, None].expand(len(k), -1, -1, -1), k)
        return by_content + query_table(q + self.distance_bias.weight[:, None], table_HNE, row)

    def _rows(self, context: Context) -> tuple[Tensor, Tensor]:
        """The rows of the table for these tokens, and the row of each pair among them."""
        table_HNE = context.whole.once(("distances", self), lambda: self._table(context))
        (q_low, q_high), (k_low, k_high), last = context.query.bounds, context.key.bounds, context.key.extent - 1
        first = last - (k_high - q_low)
        return table_HNE[:, first : last - (k_low - q_high) + 1], last - context.distance - first

    def _table(self, context: Context) -> Tensor:
        """W_r R(d) for d = −(largest key) … largest query, [H, N, E]."""
        weight = self.map.weight
        precision = wide(weight.dtype)
        d_N = torch.arange(1 - context.key.extent, context.query.extent, device=weight.device, dtype=precision)
        exponent_I = torch.arange(0, weight.shape[1], 2, device=weight.device, dtype=precision) / weight.shape[1]
        angle = d_N[:, None] * self.base**-exponent_I
        table_NHE = self.map(torch.cat([angle.sin(), angle.cos()], -1).to(weight.dtype)).unflatten(-1, self.heads)
        return table_NHE.transpose(0, 1)


class CoPE(Position):
    """scores(i, j) = q_i · e(p_ij) inside the scaling, where p_ij = Σ_{t=j}^{i} σ(E^gate_exponent · q_i·k_t) counts.

    Each query decides which tokens between a key and itself count. e is a learned table [rows, E], read linearly
    between its rows; beyond the last row all share it. Golovneva et al. 2024, arXiv:2405.18719. Padding and other
    documents never count, and keys later than the query are at 0. Assumes that keys are in their true order. Heads
    share the table, as in the paper; so do the layers here.

    Args:
        rows: positions that the table holds.
        gate_exponent: power of the head's width that scales a gate's logit; 0 is the paper's equation, −½ scales it
            like the attention logits.

    Raises:
        ValueError: if the table has fewer than 2 rows.
    """

    has_scores = True
    sees_positions = False
    pairwise = False
    reads = ("head_dim",)

    def __init__(self, dims: Dims, *, rows: Several, gate_exponent: float) -> None:
        super().__init__(dims)
        self.past = Causal(dims)
        self.gate_scale = float(dims.head_dim**gate_exponent)
        self.table = Embedding(rows, dims.head_dim, Role.POSITION_KEY)

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor:
        counted = context.mask(self.past)
        assert counted is not None, "a causal pattern always forbids something"
        gate = (self.gate_scale * head_products(q, k)).sigmoid() * counted
        last = self.table.weight.shape[0] - 1
        count = cumulative_sum(gate.flip(-1), -1).flip(-1).clamp(max=last)
        below = count.detach().long().clamp(max=last - 1)
        by_row = q @ self.table.weight.mT
        return torch.lerp(by_row.gather(-1, below), by_row.gather(-1, below + 1), (count - below).to(by_row.dtype))
