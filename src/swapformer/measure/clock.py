"""The clock of measurements, the bytes that computations hold, and the work of other processes meanwhile."""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from swapformer.results.shapes import Table

LEAST = 0.005
"""Seconds that the calls of a sample take together, so that the clock's own grain does not count."""
MOST = 1000
"""Calls of a sample at most."""
NOISY = (0.1, 0.25, 0.5, 1.0)
"""Shares of its median by which the middle half of a timing's samples may spread; a note says which was passed."""
BESIDE = 0.1
"""Cores that others may keep busy before a note says so."""


class Clock:
    """Times computations on a device, whose queue it waits for, and keeps how far the samples of each timing spread.

    Args:
        device: where the computations run.
        now: seconds from any beginning.

    Attributes:
        spreads: metric → distance of the quartiles of its samples, over their median.
    """

    def __init__(self, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self._cuda, self._now = device.type == "cuda", now
        self.spreads: dict[str, float] = {}

    def read(self) -> float:
        """The time now, when all that was asked of the device is done."""
        if self._cuda:
            torch.cuda.synchronize()
        return self._now()

    def timed(self, act: Callable[[], object]) -> float:
        """Seconds of one call."""
        start = self.read()
        act()
        return self.read() - start

    def sample(
        self, act: Callable[[], Mapping[str, float]], warm_up: int, repeats: int, most: int = MOST
    ) -> dict[str, float]:
        """Median seconds by metric over `repeats` samples, after `warm_up` calls that do not count.

        Args:
            act: computes once, and says how many seconds each metric took.
            warm_up: calls, one at least.
            repeats: samples; each is the mean of as many calls as take `LEAST` seconds, `most` of them at most.
        """
        for _ in range(max(warm_up, 1)):
            taken = sum(act().values())
        calls = min(max(round(LEAST / max(taken, 1e-9)), 1), most)
        samples = [_means([act() for _ in range(calls)]) for _ in range(repeats)]
        found = {}
        for metric in samples[0]:
            values = [sample[metric] for sample in samples]
            found[metric] = median(values)
            self.spreads[metric] = spread(values)
        return found

    @property
    def shapes(self) -> dict[str, Table]:
        """The spread of each timing, for the report."""
        if not self.spreads:
            return {}
        rows = [(metric, f"{100 * each:.1f} %") for metric, each in self.spreads.items()]
        caption = "Distance between the quartiles of a timing's samples, over their median."
        return {"spread": Table("Spread of the repeats", caption, ("timing", "spread"), rows, per_seed=True)}

    @property
    def note(self) -> str | None:
        """The spread of the samples of the worst timing, in words that few trials say differently; None if little."""
        worst = max(self.spreads.values(), default=0.0)
        passed = [each for each in NOISY if worst > each]
        if not passed:
            return None
        return f"the repeats of a timing spread by more than {100 * passed[-1]:.0f} % of its median, between quartiles"


def _means(calls: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {metric: fmean(call[metric] for call in calls) for metric in calls[0]}


def spread(values: Sequence[float]) -> float:
    """The distance between the quartiles of some samples, over their median; 0 of a single one."""
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0


def hold_memory() -> None:
    """Have the GNU C library keep all memory that this process frees, instead of giving it back to the system."""
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, mmap_max = -1, -4  # as malloc.h numbers them
    assert mallopt(mmap_max, 0) and mallopt(trim_threshold, 2**31 - 1), "mallopt refuses"


def peak_bytes(act: Callable[[], object], device: torch.device) -> int:
    """The most bytes that tensors made in a call hold at a time, those that it returns among them.

    On a GPU this is what the allocator gives out. On a CPU the tensors that torch's operations return are counted, and
    not the buffers within an operation, such as those of fused attention, which are as large as a block.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        act()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with LiveBytes() as live:
        act()
    return live.peak


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations within it make, for as long as each lives.

    Attributes:
        now: bytes that live now.
        peak: the most that lived at a time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        found = func(*args, **kwargs)
        for each in tree_leaves(found):
            if isinstance(each, Tensor):
                storage = each.untyped_storage()
                if storage._cdata not in given and storage._cdata not in self._known:
                    self._hold(storage)
        return found

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()

        def free(_: object) -> None:
            self._known.pop(key, None)
            self.now -= size

        self._known[key] = weakref.ref(storage, free)
        self.now += size
        self.peak = max(self.peak, self.now)


class OtherWork:
    """The cores that other processes keep busy from its beginning on, as Linux counts; None elsewhere."""

    def __init__(self) -> None:
        self._start = self._read()

    def _read(self) -> tuple[float, float] | None:
        """Seconds of all cores that were spent by others, and seconds on the clock."""
        try:
            line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
        except OSError:
            return None
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, line.split()[1:9])
        all_work = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        return all_work - time.process_time(), time.monotonic()

    def cores(self) -> float | None:
        """The number of cores that others kept busy on average."""
        now = self._read()
        if self._start is None or now is None or now[1] - self._start[1] < 0.5:  # the kernel counts hundredths
            return None
        return max(now[0] - self._start[0], 0.0) / (now[1] - self._start[1])

    @property
    def note(self) -> str | None:
        """A remark that a reader must know; None where others did next to nothing."""
        busy = self.cores()
        if busy is None or busy < BESIDE:
            return None
        return (
            f"other processes kept about {max(round(2 * busy) / 2, BESIDE):g} of {os.cpu_count()} cores busy beside it"
        )
