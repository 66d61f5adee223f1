"""A GPT and its training loop as in nanoGPT (Karpathy 2022): a bare, direct implementation to compare with.

One projection for queries, keys and values; torch's fused causal attention; learned positions; a tied head; blocks at
random offsets of one array of tokens; AdamW in two groups; a clipped gradient. No dropout, no biases.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional


class _LayerNorm(nn.Module):
    """torch's layer norm without β, which torch's module did not offer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class _CausalSelfAttention(nn.Module):
    """Fused attention whose queries, keys and values come from one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.resid_dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.size()
        q, k, v = (
            part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(self.width, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(rows, length, width)))


class _MLP(nn.Module):
    """Two matrices with GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class _Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = _LayerNorm(width), _CausalSelfAttention(width, heads)
        self.ln_2, self.mlp = _LayerNorm(width), _MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    """Token ids and targets [B, T] → logits [B, T, V] and the mean loss."""

    def __init__(self, layers: int, heads: int, width: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(0.0)
        self.h = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.ln_f = _LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 1))

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)
        x = self.drop(self.wte(ids) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class NanoGPTLoop:
    """nanoGPT's training loop; a call takes one step.

    `model`: the GPT to train. `tokens`: the ids of a text. `rows`, `length`: sizes of a batch. `device`: cpu or cuda.
    """

    def __init__(self, model: NanoGPT, tokens: NDArray[np.uint16], rows: int, length: int, device: str = "cpu") -> None:
        self.model, self.tokens, self.rows, self.length, self.device = model.to(device), tokens, rows, length, device
        decaying = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
        others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
        self.step = 0
        self.batch = self._batch()

    def _batch(self) -> tuple[Tensor, Tensor]:
        offsets = torch.randint(len(self.tokens) - self.length, (self.rows,))
        x, y = (
            torch.stack(
                [torch.from_numpy(self.tokens[i + ahead : i + ahead + self.length].astype(np.int64)) for i in offsets]
            )
            for ahead in (0, 1)
        )
        return x.to(self.device), y.to(self.device)

    def __call__(self) -> None:
        rate = 1e-4 + 0.5 * (1 + math.cos(math.pi * min(self.step, 2000) / 2000)) * 9e-4
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        _, loss = self.model(*self.batch)
        self.batch = self._batch()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.step % 10 == 0:
            loss.item()
        self.step += 1
