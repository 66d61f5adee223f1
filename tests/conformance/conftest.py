from __future__ import annotations

from typing import Any

import pytest

from configs import small


@pytest.fixture(scope="session")
def base() -> dict[str, Any]:
    return small()
