"""The words that rules know for trainers, against what trains."""

from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import nn

from swapformer.study.config.rules.trainer import PROFILERS, STRATEGIES
from swapformer.training import trainer
from swapformer.training.ranks import Ranks


def test_the_rules_know_the_profilers_that_trials_take() -> None:
    """They are said twice, since what trains brings Lightning, and a wrong word is refused without."""
    assert tuple(trainer.PROFILERS) == PROFILERS


def test_each_strategy_that_the_rules_know_is_lightnings_of_that_name() -> None:
    made = {name: type(trainer.strategy({"trainer": {"strategy": name}}, Ranks(), nn.Module())) for name in STRATEGIES}
    assert made == {"ddp": DDPStrategy, "fsdp": ModelParallelStrategy}
