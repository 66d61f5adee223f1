"""`swapformer cost`: what a composed configuration costs, before any training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swapformer.analysis.cost import Cost, count, parameters_by_role
from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface
from swapformer.model.attention.kept import places_kept
from swapformer.model.layers import origin_of
from swapformer.model.plan import ModelPlan
from swapformer.model.topology import Topology
from swapformer.study.complaint import explained
from swapformer.study.config import check, compose, task_of
from swapformer.training.assemble import build_plan, count_parameters, factory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def main(arguments: Sequence[str]) -> int:
    """Print parameters by role and, for each length, operations and bytes; returns the exit status."""
    options = _parser().parse_intermixed_args(arguments)
    with explained(options.overrides):
        config = compose(options.overrides)
    check(config)
    if options.batch < 1:
        raise UsageError(f"`--batch` must be at least 1, but it is {options.batch}.")
    lengths = _lengths(options.lengths) or [task_of(config).train_length]
    report = measure(config, task_of(config).interface, options.batch, lengths, options.dtype)
    print(json.dumps(report, indent=1) if options.json else _text(report))
    return 0


def measure(config: Any, asked: Interface | int, batch: int, lengths: Sequence[int], dtype: str) -> dict[str, Any]:
    """The costs of a resolved configuration as plain data.

    Raises:
        UsageError: for a length beyond the table of a position encoding or an attention, and for parts whose work
            depends on the data or a device.
    """
    kind = DTYPES[dtype]
    with torch.device("meta"):
        plan = build_plan(config, asked)
        model: Topology = factory(config["model"]["topology"])(plan).to("meta", kind)
    for part in [part for layer in plan.layers for part in (layer.position(), layer.attention())]:
        if part.limit is not None and part.limit < max(lengths):
            raise UsageError(
                f"`--lengths` must not exceed the table of {part.limit} rows of {type(part).__name__}, but "
                f"{max(lengths)} does; raise model.max_len, or use a part without a table."
            )
    try:
        costs: list[Cost] = [
            count(model, partial(_answered, model), model.example(batch, length, "meta"), length, bytes_kept)
            for length in lengths
            for bytes_kept in [_times(batch, kept_bytes(plan, length, kind))]
        ]
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"what this model does depends on the data or a device ({str(error).splitlines()[0][:120]}), so it cannot "
            "be counted without them; use parts that treat all places alike, such as model/ffn=mlp for moe, and "
            "model/kernel=auto for flex."
        ) from error
    return {
        "parameters": count_parameters(model),
        "by_role": parameters_by_role(model, lambda name, parameter: str(origin_of(name, parameter).role)),
        "batch": batch,
        "dtype": dtype,
        "lengths": [asdict(cost) for cost in costs],
    }


def _answered(model: Topology, *given: Any) -> Tensor:
    """The sum of the main answer and of those that are read early in training."""
    last: Tensor = model(*given)
    return torch.stack([last.sum(), *(early[MAIN].sum() for early in model.take_early_answers())]).sum()


def kept_bytes(plan: ModelPlan, length: int, dtype: torch.dtype) -> int | None:
    """Bytes that generation keeps of one sequence of `length` places; None where all is computed anew.

    States are kept in float32 or wider. A source is as long as the sequence.
    """
    if not all(layer.can_cache() for layer in plan.layers):
        return None
    total = 0
    for layer in plan.layers:
        attention, places = layer.attention(), length
        if (last := places_kept(layer.pattern(), layer.position())) is not None:
            places = min(length, last)
        total += (attention.cache_width or 0) * places * dtype.itemsize
        total += (attention.state_width or 0) * max(dtype.itemsize, 4)
        if plan.encoder:
            total += (layer.cross_attention().cache_width or 0) * length * dtype.itemsize
    return total


def _times(rows: int, size: int | None) -> int | None:
    return None if size is None else rows * size


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="swapformer cost", description="What a configuration costs, before training.")
    parser.add_argument("overrides", nargs="*", help="as for swapformer train")
    parser.add_argument("--lengths", default="", help="places of a sequence, such as 128,1024; default: the task's")
    parser.add_argument("--batch", type=int, default=1, help="sequences")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of activations and cache")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _lengths(text: str) -> list[int]:
    words = [word for word in text.split(",") if word]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"`--lengths` must be whole numbers of at least 1 between commas, but it is {text!r}.")
    return [int(word) for word in words]


def _text(report: dict[str, Any]) -> str:
    lines = [f"{'parameters':18} {report['parameters']['total']:>14,}"]
    lines += [f"  {role:16} {number:>14,}" for role, number in report["by_role"].items()]
    lines += ["", f"one batch of {report['batch']} in {report['dtype']}"]
    lines += [f"{'length':>8} {'forward':>12} {'backward':>12} {'activations':>14} {'kv cache':>12}"]
    for cost in report["lengths"]:
        cache = "–" if cost["kv_cache"] is None else f"{_scaled(cost['kv_cache'])}B"
        lines.append(
            f"{cost['length']:>8} {_scaled(cost['forward']):>7} FLOP {_scaled(cost['backward']):>7} FLOP "
            f"{_scaled(cost['activations']) + 'B':>14} {cache:>12}"
        )
    return "\n".join(lines)


def _scaled(value: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} P"
