"""The operations for which this machine's processor has instructions: bfloat16, or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError

CPUINFO = Path("/proc/cpuinfo")
"""Where Linux describes the processor."""
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
"""The kernel's names of instructions that multiply matrices of bfloat16, of x86 and of ARM."""


def require_bfloat16(config: Mapping[str, Any]) -> None:
    """Raise UsageError for bfloat16 on a processor without instructions for it, unless `allow=[bf16]` is given.

    There torch converts every number to float32 and back: a step took 32 times as long as one in float32 on a processor
    only with AVX2, and 0.515 of it on one that has them. A processor that says nothing of itself is believed.
    """
    trainer = config["trainer"]
    if trainer["accelerator"] != "cpu" or not trainer["precision"].startswith("bf16") or "bf16" in config["allow"]:
        return
    name, flags = _described()
    if flags and not flags & BFLOAT16:
        raise UsageError(
            f"trainer.precision={trainer['precision']} needs a processor with bfloat16 instructions "
            f"({', '.join(sorted(BFLOAT16))}), but {name} has none, and a step would take some 32 times as long as in "
            "float32; use trainer=cpu, or add allow=[bf16]"
        )


def _described() -> tuple[str, set[str]]:
    """The processor's name, and the instructions that it lists; none where nobody says."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "", set()
    held = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return held.get("model name", "this processor"), set((held.get("flags") or held.get("Features") or "").split())
