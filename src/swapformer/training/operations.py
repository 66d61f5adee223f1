"""What a training step computes and keeps, and how near it comes to the peak of its device.

Operations and bytes are counted on the meta device, where tensors have shapes and no data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from swapformer.interface import MAIN, Interface
from swapformer.model.plan import ModelPlan
from swapformer.model.topology import Topology
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan, factory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def built(config: Mapping[str, Any], asked: Interface | int, dtype: str) -> tuple[Topology, ModelPlan]:
    """The model on the meta device, and its plan."""
    with torch.device("meta"):
        plan = build_plan(config, asked)
        model: Topology = factory(config["model"]["topology"])(plan).to("meta", DTYPES[dtype])
    return model, plan


def batch_cost(model: Topology, given: Sequence[Any], length: int, kv_cache: int | None) -> dict[str, int | None]:
    """The operations and bytes of one training batch [batch, length], whose arguments of a forward pass are `given`.

    The model is on the meta device, in the precision that activations are counted in.

    Returns:
        length: tokens of a sequence.
        forward, backward: floating-point operations of matrix products and triangular systems, a multiplication and an
            addition counted as two; everything else (norms, softmax, activations) is left out, as is usual.
        activations: bytes that the forward keeps for the backward, without the parameters.
        kv_cache: bytes that generation keeps of `length` tokens, a recurrent state included; None for an attention
            that has neither.
    """
    saved, counter = _SavedBytes(model), partial(FlopCounterMode, display=False, custom_mapping=_MORE_OPERATIONS)
    with counter() as forward, saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        last: Tensor = model(*given)
        total = torch.stack([last.sum(), *(early[MAIN].sum() for early in model.take_early_answers())]).sum()
    with counter() as backward:
        total.backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    return {
        "length": length,
        "forward": forward.get_total_flops(),
        "backward": backward.get_total_flops(),
        "activations": saved.bytes,
        "kv_cache": kv_cache,
    }


def _triangular(system: Sequence[int], right: Sequence[int], *_: Any, **__: Any) -> int:
    """Substitution: each of n unknowns of a right-hand side needs a product with those before it, n²/2 in all."""
    return int(prod(right) * system[-1])


_MORE_OPERATIONS = {torch.ops.aten.linalg_solve_triangular: _triangular}
"""Operations that torch's own counter leaves out."""


class _SavedBytes:
    """Counts the bytes of distinct storages that the backward pass needs, without the parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._seen: set[Any] = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        self._alive: list[Tensor] = []  # a freed storage's address may be given to another
        self.bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            self._alive.append(tensor)
            self.bytes += storage.nbytes()
        return tensor


PEAKS: Mapping[str, tuple[float, float, float]] = {
    "B200": (2250, 1125, 75),
    "H200": (989.4, 494.7, 66.9),
    "H100 PCIe": (756, 378, 51.2),
    "H100 NVL": (835, 417, 60),
    "H100": (989.4, 494.7, 66.9),
    "A100": (312, 156, 19.5),
    "V100": (125, math.nan, 15.7),
    "L40S": (362, 183, 91.6),
    "L4": (121, 60, 30.3),
    "A10": (125, 62.5, 31.2),
    "T4": (65, math.nan, 8.1),
    "RTX 4090": (165.2, 82.6, 82.6),
    "RTX 3090": (71, 35.6, 35.6),
}
"""Words of a device's name → its peak in TFLOP/s with 16-bit numbers, with TF32 and with float32, of dense products
summed in float32, as NVIDIA's data sheets have them. A name belongs to the first that it contains."""


def peak(device: str, precision: str) -> float:
    """The operations a second that a device could do at most, by its name and Lightning's precision.

    Not known (nan) are float64, a part of a device (MIG, GRID), a laptop's and what the table does not name. Float32
    counts as TF32 where torch may use it.
    """
    words = set(device.replace("-", " ").split())
    found = next((peaks for name, peaks in PEAKS.items() if words.issuperset(name.split())), None)
    if found is None or words & {"MIG", "GRID", "Laptop"} or precision.startswith("64"):
        return math.nan
    half, tf32, single = found
    if precision.startswith("32"):
        return 1e12 * (tf32 if torch.get_float32_matmul_precision() != "highest" else single)
    return 1e12 * half


def device_name(device: torch.device) -> str:
    """The name of a GPU; empty for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def least_seconds(config: Mapping[str, Any], task: Task, rows: int, device: str) -> float:
    """The seconds that a step of `rows` sequences would take at the peak of its devices; nan where that is not known.

    Divided by the seconds that it took, that is the model FLOPs utilisation (Chowdhery et al. 2022, arXiv 2204.02311,
    appendix B). Operations are those of the model: what gradient checkpointing computes again is left out.
    """
    trainer = config["trainer"]
    most = peak(device, str(trainer["precision"])) * trainer["devices"]
    if math.isnan(most):
        return math.nan
    try:
        model, _ = built(config, task.interface, "float32")
        found = batch_cost(model, model.example(rows, task.train_length, "meta"), task.train_length, None)
    except Exception:  # what it does depends on the data, or a part of the user's own does not count on meta
        return math.nan
    return (int(found["forward"] or 0) + int(found["backward"] or 0)) / most
