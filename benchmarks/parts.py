"""`python -m benchmarks parts`: what parts cost against their twins, group by group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from benchmarks.attention import blocked, kernels, linear, memory
from benchmarks.decoder import bf16, decoder
from benchmarks.norms import norms
from benchmarks.slope import Slope
from swapformer.errors import UsageError
from swapformer.tools.cost.ratio import Ratio

Group = Callable[[int, str], Iterator[Ratio] | Iterator[Slope]]
"""(rounds, device) → what was found."""

MEASURED: Mapping[str, Group] = {
    group.__name__: group for group in (kernels, blocked, memory, linear, decoder, norms, bf16)
}
ON_CUDA = ("kernels", "decoder", "norms")
"""Groups that are measured on a CUDA device too: the others are about a CPU."""


def measure(groups: Sequence[str], device: str | None, rounds: int) -> Iterator[Ratio | Slope]:
    """Every finding of the groups, or of all, as it is made, with two threads.

    Raises:
        UsageError: for a device that is not there, or a group that is about a CPU alone.
    """
    if device == "cuda" and (unfit := [group for group in groups if group not in ON_CUDA]):
        raise UsageError(
            f"--device cuda must be given for {', '.join(ON_CUDA)} alone, not for {', '.join(unfit)}, which are about "
            "a CPU"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda needs a CUDA device, but this machine has none; leave the option out.")
    devices = [device] if device else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    for where in devices:
        for group in groups or MEASURED:
            if where == "cpu" or group in ON_CUDA:
                yield from MEASURED[group](rounds, where)
