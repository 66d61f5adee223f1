"""The text that `python -m benchmarks corpus` measures on, and what a measurement says."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.corpus import write_text
from benchmarks.measurement import Figure


def test_the_text_is_as_long_as_asked_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_text(tmp_path / name, 1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").stat().st_size == 10**6
    words = Counter((tmp_path / "a").read_text(encoding="utf-8").split())
    assert len(words) > 20_000, "enough different words for a vocabulary to be learned from"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_ids_are_measured_first_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_BATCHES", 3)
    monkeypatch.setattr(corpus, "_in_own_process", lambda path, kind, cache: corpus._measure(str(path), kind))
    found = corpus._shards(tmp_path, 2)
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [10**6, 10**6, 20 * 10**6]
    # this process gives back memory of earlier tests meanwhile: what is added may be less than nothing
    assert len(found) == 8 and all(each.met for each in found[1::4]) and all(each.value > 0 for each in found[::4])
    assert [each.unit for each in found] == ["s", "MB", "ms", "ms"] * 2


def test_a_figure_says_what_was_asked_and_whether_it_was_met() -> None:
    assert Figure("memory", 77.3, "MB", "≤ 200", True).line() == "memory: 77.3 MB; asked: ≤ 200: met"
    assert Figure("speed", 0.5, "MB/s", "≥ 1", False).line().endswith("missed")


@pytest.mark.evidence
def test_memory_that_a_process_adds_is_seen_though_the_one_that_started_it_has_more() -> None:
    held = np.ones(300 * 10**6, dtype=np.uint8)
    code = (
        "import numpy as np\nfrom benchmarks.measurement import peak_memory\n"
        "before = peak_memory()\nadded = np.ones(40 * 10**6, dtype=np.uint8)\n"
        "print(peak_memory() - before, added.sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    assert held.sum() == 300 * 10**6 and 35 < float(done.stdout.split()[0]) < 60
