"""Parameters, operations and bytes of a configuration, counted before anything is trained.

Models are built on the meta device, where tensors have shapes and no data.
"""

from __future__ import annotations

import json
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from swapformer.errors import UsageError
from swapformer.interface import Interface, Readout
from swapformer.model.attention.common import cached_positions
from swapformer.model.layers import origin_of
from swapformer.model.plan import ModelPlan
from swapformer.model.stack import stacks
from swapformer.model.topology import Topology
from swapformer.results.arms import Measure
from swapformer.results.config import command_of
from swapformer.study.config.pairs import attended_pairs
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan, count_parameters, encoder_node, factory, rebuild_task
from swapformer.training.inputs import total_loss
from swapformer.training.operations import DTYPES, batch_cost, built, kind_of_device

TASKS: dict[str, Task] = {}
"""The tasks that were built, by `task_key`."""

T = TypeVar("T")


def task_of(config: Mapping[str, Any]) -> Task:
    """The task of a configuration, as it was when the configuration was composed. Raises what `rebuild_task` does."""
    key = task_key(config)
    if key not in TASKS:
        TASKS[key] = rebuild_task(config)
    return TASKS[key]


def task_key(config: Mapping[str, Any]) -> str:
    """Settings and data: a file that has changed makes another task."""
    return json.dumps([config["task"], config["data"]], sort_keys=True)


def once(counted: Callable[..., T]) -> Callable[..., T]:
    """Remember a count by the configuration's model, task and accelerator, since it depends only on them."""
    known: dict[str, T] = {}

    def remembered(config: Mapping[str, Any], *more: str) -> T:
        on = config.get("trainer", {}).get("accelerator", "cpu")
        key = json.dumps([config["model"], config["task"], on, more], sort_keys=True)
        if key not in known:
            known[key] = counted(config, *more)
        return known[key]

    return remembered


def cost(config: Mapping[str, Any], what: Measure) -> int:
    """One cost of a resolved configuration.

    `params`: all parameters, tied ones once. `flops`: forward and backward of one training sequence. `kv_bytes`:
    the cache of generation for one training sequence in float32. `pairs`: see `attended_pairs`.

    Raises:
        UsageError: where it cannot be counted, there is no cache, or nothing is attended to.
        ValueError: where a part refuses its settings.
    """
    _require_model(config)
    task = task_of(config)
    if what == "flops":
        found = measure(config, task.interface, 1, [task.train_length], "float32")["lengths"][0]
        return int(found["forward"] + found["backward"])
    if what == "pairs":
        return attended_pairs(config, task)
    model, plan = built(config, task.interface, "float32")
    if what == "params":
        return count_parameters(model)["total"]
    kept = kept_bytes(plan, task.train_length, torch.float32) if model.stack.can_cache else None
    if kept is None:
        raise UsageError("an attention of this model keeps nothing for generation, so there are no kv_bytes to match")
    return kept


def flops_of_a_step(config: Mapping[str, Any]) -> int:
    """Floating-point operations of one optimiser step, forward and backward, of matrix products."""
    _require_model(config)
    task = task_of(config)
    rows = task.train_batch(config["data_seed"], 0).inputs.shape[0]
    found = measure(config, task.interface, rows, [task.train_length], "float32")["lengths"][0]
    return int(found["forward"] + found["backward"])


def _require_model(config: Mapping[str, Any]) -> None:
    if command_of(config):
        raise UsageError("what the model of a command costs is not known here; leave out `match` and budgets by cost")


def seconds_of_a_step(config: Mapping[str, Any]) -> float:
    """Seconds of a training step on one core of this machine, from forward and backward passes; nan where it fails.

    What a trainer adds to each step, and the optimiser, are counted as half of it and two milliseconds.
    """
    task, threads = task_of(config), torch.get_num_threads()
    rows = task.train_batch(config["data_seed"], 0).inputs.shape[0]
    try:
        torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]):
            model: Topology = factory(config["model"]["topology"])(build_plan(config, task.interface))
            given, took = model.example(rows, task.train_length, "cpu"), math.inf
            began, passes = time.perf_counter(), 0
            while passes < 2 or (passes < 10 and time.perf_counter() - began < 0.5):  # the first ones are slow
                start = time.perf_counter()
                model(*given).sum().backward()
                took, passes = min(took, time.perf_counter() - start), passes + 1
    except (NotImplementedError, RuntimeError, ValueError):
        return math.nan
    finally:
        torch.set_num_threads(threads)
    return 1.5 * took + 0.002


def bytes_of_a_step(config: Mapping[str, Any]) -> int:
    """The peak of a training step of the trial's batch, in bytes (`step_peak`, which says what it raises)."""
    task = task_of(config)
    rows = task.train_batch(config["data_seed"], 0).inputs.shape[0]
    return step_peak(config, task, -(-rows // int(config["trainer"]["accumulate_grad_batches"])))


def step_peak(config: Mapping[str, Any], task: Task, rows: int) -> int:
    """The most bytes that live at a time in a training step of `rows` sequences, on one device.

    Weights, their gradients and two moments in float32, and what forward, loss and backward hold in the trial's
    precision. The step runs on fake tensors, which have no data, as on a CPU. Beyond eight layers one and two of them
    are counted, and continued as a line. What libraries and the allocator hold comes to that.

    Raises:
        UsageError: where it cannot be counted.
        ValueError: where a part refuses its settings.
    """
    depth = max(config["model"]["num_layers"], encoder_node(config["model"])["num_layers"])
    if depth <= _COUNTED_LAYERS:
        return _peak(config, task, rows)
    one, two = (_peak(with_layers(config, layers), task, rows) for layers in (1, 2))
    return one + (depth - 1) * max(two - one, 0)


_COUNTED_LAYERS = 8


def with_layers(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The configuration with so many layers, all alike."""
    encoder: dict[str, Any] = {"num_layers": layers, "layers": []}
    return {**config, "model": {**config["model"], "num_layers": layers, "layers": [], "encoder": encoder}}


def _peak(config: Mapping[str, Any], task: Task, rows: int) -> int:
    model, _ = built(config, task.interface, "float32")
    for stack in stacks(model).values():
        stack.checkpointed = bool(config["trainer"]["gradient_checkpointing"])
    low = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(str(config["trainer"]["precision"]))
    from torch._subclasses.fake_tensor import FakeTensorMode  # late: it brings torch's compiler

    live = _LiveBytes()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = model.to_empty(device="cpu").train()
            given = model.example(rows, task.train_length, "cpu")
            targets = {name: _targets(of, rows, task.train_length) for name, of in task.interface.readouts.items()}
            live.add(model.parameters())
            with live:
                with torch.autocast("cpu", low, enabled=low is not None):
                    answers = [model.answers(*given), *model.take_early_answers()]
                    losses = [
                        total_loss(of, each[name], targets[name])
                        for each in answers
                        for name, of in task.interface.readouts.items()
                    ]
                torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
    except (NotImplementedError, RuntimeError) as error:
        raise _uncounted(error) from error
    return live.peak + 2 * 4 * sum(parameter.numel() for parameter in model.parameters())


def _targets(readout: Readout, rows: int, length: int) -> Tensor:
    shape = (rows, length) if readout.per == "position" else (rows,)
    return torch.zeros(*shape, readout.size) if readout.kind == "values" else torch.zeros(shape, dtype=torch.int64)


class _LiveBytes(TorchDispatchMode):
    """The bytes of all storages that live at a time, and the most of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.sizes: dict[int, int] = {}

    def add(self, values: object) -> None:
        """Count the storages of these tensors until they are freed."""
        for tensor in tree_leaves(list(values) if isinstance(values, Iterator) else values):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage._cdata not in self.sizes:
                self.sizes[storage._cdata] = size = storage.nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage._cdata)

    def _free(self, key: int) -> None:
        self.now -= self.sizes.pop(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.add(made)
        return made


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, tied ones once, by name."""
    model, _ = built(config, task_of(config).interface, "float32")
    return {name: tuple(held.shape) for name, held in model.named_parameters()}


def measure(
    config: Mapping[str, Any],
    asked: Interface | int,
    batch: int,
    lengths: Sequence[int],
    dtype: str,
    *,
    checkpointed: bool = False,
) -> dict[str, Any]:
    """The costs of a resolved configuration at some lengths, as plain data.

    Operations are those that the configuration's accelerator and kernel execute: on a GPU `kernel=auto` computes every
    pair of a window, on a CPU only those of its blocks.

    With `checkpointed` layers are computed again in the backward pass, as trainer.gradient_checkpointing does: the
    budgets and matches of studies count a model's own operations, and leave it out.

    Raises:
        UsageError: for a length beyond the table of a position encoding or an attention, and for parts whose work
            depends on the data or a device.
    """
    model, plan = built(config, asked, dtype)
    kind = kind_of_device(str(config["trainer"]["accelerator"]))
    for stack in stacks(model).values():
        stack.checkpointed = checkpointed
    with torch.device("meta"):
        layers = plan.layers if model.has_slots else ()
        parts = [part for layer in layers for part in (layer.position(), layer.attention())]
    for part in parts:
        if part.limit is not None and part.limit < max(lengths):
            raise UsageError(
                f"`--lengths` must not exceed the table of {part.limit} rows of {type(part).__name__}, but "
                f"{max(lengths)} does; raise model.max_len, or use a part without a table."
            )
    try:
        costs = [
            batch_cost(model, model.example(batch, length, "meta"), length, one and batch * one, kind)
            for length in lengths
            for one in [kept_bytes(plan, length, DTYPES[dtype]) if model.stack.can_cache else None]
        ]
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise _uncounted(error) from error
    by_role: Counter[str] = Counter()  # a tied parameter is counted once, where it is declared
    for name, parameter in model.named_parameters():
        by_role[str(origin_of(name, parameter).role)] += parameter.numel()
    return {
        "parameters": count_parameters(model),
        "by_role": dict(by_role),
        "batch": batch,
        "dtype": dtype,
        "lengths": costs,
    }


def _uncounted(error: Exception) -> UsageError:
    return UsageError(
        f"what this model does depends on the data or a device ({str(error).splitlines()[0][:120]}), so it cannot "
        "be counted without them; use parts that treat all tokens alike, such as model/ffn=mlp for moe, and "
        "model/kernel=auto for flex."
    )


def kept_bytes(plan: ModelPlan, length: int, dtype: torch.dtype) -> int | None:
    """Bytes that generation keeps of one sequence of `length` tokens; None where all is computed again.

    States are kept in float32 or wider. A source is as long as the sequence; the last queries to it that a convolution
    keeps are left out.
    """
    with torch.device("meta"):  # parts are made to be asked, not to be filled
        if not all(layer.can_cache() for layer in plan.layers):
            return None
        total = 0
        for layer in plan.layers:
            attention, tokens = layer.attention(), length
            if (last := cached_positions(layer.pattern(), layer.position())) is not None:
                tokens = min(length, last)
            total += (attention.cache_width or 0) * tokens * dtype.itemsize
            total += (attention.state_width or 0) * max(dtype.itemsize, 4)
            if plan.encoder:
                total += (layer.cross_attention().cache_width or 0) * length * dtype.itemsize
        if plan.encoder:
            total += plan.dims.d_model * length * dtype.itemsize
    return total
