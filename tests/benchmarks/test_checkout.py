"""The benchmark of two checkouts: both train, and a folder that is no checkout is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checkout import HERE, step_against
from swapformer.errors import UsageError

TINY = ["model/size=nano", "task=copy", "task.batch_size=2"]


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a folder with src/swapformer"):
        step_against(str(tmp_path), TINY, 1, 1)


@pytest.mark.evidence
def test_a_checkout_against_itself_takes_turns() -> None:
    (ratio,) = step_against(str(HERE), TINY, 2, 3)
    assert ratio.rounds == 3 and ratio.ours > 0 and ratio.theirs > 0


@pytest.mark.evidence
def test_a_side_that_cannot_train_is_said_so() -> None:
    with pytest.raises(UsageError, match="must train the same, but it ended"):
        step_against(str(HERE), ["model/size=nowhere"], 1, 1)
