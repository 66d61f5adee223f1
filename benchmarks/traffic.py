"""Launches and bytes of a training step, counted on fake tensors, and the least time that a device needs for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from benchmarks.measurement import Figure
from swapformer.interface import MAIN, Interface
from swapformer.study.config.compose import compose
from swapformer.study.config.cost import step_peak
from swapformer.training.inputs import total_loss
from swapformer.training.operations import built
from swapformer.training.utilisation import peak

BANDWIDTH = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.04e12}
"""Bytes a second of a device's memory, as NVIDIA's data sheets have them."""
REACHED, PRODUCTS = 0.8, 0.65
"""Shares of the bandwidth and of the peak of products that large steps reach."""
LENGTH, ROWS, SYMBOLS = 1024, 16, 50_257
GPT2 = (
    "model.num_layers=12",
    "model.d_model=768",
    "model.num_heads=12",
    f"model.max_len={LENGTH}",
    "task=text",
    "model/kernel=sdpa",
)
MODELS: Mapping[str, tuple[str, ...]] = {
    "learned, layernorm, gelu": ("model/position=learned",),
    "rope, rmsnorm, glu": ("model/position=rope", "model/norm=rmsnorm", "model/ffn=glu", "model.bias=false"),
}
BEFORE = {"learned, layernorm, gelu": (888, 81.6), "rope, rmsnorm, glu": (1504, 132.4)}
"""Launches and gigabytes, counted here, when each product cast its input, rotations took five operations and the loss
was computed in one piece."""
_FREE = ("device", "empty", "new_empty", "detach", "alias", "_unsafe_view", "_reshape_alias", "lift_fresh")
_CHOSEN = {"gather": 2, "embedding": 2, "scatter_": 3, "new_zeros": 1}
"""Operations that touch only some rows: how often as many bytes as their smallest argument or result they move."""


class Traffic(TorchDispatchMode):
    """Counts what reads or writes memory: `launches`, and the `bytes` of all but products of matrices.

    The norm of rmsnorm, which CUDA does in one, is counted as several.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if not func.is_view and not name.startswith(_FREE):
            self.launches += 1
            if func.overloadpacket not in flop_registry:
                there = tree_leaves((args, made))  # `out=` is what is made
                sizes = [each.numel() * each.element_size() for each in there if isinstance(each, Tensor)]
                total = sum(sizes) if name not in _CHOSEN else _CHOSEN[name] * min(sizes)
                self.bytes += total * 3 // 4 if name in ("_softmax", "_log_softmax") else total
        return made


def count(model: str) -> tuple[int, int, int, int]:
    """Launches, bytes, operations and parameters of a step of 124 M parameters in bf16-mixed, optimiser aside."""
    config, asked = compose([*GPT2, *MODELS[model]]), Interface(SYMBOLS)
    made, _ = built(config, asked, "float32")
    traffic, operations = Traffic(), FlopCounterMode(display=False)
    with FakeTensorMode(allow_non_fake_inputs=True):
        step = made.to_empty(device="cpu").train()
        given, targets = step.example(ROWS, LENGTH, "cpu"), torch.zeros(ROWS, LENGTH, dtype=torch.int64)
        with operations, traffic:
            with torch.autocast("cpu", torch.bfloat16):
                loss = total_loss(asked.readouts[MAIN], step.answers(*given)[MAIN], targets)
            loss.backward()  # type: ignore[no-untyped-call]
    parameters = sum(each.numel() for each in step.parameters())
    return traffic.launches, traffic.bytes, operations.get_total_flops(), parameters


def bounds(device: str) -> Iterator[Figure]:
    """The counts of both models, held against those of before, and the least time of a step on a device."""
    for model, (launches_before, bytes_before) in BEFORE.items():
        launches, moved, operations, parameters = count(model)
        optimiser = 28 * parameters + 12 * parameters  # fused Adam on 4 numbers a weight; norm and scale of clipping
        most = peak(device, "bf16-mixed")
        seconds = operations / (PRODUCTS * most) + (moved + optimiser) / (REACHED * BANDWIDTH[device])
        name = f"124 M, 16 × 1024, bf16-mixed, {model}"
        yield Figure(f"{name}: launches", launches, "", f"≤ {launches_before}", launches <= launches_before)
        yield Figure(f"{name}: moved", moved / 1e9, "GB", f"≤ .75 of {bytes_before:g}", moved <= 0.75e9 * bytes_before)
        share = operations / most / seconds
        yield Figure(f"{name}: a step takes at least", 1e3 * seconds, f"ms, {share:.2f} of the peak, on an {device}")
        config = compose([*GPT2, *MODELS[model], "trainer.precision=bf16-mixed"])
        task: Any = SimpleNamespace(interface=Interface(SYMBOLS), train_length=LENGTH)
        yield Figure(f"{name}: held at its peak", step_peak(config, task, ROWS) / 2**30, "GiB")
