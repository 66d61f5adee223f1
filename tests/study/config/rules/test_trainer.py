"""The words that rules know for trainers, against what trains."""

from swapformer.study.config.rules.trainer import PROFILERS
from swapformer.training import trainer


def test_the_rules_know_the_profilers_that_trials_take() -> None:
    """They are said twice, since what trains brings Lightning, and a wrong word is refused without."""
    assert tuple(trainer.PROFILERS) == PROFILERS
