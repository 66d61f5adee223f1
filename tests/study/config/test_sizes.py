"""Memory by which a size is refused: asked of the machine, and never of CUDA, which would open in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from swapformer.study.config import sizes


@pytest.mark.parametrize(("says", "bytes_"), [("81559\\n81559", 81559 * 2**20), ("[N/A]", 2.0**44), ("", 2.0**44)])
def test_the_memory_of_a_gpu_is_what_its_driver_says(
    says: str, bytes_: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "nvidia-smi"
    stub.write_text(f"#!/bin/sh\nprintf '{says}'\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("CUDA was asked"))
    sizes.memory.cache_clear()
    assert sizes.memory("gpu") == bytes_
    sizes.memory.cache_clear()
