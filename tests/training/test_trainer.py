"""Lightning's strategy of a trial."""

from __future__ import annotations

import pytest
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from swapformer.study.config.compose import compose
from swapformer.training.ranks import Ranks
from swapformer.training.trainer import strategy


class Skips(nn.Linear):
    """Leaves its weights out of some steps."""

    skips_weights = True


@pytest.mark.parametrize(("part", "sought"), [(nn.Linear(2, 2), False), (Skips(2, 2), True)])
def test_ddp_looks_for_weights_that_a_step_left_out_only_where_a_part_says_so(part: nn.Module, sought: bool) -> None:
    config = compose(["task=copy", "trainer.devices=2", "trainer.strategy=ddp"])
    found = strategy(config, Ranks(0, 2), nn.Sequential(nn.LayerNorm(2), part))
    assert isinstance(found, DDPStrategy) and found._ddp_kwargs == {"find_unused_parameters": sought}
