"""The optimiser Muon for the matrices of a model, with AdamW for tables, heads, routers, biases and gains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from swapformer.model.layers import Origin, Role
from swapformer.ranges import Count, Positive


class MuonAdamW(Optimizer):
    """Muon (Jordan et al. 2024) for matrices, in layers and out, AdamW for tables, head, router, biases and gains.

    Both are torch's own. Muon's steps are scaled by 0.2 · √max(out, in), to the size of AdamW's, so that one learning
    rate and one weight decay serve both (Liu et al. 2025, arXiv:2502.16982). Stacked matrices (experts) take AdamW.

    Args:
        params: groups of parameters, each with its weight decay.
        lr: learning rate of both.
        momentum, nesterov, ns_steps: Muon's momentum, whether it looks ahead, and its Newton–Schulz iterations.
        betas, eps: AdamW's.
        weight_decay: for groups that state none.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float,
        nesterov: bool,
        ns_steps: Count,
        betas: tuple[float, float],
        eps: Positive,
        weight_decay: float,
    ) -> None:
        given = [group if isinstance(group, dict) else {"params": [group]} for group in params]
        groups = [
            {**group, "params": chosen, "muon": muon}
            for group in given
            for muon in (True, False)
            if (chosen := [p for p in group["params"] if _takes_muon(p) is muon])
        ]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "muon": False})
        mine = {"momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps, "adjust_lr_fn": "match_rms_adamw"}
        inner: dict[bool, tuple[Any, dict[str, Any]]] = {
            True: (Muon, mine),
            False: (AdamW, {"betas": tuple(betas), "eps": eps}),
        }
        self._inner: list[tuple[bool, Optimizer]] = []
        for muon, (make, settings) in inner.items():
            if own := self._groups(muon):
                self._inner.append((muon, make(own, **settings)))
                for group, filled in zip(own, self._inner[-1][1].param_groups, strict=True):
                    group.update(filled)

    def _groups(self, muon: bool) -> list[dict[str, Any]]:
        return [group for group in self.param_groups if group["muon"] is muon]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both on the gradients that are there."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for muon, inner in self._inner:
            # Schedulers and checkpoints write to this optimiser: the inner ones read its groups and share its state.
            inner.param_groups = self._groups(muon)
            inner.state = self.state
            inner.step()
        return loss


def _takes_muon(parameter: nn.Parameter | Tensor) -> bool:
    origin = getattr(parameter, "origin", None)
    if not isinstance(origin, Origin) or parameter.ndim != 2:
        return False
    role = origin.role
    return role.is_matrix and not role.is_embedding and role not in (Role.HEAD, Role.ROUTER)
