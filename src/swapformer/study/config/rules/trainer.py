"""The ways to compute a trial, and the parts that they exclude: devices, precision, checkpointing, compilation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swapformer.model.plan import LayerPlan
from swapformer.targets import find, make
from swapformer.training.nodes import ranks_of

ACCELERATORS = ("cpu", "gpu")
_WHOLE_MATRICES = ("torch.optim.Adafactor", "swapformer.training.muon.MuonAdamW")
PROFILERS = ("simple", "advanced", "pytorch")
STRATEGIES = ("ddp", "fsdp")
"""As `swapformer.training.trainer` has them, which brings Lightning."""
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true")


def settings(config: Mapping[str, Any]) -> Iterator[str]:
    """Mistakes within the `trainer` node."""
    trainer, optim = config["trainer"], config["optim"]
    chosen = {
        "accelerator": ACCELERATORS,
        "precision": PRECISIONS,
        "strategy": (None, *STRATEGIES),
        "profiler": (None, *PROFILERS),
        "gradient_clip_algorithm": ("norm", "value"),
    }
    for key, known in chosen.items():
        if trainer.get(key, known[0]) not in known:  # a trial of an older version has not all of them
            words = ", ".join("null" if value is None else value for value in known)
            yield f"`trainer.{key}` must be one of {words}, but it is {trainer[key]!r}."
    if trainer["precision"] == "16-mixed" and trainer["accelerator"] == "cpu":
        yield "torch has no fp16 autocast for training on the CPU; use trainer.precision=bf16-mixed, or trainer=gpu."
    if trainer.get("tf32") and trainer["accelerator"] == "cpu":
        yield "a CPU has no TensorFloat-32, so trainer.tf32=true would do nothing; use trainer=gpu, or leave it out."
    if trainer["precision"] == "16-mixed" and optim.get("fused"):
        yield "a fused optimiser cannot unscale fp16 gradients before they are clipped; set optim.fused=false."
    yield from _devices(trainer, optim["_target_"], config["task"].get("batch_size"))


def _devices(trainer: Mapping[str, Any], optimiser: str, rows: object) -> Iterator[str]:
    count, strategy, parts = ranks_of(trainer), trainer["strategy"], trainer["accumulate_grad_batches"]
    nodes = trainer.get("nodes", 1)
    given = f"trainer.devices={trainer['devices']}" + (f" and trainer.nodes={nodes}" if nodes > 1 else "")
    if count > 1 and strategy is None:
        yield (
            f"{given} must share a trial in some way: add trainer.strategy=ddp, or fsdp for a model "
            "that is too large for each of them; or run trials side by side, with trainer.devices=1."
        )
    if count == 1 and strategy is not None:
        yield f"trainer.strategy={strategy} shares a trial among devices, but trainer.devices=1; raise it, or use null."
    if isinstance(rows, int) and count * parts > rows:
        cut = f"trainer.accumulate_grad_batches={parts} parts" + (f" for {given}" if count > 1 else "")
        yield f"a batch of task.batch_size={rows} cannot be cut into {cut}."
    if strategy == "fsdp" and trainer["precision"] == "16-mixed":
        yield "fsdp has no scaler for fp16 gradients here; use trainer.precision=bf16-mixed, or trainer.strategy=ddp."
    if strategy == "fsdp" and optimiser in _WHOLE_MATRICES:
        yield (
            f"{optimiser.rpartition('.')[-1]} needs whole weights, of which fsdp leaves a part on each device; use "
            "trainer.strategy=ddp, or optim=adamw, adam, sgd or lion."
        )
    if strategy == "fsdp" and trainer["compile"]:
        yield "fsdp gathers weights between layers, which cannot be compiled here; use trainer.strategy=ddp."


def callbacks(config: Mapping[str, Any]) -> Iterator[str]:
    """The problems of callbacks with a configuration, as they state them in `problems`."""
    for name, node in (config.get("callbacks") or {}).items():
        if hasattr(kind := find(str(node.get("_target_"))), "problems"):
            yield from make(node, kind, f"callbacks.{name}").problems(config)


def parts(trainer: Mapping[str, Any], layers: Sequence[LayerPlan]) -> Iterator[str]:
    """Parts that cannot be computed in the way that is asked for."""
    for layer in layers:
        norm, residual = layer.norm(), layer.residual()
        if (count := ranks_of(trainer)) > 1 and norm.crosses_positions:
            yield (
                f"norm {type(norm).__name__} takes its statistics over the whole batch, of which each of "
                f"{count} devices would see its own sequences alone; use trainer.devices=1, or "
                "model/norm=layernorm or rmsnorm."
            )
        if trainer["strategy"] == "fsdp" and residual.recomputes:
            yield (
                f"residual {type(residual).__name__} goes around the layers that fsdp gathers weights for; use "
                "trainer.strategy=ddp, or another residual."
            )
        if trainer["gradient_checkpointing"]:
            yield from _checkpointing(type(residual).__name__ if residual.recomputes else None, layer)
        if trainer["compile"] and residual.recomputes:
            yield (
                f"residual {type(residual).__name__} brings a backward of its own, which torch cannot compile; use "
                "trainer.compile=false, or another residual."
            )


def _checkpointing(reversible: str | None, layer: LayerPlan) -> Iterator[str]:
    norm, attention = layer.norm(), layer.attention()
    if reversible is not None:
        yield (
            f"residual {reversible} keeps no activations that trainer.gradient_checkpointing could save; set it to "
            "false, or use another residual."
        )
    if attention.shares_values is not None:
        yield (
            "trainer.gradient_checkpointing computes each layer again on its own, where the first layer's values, "
            "which model/extension=value_residual mixes in, are not at hand; set it to false, or leave the extension "
            "out."
        )
    if norm.crosses_positions:
        yield (
            "trainer.gradient_checkpointing computes every layer twice, which would count a batch twice in the running "
            f"averages of {type(norm).__name__}; use model/norm=layernorm or rmsnorm, or set it to false."
        )
