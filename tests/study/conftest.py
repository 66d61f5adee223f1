"""What tests of launchers and trials are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.results.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "runs")
    found.prepare()
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"
