"""Peak memory of blocked attention: `python -m swapformer.bench.memory LENGTH …` prints megabytes for each length.

The peak of a process never falls, so lengths rise, and each counts from what the process held before the first.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from swapformer.bench.attention import WINDOW, attending


def peaks(lengths: Sequence[int]) -> list[float]:
    """Megabytes above what the process held after a short sequence, for each length."""
    assert list(lengths) == sorted(lengths), "the peak of a process never falls"
    found = []
    for length in (256, *lengths):
        act = attending(["model/kernel=blocked", *WINDOW], length)
        assert act is not None, "a window has blocks"
        act()
        found.append(peak_bytes() / 1e6)
    return [peak - found[0] for peak in found[1:]]


def peak_bytes() -> int:
    """What this process has held at most."""
    status = Path("/proc/self/status")
    if status.exists():  # the other count of Linux begins with what the parent process held
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts bytes


if __name__ == "__main__":
    print(json.dumps(peaks([int(word) for word in sys.argv[1:]])))
