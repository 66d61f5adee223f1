"""The values of settings: the types of those that no class declares, and the keys that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Annotated, Any, Literal

from swapformer.errors import quote, suggest
from swapformer.ranges import Count, Fraction, Natural, NonNegative, Positive, Within
from swapformer.study.config.budget import Amount
from swapformer.study.config.lightning_options import instead_of
from swapformer.targets import complaints
from swapformer.training.assemble import SLOTS

Momentum = Annotated[float, Within("[0, 1)")]

TYPES: dict[str, Any] = {
    "seed": Natural,
    "data_seed": Natural,
    **dict.fromkeys(("model.d_model", "model.num_layers", "model.num_heads"), Count),
    **dict.fromkeys(("model.head_dim", "model.max_len", "model.encoder.num_layers"), Count | None),
    "budget.steps": Natural | None,
    "model.dropout": Annotated[float, Within("[0, 1)")],
    "model.bias": bool,
    **dict.fromkeys(("budget.tokens", "budget.flops"), Amount | None),
    **dict.fromkeys(("eval.every", "eval.batches", "eval.final_batches", "log_every"), Count),
    "checkpoint_every": Count | None,
    "divergence": Annotated[float, Within("[1, inf)")],
    "trainer.threads": Annotated[int, Within("[1, 1024]")],
    "trainer.devices": Annotated[int, Within("[1, 4096]")],
    "trainer.nodes": Annotated[int, Within("[1, 4096]")],
    "trainer.accumulate_grad_batches": Count,
    "trainer.gradient_clip_val": NonNegative,
    **{
        f"trainer.{name}": bool
        for name in ("deterministic", "tf32", "gradient_checkpointing", "detect_anomaly", "prefetch")
    },
    "trainer.compile": bool | Literal["reduce-overhead", "max-autotune"],
    "optim.lr": Positive,
    "optim.betas": tuple[Momentum, Momentum],
    "optim.momentum": Momentum,
    "optim.weight_decay": NonNegative,
    "optim.layer_decay": Fraction,
    "optim.freeze": Sequence[Any],
    "optim.scaling": Literal["none", "mup", "completep"],
    "optim.base": Mapping[str, Any] | None,
    **dict.fromkeys(("allow", "init_fresh", "model.layers", "model.encoder.layers"), Sequence[Any]),
}
"""Key → type, for settings that the training reads itself, and for what every optimiser calls by these names."""

FOREIGN: dict[str, Any] = {
    "torch.optim.Adafactor": {
        "eps": tuple[Positive | None, Positive],
        "beta2_decay": Annotated[float, Within("[-1, 0]")],
        "d": Annotated[float, Within("[1, inf)")],
    },
    "torch.optim.Adam": {"eps": Positive},
    "torch.optim.AdamW": {"eps": Positive},
}
"""What classes of others leave open about their settings."""

KEYS = {
    "": ("seed", "data_seed", "model", "task", "data", "budget", "eval", "optim", "schedule", "trainer",
         "callbacks", "probes", "measure", "logger", "divergence", "log_every", "checkpoint_every", "runs_dir", "allow",
         "init_from", "init_fresh"),
    "model": (*SLOTS, "d_model", "num_layers", "num_heads", "head_dim", "max_len", "dropout", "bias", "layers",
              "encoder"),
    "model.encoder": ("num_layers", "layers"),
    "budget": ("steps", "tokens", "flops"),
    "eval": ("every", "batches", "final_batches"),
    "trainer": ("accelerator", "devices", "nodes", "strategy", "precision", "accumulate_grad_batches",
                "gradient_checkpointing", "compile", "gradient_clip_val", "gradient_clip_algorithm", "deterministic",
                "threads", "profiler", "detect_anomaly", "tf32", "prefetch"),
}  # fmt: skip
"""What each node may hold: a key that nothing reads is an error."""

ALLOWANCES = ("bf16", "future", "leftovers", "same_model", "size", "vocabulary")
"""What `allow` may list: combinations that are refused unless they are what a study is about."""


def of_types(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings that are no number where one belongs, not finite, out of their range, or otherwise not of their type."""
    yield from complaints(config, types_of(config["optim"]))


def types_of(optim: Mapping[str, Any]) -> dict[str, Any]:
    """Key → type of what no class declares, with an `optim` node's class of others."""
    foreign = FOREIGN.get(str(optim.get("_target_")), {})
    return {**TYPES, **{f"optim.{name}": hint for name, hint in foreign.items()}}


def of_keys(config: Mapping[str, Any]) -> Iterator[str]:
    """Keys that nothing reads, extensions without a name, and allowances that there are not."""
    for node, known in KEYS.items():
        for key in reduce(getitem, node.split("."), config) if node else config:
            if key in known:
                continue
            if (said := instead_of(node, str(key))) is not None:
                yield f"{f'{node}.' if node else ''}{key} is not an option here: {said}."
            else:
                where = f"`{node}`" if node else "the configuration"
                yield f"{where} has no key {key!r}, so nothing would read it{suggest(str(key), known)}"
    if "_target_" in config["model"]["extension"]:
        found = config["model"]["extension"]["_target_"]
        yield (
            f"`model.extension` must hold extensions by name, but it is {found} itself; let the first line of its YAML "
            "be `# @package model.extension.NAME`."
        )
    for word in config["allow"] if isinstance(config["allow"], list) else []:
        if word not in ALLOWANCES:
            yield f"`allow` may list {', '.join(ALLOWANCES)}, but not {quote(word)}."
