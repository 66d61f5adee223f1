"""The GPUs of this machine, asked of the driver's own tool: no torch is needed, and CUDA is left to the trials."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from swapformer.errors import UsageError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_NOTHING = ("", "-1", "NoDevFiles")  # the last is SLURM's
_GPU = re.compile(r"GPU (\d+): ")
_PARTITION = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def visible_gpus() -> list[str]:
    """The GPUs that a process started here would see, as CUDA_VISIBLE_DEVICES spells them; none where none is found."""
    given = os.environ.get(VISIBLE)
    return _from_driver() if given is None else _listed(given)


def chosen_gpus(wanted: Sequence[int | str] | None) -> list[str]:
    """The GPUs that trials may use: those named by `wanted`, or all that are visible.

    A machine whose driver has no tool says nothing of its GPUs: there, what is named is believed.

    Raises:
        UsageError: if one of `wanted` is not visible, or is named twice.
    """
    found = visible_gpus()
    if wanted is None:
        return found
    names = [str(name) for name in wanted]
    known = found or VISIBLE in os.environ
    strangers = [name for name in names if known and name not in found]
    if strangers or not names or len(set(names)) < len(names):
        raise UsageError(
            f"gpus must name GPUs that are visible here ({', '.join(found) or 'none'}), each once, but {names} is given"
        )
    return names


def _listed(given: str) -> list[str]:
    """CUDA ignores what stands behind the first entry that is none."""
    names = [name.strip() for name in given.split(",")]
    return names[: next((place for place, name in enumerate(names) if name in _NOTHING), len(names))]


def _from_driver() -> list[str]:
    """Indices in the order of the bus; of a GPU that is partitioned, its partitions."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if gpu := _GPU.match(line):
            found[gpu[1]] = []
        elif (part := _PARTITION.match(line)) and found:
            found[next(reversed(found))].append(part[1])
    return [name for gpu, parts in found.items() for name in parts or [gpu]]
