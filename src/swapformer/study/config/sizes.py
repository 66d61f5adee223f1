"""Counts how large a configuration is, before anything of its size is built, against the memory of this machine."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException

from swapformer.errors import UsageError, quote
from swapformer.study.config.cost import step_peak, with_layers
from swapformer.study.config.nodes import whole_numbers
from swapformer.study.launch.machine import memory_bytes
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan, count_parameters, encoder_node, factory

ALLOWANCE = "size"
"""The word of `allow` that lets a configuration be larger than this machine."""
LAYERS = 10_000
"""More layers take minutes to build, whatever their size."""
MOST_OF_A_TASK = 10_000_000
"""What a setting of a task may count: symbols, rules, pieces of a vocabulary."""
MOST_OF_A_PART = 1_000_000
"""What a setting of a part may count: features, experts, the width of a layer; distances may be larger."""
DISTANCES = ("pattern", "position")
"""Slots whose numbers are distances, of which nothing is made."""
TRAINED_BYTES = 16
"""Of a parameter: itself, its gradient and two moments of the optimiser, in float32."""
BATCH_BYTES = 64
"""Of a token of a batch, while items are drawn, sorted and masked in int64."""
CLEARLY_SMALL = 0.1
"""The share of the memory below which a generous estimate is good enough."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def require_data(config: Mapping[str, Any]) -> None:
    """Refuse batches that this machine cannot hold, from only the settings of the task.

    Raises:
        UsageError
    """
    if _allowed(config):
        return
    _require_batch(_most_rows(config), max(_lengths(config["task"]), default=1))
    for key, value in whole_numbers(config["task"], "task"):
        _require_most(key, value, MOST_OF_A_TASK)


def require_batches(config: Mapping[str, Any], task: Task) -> None:
    """Refuse batches that this machine cannot hold, now that the task says how long its sequences are.

    Raises:
        UsageError
    """
    if not _allowed(config):
        _require_batch(_most_rows(config), task.max_length)


def require_model(config: Mapping[str, Any], task: Task) -> None:
    """Refuse a model, or a batch of it, that cannot fit this machine.

    Two models of one layer and of two are counted without memory, and continued to the layers that are asked for. A
    configuration that is clearly small is not counted, and one that cannot be counted is left to the rules.

    Raises:
        UsageError
    """
    model = config["model"]
    depth = [model["num_layers"], encoder_node(model)["num_layers"]]
    if _allowed(config) or not all(isinstance(count, int) and count >= 1 for count in depth):
        return
    if max(depth) > LAYERS:
        raise UsageError(
            f"a model must have at most {LAYERS:,} layers, since building more takes minutes, but it has "
            f"{max(depth):,}; lower model.num_layers, or add 'allow=[{ALLOWANCE}]' if you want it"
        )
    for slot, node in model.items():
        if isinstance(node, Mapping) and slot not in DISTANCES:
            for key, value in whole_numbers(node, f"model.{slot}"):
                _require_most(key, value, MOST_OF_A_PART)
    rows = _rows(config)
    parts = config["trainer"].get("accumulate_grad_batches", 1)
    part = max(1, rows // parts) if isinstance(parts, int) and parts > 0 else rows
    room = memory(str(config["trainer"].get("accelerator")))
    if _roughly(model, task, part, max(depth)) < CLEARLY_SMALL * room:
        return
    parameters = _parameters(config, task)
    if parameters is None:
        return
    if parameters * TRAINED_BYTES > room:
        raise UsageError(
            f"training {_about(parameters)} parameters takes {gigabytes(parameters * TRAINED_BYTES)}, but this "
            f"machine has {gigabytes(room)}; lower model.num_layers, model.d_model or the sizes of its parts, or add "
            f"'allow=[{ALLOWANCE}]' if it is run elsewhere"
        )
    try:
        peak = step_peak(config, task, part)
    except (InstantiationException, UsageError, ValueError, TypeError, OverflowError):
        return  # what it does depends on the data, or the rules refuse it
    if peak > room:
        raise UsageError(
            f"a step on {part:,} sequences of {task.train_length:,} tokens takes {gigabytes(peak)}, but this machine "
            f"has {gigabytes(room)}; lower task.batch_size or the task's lengths, raise "
            f"trainer.accumulate_grad_batches, or add 'allow=[{ALLOWANCE}]' if it is run elsewhere"
        )


@lru_cache
def memory(accelerator: str = "cpu") -> float:
    """Bytes that a trial may use: of this machine, or of its first device; without a limit if unknown."""
    if accelerator != "cpu":
        return _device_memory()
    found = float(memory_bytes() or math.inf)
    try:
        return min(found, float(_CGROUP.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no group of processes with a limit, which says max
        return found


def _device_memory() -> float:
    """Bytes of the first GPU, as its driver says; without a limit where it does not.

    torch is not asked: it would open CUDA in the command's process.
    """
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return float(done.stdout.split()[0]) * 2**20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 2.0**44


def gigabytes(size: float) -> str:
    """A number of bytes as people say it."""
    return f"{_about(size / 2**30)} GiB" if size >= 2**30 else f"{size / 2**20:.3g} MiB"


def _about(number: float) -> str:
    return f"{number:.3g}" if number < 1000 or number >= 1e15 else f"{number:,.0f}"


def _allowed(config: Mapping[str, Any]) -> bool:
    return isinstance(config["allow"], list) and ALLOWANCE in config["allow"]


def _rows(config: Mapping[str, Any]) -> int:
    rows = config["task"].get("batch_size", 1)
    return rows if isinstance(rows, int) else 1


def _most_rows(config: Mapping[str, Any]) -> int:
    """The larger of the batch sizes of training and evaluation."""
    evaluated = config["task"].get("eval_batch_size")
    return max(_rows(config), evaluated if isinstance(evaluated, int) else 1)


def _require_batch(rows: int, longest: int) -> None:
    room = memory()
    if rows * longest * BATCH_BYTES > room:
        raise UsageError(
            f"a batch of {quote(rows)} sequences of up to {quote(longest)} tokens takes "
            f"{gigabytes(rows * longest * BATCH_BYTES)}, but this machine has {gigabytes(room)}; lower "
            f"task.batch_size or the task's lengths, or add 'allow=[{ALLOWANCE}]' if it is run elsewhere"
        )


def _require_most(key: str, value: int, most: int) -> None:
    if value > most:
        raise UsageError(
            f"`{key}` must be at most {most:,}, since what it counts is made before training, but it is "
            f"{quote(value)}; lower it, or add 'allow=[{ALLOWANCE}]' if you want it"
        )


def _lengths(task: Mapping[str, Any]) -> Iterator[int]:
    """The numbers that a task's settings of length hold."""
    for key in ("lengths", "eval_lengths", "block", "length"):
        held = task.get(key)
        for value in held if isinstance(held, list) else [held]:
            if isinstance(value, int) and value > 0:
                yield value


def _roughly(model: Mapping[str, Any], task: Task, rows: int, layers: int) -> float:
    """More bytes than training takes: as if each slot had a matrix as large as the product of its whole numbers."""
    width, heads, table = (
        value if isinstance(value := model[key], int) else 1 for key in ("d_model", "num_heads", "max_len")
    )
    parts = [node for node in model.values() if isinstance(node, Mapping)]
    sizes = [math.prod(value for _, value in whole_numbers(node) if value > 1) for node in parts]
    matrices = layers * width * (16.0 * width + sum(sizes)) + (2.0 * task.vocab_size + table) * width
    tokens = float(rows) * task.train_length
    kept = tokens * (layers * (64.0 * width + sum(sizes) + 8.0 * heads * task.train_length) + 8.0 * task.vocab_size)
    return TRAINED_BYTES * matrices + 4 * kept


def _parameters(config: Mapping[str, Any], task: Task) -> float | None:
    """Parameters, continued from one and two layers; infinite beyond 64 bits, None where they cannot be counted."""
    counts = []
    for layers in (1, 2):
        try:
            with torch.device("meta"):
                plan = build_plan(with_layers(config, layers), task.interface)
                counts.append(count_parameters(factory(config["model"]["topology"])(plan))["total"])
        except (InstantiationException, ValueError, TypeError, RuntimeError, OverflowError) as error:
            beyond = "overflow" in str(error).lower() or "dimension size" in str(error).lower()
            return math.inf if beyond else None
    one, two = counts
    return one + (config["model"]["num_layers"] - 1) * max(two - one, 0)
