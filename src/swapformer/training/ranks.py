"""The processes that train one trial together, one for each of its devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass
class Ranks:
    """The rank of this process among those that train its trial.

    Attributes:
        rank: which one it is, from 0; rank 0 writes the files.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1
    _group: Any = None

    @classmethod
    def from_environment(cls) -> Ranks:
        """The rank that torchrun has given this process."""
        return cls(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum of every rank's value, the same on all of them; all must ask."""
        if self.count > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on some rank, the same answer on all of them; all must ask."""
        if self.count == 1:
            return flag
        flags = torch.tensor([flag], dtype=torch.int32)
        distributed.all_reduce(flags, group=self._on_cpu())
        return bool(flags)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on the CPU, in the order of ranks and the same on all of them; all must ask."""
        found = [value] * self.count
        if self.count > 1:
            distributed.all_gather_object(found, value, group=self._on_cpu())
        return found

    def _on_cpu(self) -> Any:
        """A separate group on the CPU: a question must not wait for work that a GPU still has to do."""
        if self._group is None:
            self._group = distributed.new_group(backend="gloo")
        return self._group
