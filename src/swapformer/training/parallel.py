"""How the devices of a trial share it: every one holds all weights (ddp), or its part of them (fsdp)."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from swapformer.training.assemble import Config
from swapformer.training.parameter_selection import stacks
from swapformer.training.ranks import Ranks

STRATEGIES = ("ddp", "fsdp")


def strategy(config: Config, ranks: Ranks) -> Strategy | str:
    """What Lightning trains with.

    Both average gradients over the ranks. Under ddp parameters that a step does not use count as zero. Under fsdp a
    checkpoint holds the whole state in one file.
    """
    name = config["trainer"]["strategy"]
    if name is None:
        return "auto"
    if name == "ddp":
        return DDPStrategy(find_unused_parameters=True)
    if name == "fsdp":
        return ModelParallelStrategy(ranks.count, 1, save_distributed_checkpoint=False)
    raise ValueError(f"`trainer.strategy` must be null or one of {', '.join(STRATEGIES)}, but it is {name!r}.")


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Leave on each rank its part of every weight; layers are gathered one at a time when they compute (ZeRO-3).

    Weights keep their names, but not what was noted on them. Nothing happens to a model that is sharded already.
    """
    if isinstance(model, FSDPModule):
        return
    for stack in stacks(model).values():
        for layer in stack.layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "answers")


def data_mesh(meshes: Any) -> DeviceMesh:
    """The ranks that share the weights, of what Lightning has set up."""
    mesh: DeviceMesh = meshes["data_parallel"]
    return mesh
