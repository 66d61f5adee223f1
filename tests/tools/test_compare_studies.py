"""`swapformer report A B`: the settings in which two studies differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swapformer.results.config import differences
from swapformer.results.manifest import Manifest
from swapformer.tools.compare_studies import _config


def baseline(folder: Path, **task: Any) -> dict[str, object]:
    manifest = Manifest("x", "a", {"a": ()}, (0,), ("val/loss",), (), shared_config={"task": task})
    return _config(manifest, folder)


@pytest.mark.parametrize(("size", "same"), [(16, True), (32, False)])
def test_an_older_study_was_evaluated_in_batches_as_large_as_those_of_training(
    size: int, same: bool, tmp_path: Path
) -> None:
    older, newer = baseline(tmp_path, batch_size=16), baseline(tmp_path, batch_size=16, eval_batch_size=size)
    assert (differences(older, newer) == {}) == same
