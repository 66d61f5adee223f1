"""Random damage: every command ends in one clear line, and the store stays as it was."""

from __future__ import annotations

import pytest

from evidence.fuzz import fuzz

MINUTES = 3


@pytest.mark.evidence
@pytest.mark.timeout(60 * MINUTES + 600)
@pytest.mark.parametrize("seed", [0, 1])
def test_random_inputs_never_end_in_a_traceback_or_a_changed_store(seed: int) -> None:
    found, faults = fuzz(MINUTES, seed)
    print({kind: dict(counts) for kind, counts in found.items()})
    assert faults == []
