"""Models of a user's own, plain torch, and some that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class GPT(nn.Module):
    """A small causal model: a table of positions, layers of torch's own, a head."""

    def __init__(self, vocab_size: int, max_len: int, width: int = 32, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(vocab_size, width), nn.Embedding(max_len, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, 0.1, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocab_size)

    def states(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x: Tensor = self.symbols(ids) + self.places(torch.arange(length, device=ids.device))
        future = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=future)
        return x

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.states(ids))
        return out


class WithLogits(GPT):
    """Answers with an object, as models of Hugging Face do."""

    def forward(self, ids: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(ids))


class Grouped(GPT):
    """Makes its optimiser's groups itself."""

    def parameter_groups(self, optim: dict[str, Any]) -> Iterable[dict[str, Any]]:
        head = list(self.head.parameters())
        rest = [held for name, held in self.named_parameters() if not name.startswith("head.")]
        yield {"params": rest, "weight_decay": optim["weight_decay"]}
        yield {"params": head, "lr": optim["lr"] / 10, "weight_decay": 0.0}


class Forgetful(GPT):
    """Makes groups that leave its head out."""

    def parameter_groups(self, optim: dict[str, Any]) -> Iterable[dict[str, Any]]:
        yield {"params": [held for name, held in self.named_parameters() if not name.startswith("head.")]}


class OnePlace(GPT):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids)[:, -1:]


class Ahead(GPT):
    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.states(ids) + self.symbols(ids).mean(1, keepdim=True))
        return out


class AheadByAZeroBranch(GPT):
    """Its branch in both directions starts at zero, as ReZero's do."""

    def __init__(self, vocab_size: int, max_len: int) -> None:
        super().__init__(vocab_size, max_len)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.states(ids) + self.scale * self.symbols(ids).mean(1, keepdim=True))
        return out


class AheadOfAZeroHead(Ahead):
    def __init__(self, vocab_size: int, max_len: int) -> None:
        super().__init__(vocab_size, max_len)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


class AheadInPatches(GPT):
    """Each place is told of its whole patch of four."""

    def forward(self, ids: Tensor) -> Tensor:
        rows, length = ids.shape
        whole = -(-length // 4) * 4
        symbols = nn.functional.pad(self.symbols(ids), (0, 0, 0, whole - length))
        patches = symbols.unflatten(1, (whole // 4, 4)).mean(2, keepdim=True).expand(rows, whole // 4, 4, -1)
        out: Tensor = self.head(self.states(ids) + patches.flatten(1, 2)[:, :length])
        return out


class Waiting(GPT):
    """Reads a value from the device, and sums up by an operation that has no deterministic kernel there."""

    def forward(self, ids: Tensor) -> Tensor:
        scale = 1.0 if ids.max().item() >= 0 else 0.0
        return super().forward(ids) + scale * self.states(ids).cumsum(1).mean(-1, keepdim=True)


class Restless(GPT):
    def forward(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            self.head.bias += 0.1
        return super().forward(ids)


class Asking(GPT):
    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        return super().forward(ids)


class Empty(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.size = vocab_size

    def forward(self, ids: Tensor) -> Tensor:
        return torch.zeros(*ids.shape, self.size)


class Unmade(GPT):
    def __init__(self, vocab_size: int) -> None:
        raise ArithmeticError("no width for this")


class Unsaved(GPT):
    """Has a weight that it registers nowhere."""

    def __init__(self, vocab_size: int, max_len: int) -> None:
        super().__init__(vocab_size, max_len)
        self.hidden = [torch.randn(vocab_size)]

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + self.hidden[0].to(ids.device)


def no_model(vocab_size: int) -> None:
    return None
