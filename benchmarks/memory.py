"""Peak memory of blocked attention: `python -m benchmarks.memory LENGTH …` prints megabytes for each length.

The peak of a process never falls, so lengths rise, and each counts from what the process held before the first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from benchmarks.attention import WINDOW, attending
from swapformer.tools.cost.peak_memory import peak


def peaks(lengths: Sequence[int]) -> list[float]:
    """Megabytes above what the process held after a short sequence, for each length."""
    assert list(lengths) == sorted(lengths), "the peak of a process never falls"
    found = []
    for length in (256, *lengths):
        act = attending(["model/kernel=blocked", *WINDOW], length)
        assert act is not None, "a window has blocks"
        act()
        found.append(peak())
    return [held - found[0] for held in found[1:]]


if __name__ == "__main__":
    print(json.dumps(peaks([int(word) for word in sys.argv[1:]])))
