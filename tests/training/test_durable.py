"""What a checkpoint stands behind is on the disk before it is, and the checkpoint before the next one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swapformer.study.config.compose import compose
from swapformer.training.fit import fit

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[]", "task.batch_size=8", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=1", "budget.steps=4", "eval.every=4", "eval.batches=1"),
    *("eval.final_batches=1", "checkpoint_every=2", "log_every=1"),
]


def test_a_checkpoint_is_synced_with_its_folder_and_after_the_rows_that_it_stands_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bytes]] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if tmp_path in (path, *path.parents):
            synced.append((path.name, path.read_bytes() if path.name == "metrics.csv" else b""))

    monkeypatch.setattr(os, "fsync", note)
    fit(compose(TINY), tmp_path)
    names = [name.rpartition(".")[0] if name.startswith(".tmp-items") else name for name, _ in synced]
    items = [".tmp-items.npz", tmp_path.name]  # after the last evaluation
    begun = ["metrics.tmp", tmp_path.name]
    assert names == [*begun, *["metrics.csv", "last.tmp", "checkpoints"] * 2, *items]
    first, last = (content for name, content in synced if name == "metrics.csv")
    assert b"\n2,train/loss" in first and b"\n3,train/loss" not in first and b"\n4,train/loss" in last
