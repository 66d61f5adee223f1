"""Random damage: every command ends in one clear line, no answer is wrong, and the store stays as it was."""

from __future__ import annotations

import pytest

from evidence.fuzz import fuzz, table

COMMANDS = 600


@pytest.mark.evidence
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1])
def test_random_inputs_never_end_in_a_traceback_a_wrong_answer_or_a_changed_store(seed: int) -> None:
    found, faults = fuzz(COMMANDS, seed)
    print(table(found))
    assert faults == []
