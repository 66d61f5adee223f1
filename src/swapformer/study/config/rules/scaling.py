"""The requirements of rates that follow the model's sizes (`optim.scaling`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from swapformer.catalogue import option
from swapformer.interface import MAIN
from swapformer.model.plan import ModelPlan
from swapformer.model.topology import Topology
from swapformer.training.assemble import LAYER_SIZES, at_base, build_plan, factory
from swapformer.training.scaling import SIZES, unstated

DECOUPLED = ("torch.optim.AdamW", "lion_pytorch.Lion")
"""Optimisers whose step does not grow with the gradient, and whose weight decay is no part of it."""


def sizes(config: Mapping[str, Any]) -> Iterator[str]:
    """The sizes of the base: those that the scaling asks for, as whole numbers, and none without a scaling."""
    kind, base = config["optim"]["scaling"], config["optim"]["base"]
    asked = SIZES[kind]
    if not asked:
        if base is not None:
            yield ("`optim.base` says what rates are scaled from, but optim.scaling=none; set that, or no base.")
        return
    if base is None or set(base) != set(asked):
        example = ", ".join(f"{key}: {config['model'][key]}" for key in asked)
        found = "null" if base is None else f"{{{', '.join(map(str, base))}}}"
        yield (
            f"optim.scaling={kind} needs the sizes that optim.lr was chosen at, `optim.base: {{{example}}}` for those "
            f"of this model, but optim.base is {found}."
        )
        return
    for key, value in base.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield f"`optim.base.{key}` must be a whole number of at least 1, but it is {value!r}."


def scaling(config: Mapping[str, Any], plan: ModelPlan, model: Topology) -> Iterator[str]:
    """Optimisers, heads and streams for which no published table says how they scale."""
    kind, optim = config["optim"]["scaling"], config["optim"]
    if kind == "none":
        return
    start = f"optim.scaling={kind} "
    adam = optim["_target_"] == "torch.optim.Adam" and not optim["weight_decay"]
    if optim["_target_"] not in DECOUPLED and not adam:
        yield (
            f"{start}is for steps that do not grow with the gradient and decay apart from it; use optim=adamw or lion, "
            f"or adam with weight_decay=0, not {optim['_target_']}."
        )
    if model.head is None and model.interface.readouts[MAIN].kind == "symbols":
        yield (
            f"{start}starts and trains the head unlike the embeddings, so they cannot be one matrix; set "
            "model.topology.tie_embeddings=false."
        )
    if kind == "completep":
        yield from _depth(config, plan)
    plan_at_base = build_plan(at_base(config), plan.interface)
    with torch.device("meta"):
        base: Topology = factory(config["model"]["topology"])(plan_at_base)
    if wide := unstated(model, base):
        yield (
            f"{start}has no rule for parameters with the role {' or '.join(wide)}, which are wider than at "
            "`optim.base`; use parts without them, or optim.scaling=none."
        )
    for name, part in (("densenet", "DenseNet"), ("hyper_connections", "HyperConnections")):
        nodes = [config["model"], *config["model"]["layers"]]
        found = [node["residual"] for node in nodes if "residual" in node]
        if any(str(each["_target_"]).endswith(f".{part}") and each.get("dynamic", 1) for each in found):
            yield (
                f"{start}has no rule for the learned maps of model/residual={name}, which sum over the width; use "
                f"another residual{', or model.residual.dynamic=null' if name == 'hyper_connections' else ''}."
            )
    widths = ([layer.dims.head_dim for layers in each.stacks for layer in layers] for each in (plan, plan_at_base))
    if model.dims.head_dim != base.dims.head_dim or len({tuple(each) for each in widths}) > 1:
        yield from _heads(config, model, base, start)


def _depth(config: Mapping[str, Any], plan: ModelPlan) -> Iterator[str]:
    """CompleteP is stated for x ← x + f(norm(x)) in one stack."""
    if plan.encoder:
        yield "optim.scaling=completep is for one stack of layers; use mup, or model/topology=decoder or encoder."
    nodes = [config["model"], *config["model"]["layers"]]
    if any(node["residual"] != option("residual", "add") for node in nodes if "residual" in node):
        yield (
            "optim.scaling=completep scales updates by the depth, so the stream must add them; use model/residual=add."
        )
    if any(layer.placement().after or layer.placement().inside for layer in plan.layers):
        yield (
            "optim.scaling=completep scales each update by the depth, which a norm behind it would undo; use "
            "model/placement=pre."
        )


def _heads(config: Mapping[str, Any], model: Topology, base: Topology, start: str) -> Iterator[str]:
    """Heads that are wider than at the base: q·k is scaled through the query, which nothing may undo."""
    keep = f"let heads be as wide as at the base ({base.dims.head_dim}), with more of them in a wider model"
    nodes = [config["model"], *config["model"]["layers"]]
    for slot, name in (("score", "dot"), ("qk_norm", "none")):
        if any(node[slot] != option(slot, name) for node in nodes if slot in node):
            yield f"{start}scales wider heads through the query alone, so it needs model/{slot}={name}; or {keep}."
    if any(str(node["attention"]["_target_"]).endswith(".Mamba2") for node in nodes if "attention" in node):
        yield f"{start}has no rule for model/attention=mamba2, whose queries are as wide as its state; {keep}."
    if any(key in node for node in config["model"]["layers"] for key in LAYER_SIZES[:2]):
        yield f"{start}needs heads of one width; {keep}."
