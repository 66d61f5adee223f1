"""Mixtures of experts: feed-forward layers of which each token uses a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.activation import Activation
from swapformer.model.dims import Dims
from swapformer.model.ffn.base import FFN, hidden_width
from swapformer.model.layers import Linear, Role, StackedLinear
from swapformer.model.ops import widen, without_autocast
from swapformer.ranges import Count, NonNegative, Positive


class MoE(FFN):
    """dropout(Σ_e g_e · expert_e(x)) over the k experts with the largest router probability.

    p = softmax(xW_r) over S experts, in float32 or wider; g_e = p_e divided by the sum of the k chosen ones for k > 1
    (Shazeer et al. 2017, arXiv:1701.06538, without its noise; Mixtral, Jiang et al. 2024, arXiv:2401.04088), and p_e
    itself for k = 1, where the quotient would teach the router nothing (Switch, Fedus et al. 2021, arXiv:2101.03961).
    Each expert is an MLP; no token is dropped, so no token depends on another.

    In training `auxiliary_loss` = balance · S · Σ_e f_e P_e, with f_e the share of the choices that fell on expert e
    and P_e the mean of p_e, over the tokens that are not padding: 1 · balance when the load is even (Switch, eq. 4). Of
    a batch that is cut into parts it is the mean of that of each part, which is not that of the whole.

    Args:
        experts: S.
        top_k: k.
        balance: weight of the balancing loss; 0.01 in Switch.
        expansion: F/D of one expert; 4 where neither it nor `width` is given.
        width: F itself, instead of `expansion`.

    Raises:
        ValueError: if k is not in 1 … S.
    """

    auxiliary_loss: Tensor | None = None
    places: ClassVar[Mapping[str, str]] = {
        "hook_expert_weights": "B T J",
        "hook_expert_indices": "B T J",
        "hook_pre": "B T J F",
        "hook_post": "B T J F",
    }

    def __init__(
        self,
        dims: Dims,
        *,
        activation: Activation,
        experts: Count,
        top_k: Count,
        balance: NonNegative,
        expansion: Positive | None = None,
        width: Count | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= top_k <= experts:
            raise ValueError(f"`top_k` must be in 1 … `experts`, but it is {top_k} of {experts}.")
        width = hidden_width(dims, width, expansion)
        self.experts, self.top_k, self.balance = experts, top_k, balance
        self.has_auxiliary_loss = balance > 0
        self.reads_device = "how many tokens an expert gets is known on the device only"
        self.router = Linear(dims.d_model, experts, Role.ROUTER, bias=False)
        self.up = StackedLinear(experts, dims.d_model, width, Role.FFN_IN, bias=dims.bias, active=top_k)
        self.down = StackedLinear(experts, width, dims.d_model, Role.FFN_OUT, bias=dims.bias, active=top_k)
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        with without_autocast(x.device):
            probabilities = functional.linear(widen(x), widen(self.router.weight)).softmax(dim=-1)
        gates, chosen = probabilities.topk(self.top_k, dim=-1)
        if self.top_k > 1:
            gates = gates / gates.sum(dim=-1, keepdim=True)
        if self.training and self.has_auxiliary_loss:
            self.auxiliary_loss = self.balance * self.imbalance(probabilities, chosen, padding)
        gates, chosen = self.tap("hook_expert_weights", gates), self.tap("hook_expert_indices", chosen)
        hidden = self._hidden(x, chosen) if self.watched("hook_pre", "hook_post") else None
        mixed = self._mix(x.flatten(0, -2), gates.to(x.dtype).flatten(0, -2), chosen.flatten(0, -2), hidden)
        return self.dropout(mixed.view_as(x))

    def _mix(self, x_ND: Tensor, gates_NK: Tensor, chosen_NK: Tensor, hidden_NKF: Tensor | None) -> Tensor:
        """The weighted sum of the experts' updates; their hidden activations may have been computed already."""
        out = torch.zeros_like(x_ND)
        for index in range(self.experts):
            rows, rank = (chosen_NK == index).nonzero(as_tuple=True)
            hidden = self.activation(self.up.one(index, x_ND[rows])) if hidden_NKF is None else hidden_NKF[rows, rank]
            update = self.down.one(index, hidden) * gates_NK[rows, rank, None]
            out = out.index_add(0, rows, update.to(out.dtype))
        return out

    def _hidden(self, x: Tensor, chosen_BTJ: Tensor) -> Tensor:
        """The hidden activations of all experts of each token, [N, J, F], as those who watch them leave them."""
        chosen = chosen_BTJ.flatten(0, -2)
        where = [(chosen == index).nonzero(as_tuple=True) for index in range(self.experts)]
        by_expert = chosen.flatten().argsort(stable=True).argsort()

        def tapped(place: str, parts: list[Tensor]) -> Tensor:
            shown = self.tap(place, torch.cat(parts)[by_expert].view(*chosen_BTJ.shape, -1))
            return shown.flatten(0, -3)

        rows_ND = x.flatten(0, -2)
        pre = tapped("hook_pre", [self.up.one(index, rows_ND[rows]) for index, (rows, _) in enumerate(where)])
        return tapped("hook_post", [self.activation(pre[rows, rank]) for rows, rank in where])

    def imbalance(self, probabilities: Tensor, chosen: Tensor, padding: Tensor | None) -> Tensor:
        """S · Σ_e f_e P_e over the tokens that are not padding: 1 when even, S when one expert takes all."""
        weights = torch.ones_like(probabilities[..., :1])
        if padding is not None:
            weights = weights * (~padding)[..., None]
        weights = weights / weights.sum().clamp(min=1)
        load = functional.one_hot(chosen, self.experts).to(probabilities.dtype).mean(dim=-2)
        return self.experts * ((load * weights).sum(dim=(0, 1)) * (probabilities * weights).sum(dim=(0, 1))).sum()
