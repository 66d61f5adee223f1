"""Oracles without the casts that they make on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor


@contextmanager
def casts_lifted() -> Iterator[None]:
    """Casts to float32 become casts to float64, also those that are made while a model is built."""
    single = torch.float32
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(single)
