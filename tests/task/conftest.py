"""A cache of its own for every test of the tasks, so that none sees the user's or another's."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SWAPFORMER_CACHE", str(folder))
    return folder
