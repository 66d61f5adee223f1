"""Rules of a whole model: its topology, its task, its start, and its parts that nothing would use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from swapformer.catalogue import default_option, option, primary
from swapformer.interface import MAIN
from swapformer.model.init import Init
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.model.residual import Residual
from swapformer.model.topology import Topology
from swapformer.study.config.rules.stack import moves_norms
from swapformer.targets import find, targets
from swapformer.task.base import Task
from swapformer.training.assemble import FULL, SLOTS, build_model, build_plan, encoder_node, factory
from swapformer.training.data import drawn_position_range, with_drawn_positions
from swapformer.training.inputs import model_inputs

USED_BY = {"attention": ("score", "normaliser", "pattern", "kernel", "qk_norm", "extension"), "ffn": ("activation",)}
"""For each slot whose parts are built from others, the slots that they may use."""


def own(config: Mapping[str, Any], task: Task, plan: ModelPlan) -> Iterator[str]:
    """The requirements of a whole model in place of the slots: a task of symbols, and settings that it reads."""
    model, asked, name = config["model"], plan.interface, type(task).__name__
    read = "which a whole model (model=own) does not read"
    for slot in (*SLOTS, "layers", "dropout", "bias", "encoder"):
        default = primary()["model"][slot] if slot not in SLOTS else option(slot, default_option(slot))
        if slot != "topology" and model[slot] != default:
            said = f"model/{slot}={default_option(slot)}" if slot in SLOTS else f"model.{slot}={default}"
            yield f"model.{slot} is set, {read}; leave it as it is ({said}), or give your module a setting of its own."
    main = asked.readouts[MAIN]
    if asked.channels or asked.source or len(asked.readouts) > 1 or main.kind != "symbols" or main.per != "position":
        yield (
            f"a whole model (model=own) reads one sequence of symbols and gives logits of symbols at each place, but "
            f"the task {name} asks for something else; use a task of next or masked symbols, or a model of slots."
        )
        return
    with torch.device("cpu"):
        batch = task.train_batch(config["data_seed"], 0)
    if batch.document is not None:
        yield (
            f"the task {name} packs documents into a row, which a whole model (model=own) cannot tell apart; use a "
            "task without documents, or a model of slots."
        )
    optim, trainer = config["optim"], config["trainer"]
    needs = {
        "optim.scaling": optim["scaling"] != "none",
        "optim.layer_decay": optim["layer_decay"] != 1,
        "optim=muon": optim["_target_"].endswith(".MuonAdamW"),
        "trainer.gradient_checkpointing": trainer["gradient_checkpointing"],
    }
    for key in (key for key, asks in needs.items() if asks):
        yield f"{key} goes by roles or layers of a model of slots, which a whole model (model=own) has not declared."
    looks_ahead = not task.predicts_next or "future" in config["allow"]
    text = json.dumps([model, asked.vocab_size, min(task.train_length, plan.dims.max_len, _TRIED), looks_ahead])
    if (problem := _complaint(text, find(model["topology"]["module"]["_target_"]))) is not None:
        yield problem


_TRIED = 32
"""Tokens of the sequences on which a whole model is tried before it trains."""


@lru_cache(maxsize=64)
def _complaint(text: str, constructor: object) -> str | None:
    """The faults of a whole model, named by JSON and what makes it; it is made and run once."""
    model, vocabulary, length, looks_ahead = json.loads(text)
    with torch.device("cpu"):
        made: Any = factory(model["topology"])(build_plan({"model": model}, vocabulary))
        found: str | None = made.complaint(length, looks_ahead=looks_ahead)
    return found


def depth(plan: ModelPlan) -> Iterator[str]:
    """The requirements of an early exit of positions."""
    part, main = plan.depth(plan.dims), plan.interface.readouts[MAIN]
    if not part.exits:
        return
    name = type(part).__name__
    if main.per != "position" or main.kind == "values":
        yield (
            f"depth {name} reads how certain the answer of a position is, but the task asks for {main.kind} of a "
            f"{main.per}; use model/depth=fixed, or a task with symbols or classes at each position."
        )
    if crossing := [norm for norm in (layer.norm() for layer in plan.layers) if norm.crosses_positions]:
        yield (
            f"depth {name} reads every exit through the last norm, so that the running averages of "
            f"{type(crossing[0]).__name__} would mix exits; use model/norm=layernorm or rmsnorm, or model/depth=fixed."
        )
    for residual in (layer.residual() for layer in plan.layers):
        if residual.keeps != Residual.keeps:
            yield (
                f"depth {name} keeps the stream of a position that has left as it is, which must be one tensor, but "
                f"{type(residual).__name__} keeps {residual.keeps}; use model/residual=add, rezero or another one of "
                "one tensor, or model/depth=fixed."
            )


def initialisation(
    init: Init, layers: Sequence[LayerPlan], topology: type[Topology], settings: Mapping[str, Any], silent: bool
) -> Iterator[str]:
    """The requirements of a scheme of initialisation; `silent` says whether it starts every update at zero."""
    name = type(init).__name__
    norms = {type(layer.norm()).__name__ for layer in layers if layer.norm().rescales}
    if init.without_norm and (needy := [r for r in (layer.residual() for layer in layers) if r.needs_norms]):
        yield (
            f"init {name} is for models without a norm, but residual {type(needy[0]).__name__} tells its streams apart "
            "by norms; use model/residual=add, or model/init=gpt2, xavier or deepnorm."
        )
    elif init.without_norm and norms:
        yield (
            f"init {name} is for models without a norm, but there is {', '.join(sorted(norms))}; use model/norm=none, "
            "or model/init=gpt2, xavier or deepnorm."
        )
    if silent and (lost := [part for part in (layer.residual() for layer in layers) if not part.carries]):
        yield (
            f"init {name} starts what a branch computes at zero, and residual {type(lost[0]).__name__} lets nothing "
            "else past a branch, so nothing would reach the end of the stack; use model/residual=add, gated or "
            "rezero, or model/init=gpt2, xavier or small."
        )
    if init.without_norm and any(moves_norms(layer) and not layer.norm().normalises for layer in layers):
        yield (
            f"init {name} is for models without a norm, where a placement has nothing to place; use "
            "model/placement=pre, or another init with a norm."
        )
    if init.one_head_width and any(layer.dims.head_dim != init.dims.head_dim for layer in layers):
        yield (
            f"init {name} draws queries and keys for heads {init.dims.head_dim} wide, but some layers have others; "
            "leave num_heads and head_dim out of model.layers, or use model/init=gpt2, xavier or small."
        )
    if init.zero_head and settings.get("tie_embeddings"):
        yield (
            f"init {name} starts the head at zero, so the topology {topology.__name__} cannot have it for the "
            "embedding table; set model.topology.tie_embeddings=false, or use model/init=gpt2, xavier or small."
        )


def exchange(
    topology: type[Topology], plan: ModelPlan, task: Task, encoder: Mapping[str, Any], reads_ahead: bool
) -> Iterator[str]:
    """The inputs of a task must be those that a topology takes."""
    name, asked = topology.__name__, plan.interface
    takes_source = topology.reads_source and not reads_ahead
    if asked.source and not topology.reads_source:
        yield (
            f"the task {type(task).__name__} has a source that is read first, but the topology {name} reads none; use "
            "model/topology=encoder_decoder, or another task."
        )
    if asked.source and reads_ahead:
        yield (
            f"the task {type(task).__name__} has a source, but the encoder of {name} reads the decoder's inputs in its "
            "place; set model.topology.source=task, or use a task without a source."
        )
    if takes_source and not asked.source:
        yield (
            f"the topology {name} reads a source before it answers, but the task {type(task).__name__} has none; use "
            "model/topology=decoder or encoder, or a task with a source."
        )
    if asked.segments and not topology.reads_segments:
        yield (
            f"the task {type(task).__name__} tells {asked.segments} segments apart, but the topology {name} embeds "
            "none; use model/topology=encoder."
        )
    if not topology.reads_source and (encoder["num_layers"] is not None or encoder["layers"]):
        yield f"`model.encoder` is read by model/topology=encoder_decoder alone, not by {name}; leave it as it is."


def sources(topology: type[Topology], plan: ModelPlan) -> Iterator[str]:
    """The requirements on attention where a source is read."""
    for layer in plan.layers if plan.encoder else ():
        kind = layer.kind("attention")
        if not kind.crosses or not layer.cross_attention().crosses:
            yield (
                f"attention {kind.__name__} mixes the positions of one sequence, so it cannot read the source that the "
                f"topology {topology.__name__} hands it; use model/attention=mha, gqa, linear or performer, or "
                "model/topology=decoder."
            )


def lookahead(model: Topology, task: Task, allowed: Sequence[str]) -> Iterator[str]:
    """If the next token is predicted, nothing shows a position the tokens after it, whatever the patterns say."""
    if model.reads_ahead and task.predicts_next and "future" not in allowed:
        yield (
            f"the task {type(task).__name__} predicts each next token, but the encoder of the topology "
            f"{type(model).__name__} reads the decoder's own inputs (source=inputs), so each position is shown later "
            "ones, its target among them; set model.topology.source=task for a task with a source, or use "
            "model/topology=decoder; to study the leak, add allow=[future]."
        )


def futures(topology: type[Topology], plan: ModelPlan, task: Task, allowed: Sequence[str]) -> Iterator[str]:
    """If the next token is predicted, no position sees a later one."""
    if not task.predicts_next or "future" in allowed:
        return
    start = (
        f"the task {type(task).__name__} predicts each next token, so no position of the topology {topology.__name__} "
        "may see a later one, but "
    )
    for layer in plan.layers:
        kind, pattern = layer.kind("attention"), layer.pattern()
        if not kind.causal_safe:
            plain = pattern.full or pattern.plain_causal
            yield (
                f"{start}attention {kind.__name__} mixes all positions of a row before any of them is a query; use "
                f"model/attention={'linear, performer or mha' if plain else 'mha'}, or a task whose answers are no "
                f"next tokens{'; to study the leak, add allow=[future]' if plain else ''}."
            )
        elif not pattern.causal:
            yield (
                f"{start}the pattern {type(pattern).__name__} lets it; use model/pattern=causal, or window with "
                "after=0; to study the leak, add allow=[future]."
            )


def leaks(config: Mapping[str, Any], task: Task) -> Iterator[str]:
    """If the next token is predicted, no part of the user's own shows a position a later one: what it does is tried."""
    own = sorted({name for name in targets(config["model"]) if name.partition(".")[0] not in ("swapformer", "torch")})
    if not own or not task.predicts_next or "future" in config["allow"]:
        return
    text = json.dumps([config["model"], config["data_seed"]], sort_keys=True)
    try:
        gap = _told_of_later_tokens(text, task, tuple(map(find, own)))
    except Exception:
        if config["trainer"]["accelerator"] == "cpu":
            raise
        return  # a kernel may need its device
    if not gap < _ROUNDING:
        yield (
            f"the task {type(task).__name__} predicts each next token, but in a model with {' and '.join(own)} later "
            f"tokens change earlier answers by {gap:.2g} of the largest, so each position is shown its target; let no "
            "position read what comes after it, or add allow=[future] to study the leak."
        )


_ROUNDING = 1e-4
"""The largest change of an answer, as a share of the largest one, that rounding explains."""


@lru_cache(maxsize=64)
def _told_of_later_tokens(text: str, task: Task, parts: tuple[object, ...]) -> float:
    """The largest change of an answer as the tokens behind it change, over the largest answer.

    On a sequence of the training, in evaluation and in training, with all weights moved, since branches may start at
    zero. `parts`: what makes the user's own parts, which may be edited while Python runs.
    """
    model_node, data_seed = json.loads(text)
    with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.no_grad():
        model = build_model({"model": model_node, "seed": 0}, task.interface)
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
        row = with_drawn_positions(task.train_rows(data_seed, 0, 0, 1), drawn_position_range(model), "leaks")
        inputs, *given = model_inputs(row)
        gap = 0.0
        for training in (False, True):
            model.train(training)
            torch.manual_seed(0)
            answers = model(inputs, *given)
            for place in {1, inputs.shape[1] // 3, inputs.shape[1] - 1} - {0}:
                changed = inputs.clone()
                changed[:, place:] += 1
                changed = changed if inputs.is_floating_point() else changed % task.interface.vocab_size
                torch.manual_seed(0)
                apart = (model(changed, *given) - answers)[:, :place].abs().max()
                gap = max(gap, float(apart / answers.abs().max().clamp(min=1e-30)))
    return gap


def placed(
    problems: Iterable[str], layers: Sequence[LayerPlan], plan: ModelPlan, topology: type[Topology]
) -> Iterator[str]:
    """Problems of one stack's layers, with the stack's name where there are two."""
    if not plan.encoder:
        yield from problems
        return
    for problem in problems:
        if layers is not plan.encoder:
            yield f"in the decoder of {topology.__name__}, {problem}"
            continue
        changed = problem.replace("model/pattern=", "pattern=")
        where = "" if changed == problem else " An encoder's patterns are chosen in model.encoder.layers."
        yield f"in the encoder of {topology.__name__}, {changed}{where}"


def unused(model: Mapping[str, Any], plan: ModelPlan) -> Iterator[str]:
    """A complaint for each choice that the attention or feed-forward layer it is meant for does not use."""
    yield from _unused(model, plan.layers)
    if plan.encoder:
        yield from _unused(encoder_node(model), plan.encoder)


def _unused(model: Mapping[str, Any], layers: Sequence[LayerPlan]) -> Iterator[str]:
    overrides = model["layers"] or [{}] * len(layers)
    for layer, override in zip(layers, overrides, strict=True):
        nodes = {**model, **override}
        for user, slots in USED_BY.items():
            part = layer.attention() if user == "attention" else layer.ffn()
            for slot in slots:
                name = default_option(slot)
                if slot not in part.uses and nodes[slot] not in (option(slot, name), FULL):
                    chosen = " and ".join(target.rpartition(".")[-1] for target in targets(nodes[slot]))
                    article = "an" if slot[0] in "aeiou" else "a"
                    yield (
                        f"{user} {type(part).__name__} does not use {article} {slot}, so {chosen} with its settings "
                        f"would be ignored; use model/{slot}={name} as it is, or another model/{user}."
                    )
