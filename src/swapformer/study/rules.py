"""Rules of parts that cannot go together: each reads facts and names both sides and what would work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from swapformer.interface import MAIN
from swapformer.model.init import Init
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.model.residual import Residual
from swapformer.model.topology import Topology
from swapformer.task.base import Task


def embeddings(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """What is added to the embeddings is there for every layer."""
    distinct = list(dict.fromkeys(layer.position() for layer in layers))
    if len({frozenset(part for part in position.encodings() if part.embeds) for position in distinct}) > 1:
        names = " and ".join(type(position).__name__ for position in distinct)
        yield (
            f"a position that is added to the embeddings is there for every layer, but the layers have {names}; give "
            "all layers the same, or use rope, alibi, t5 or none where they differ."
        )


def layer_rules(layer: LayerPlan, task: Task) -> Iterator[str]:
    """What the parts of one layer cannot do together."""
    position, attention = layer.position(), layer.attention()
    norm, ffn, pattern = layer.norm(), layer.ffn(), layer.pattern()
    layer.block(branches=2 if ffn.present else 1)
    if norm.crosses_places and pattern.causal:
        bound = task.predicts_next or not _can_see_all(layer)
        whose = f", the only one that attention {type(attention).__name__} takes" if not _can_see_all(layer) else ""
        yield (
            f"norm {type(norm).__name__} takes its statistics over all places in training, so that the future would "
            f"leak into the causal pattern {type(pattern).__name__}{whose}; use model/norm=layernorm, rmsnorm, "
            f"scalenorm or dyt{'' if bound else ', or a pattern that is not causal (model/pattern=full)'}."
        )
    if missing := [tag for tag in layer.pattern().tags if tag not in task.tags]:
        yield (
            f"the pattern {type(layer.pattern()).__name__} needs the tags {', '.join(missing)}, but the task "
            f"{type(task).__name__} supplies {', '.join(task.tags) or 'none'}; choose a task that tags its places so, "
            "or model/pattern=causal, window or another one without tags."
        )
    if (refusal := attention.refuses(position)) is not None:
        yield f"{refusal}."
    if not norm.normalises and _places(layer):
        yield (
            "norm=none leaves nothing to place, so every placement would be the same model; use model/placement=pre, "
            "or a norm."
        )
    if position.limit is not None and position.limit < task.max_length:
        yield (
            f"{type(position).__name__} positions have a table of {position.limit} rows (model.max_len), but the task "
            f"has sequences of {task.max_length} places; raise model.max_len, shorten the task's evaluation lengths, "
            "or use model/position=rope, alibi, t5 or none."
        )
    reach = task.max_length if position.drawn_from is None else position.drawn_from
    if attention.limit is not None and attention.limit < reach:
        yield (
            f"{type(attention).__name__} attention has a table of {attention.limit} rows (model.max_len), but "
            f"positions reach to {reach}; set model.max_len={reach}, shorten the task's evaluation lengths, or use "
            "model/attention=nystrom, linear or mha."
        )


def _places(layer: LayerPlan) -> bool:
    """Whether norms would stand elsewhere than the default has them."""
    placement = layer.placement()
    return placement.embed or placement.inside or placement.after or not placement.before


def _can_see_all(layer: LayerPlan) -> bool:
    """Whether the attention of a layer takes a pattern that lets every place see all."""
    try:
        layer.cross_attention()
    except ValueError:
        return False
    return True


def devices(layers: Sequence[LayerPlan], accelerator: str) -> Iterator[str]:
    """What kernels need to run on."""
    for layer in layers:
        if "kernel" not in layer.attention().uses:
            continue
        kernel = layer.part("kernel")
        if kernel.accelerator not in (None, accelerator):
            yield (
                f"kernel {type(kernel).__name__} needs trainer.accelerator={kernel.accelerator}, but it is "
                f"{accelerator}; use trainer={kernel.accelerator}, or model/kernel=auto, blocked (for bands) or sdpa."
            )


def depth(plan: ModelPlan) -> Iterator[str]:
    """What places that leave early take for granted."""
    part, main = plan.depth(plan.dims), plan.interface.readouts[MAIN]
    if not part.exits:
        return
    name = type(part).__name__
    if main.per != "place" or main.kind == "values":
        yield (
            f"depth {name} reads how certain the answer of a place is, but the task asks for {main.kind} of a "
            f"{main.per}; use model/depth=fixed, or a task with symbols or classes at each place."
        )
    for residual in (layer.residual() for layer in plan.layers):
        if residual.keeps != Residual.keeps:
            yield (
                f"depth {name} keeps the stream of a place that has left as it is, which must be one tensor, but "
                f"{type(residual).__name__} keeps {residual.keeps}; use model/residual=add, rezero or another one of "
                "one tensor, or model/depth=fixed."
            )


def initialisation(
    init: Init, layers: Sequence[LayerPlan], topology: type[Topology], settings: Mapping[str, Any], silent: bool
) -> Iterator[str]:
    """What a scheme of initialisation takes for granted; `silent` says whether it starts every update at zero."""
    name = type(init).__name__
    norms = {type(layer.norm()).__name__ for layer in layers if layer.norm().normalises}
    if init.without_norm and norms:
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
    if init.without_norm and not norms and any(_places(layer) for layer in layers):
        yield (
            f"init {name} is for models without a norm, where a placement has nothing to place; use "
            "model/placement=pre, or another init with a norm."
        )
    if init.zero_head and settings.get("tie_embeddings"):
        yield (
            f"init {name} starts the head at zero, so the topology {topology.__name__} cannot have it for the "
            "embedding table; set model.topology.tie_embeddings=false, or use model/init=gpt2, xavier or small."
        )


def positions(layers: Sequence[LayerPlan], task: Task) -> Iterator[str]:
    """A batch has one position for each of its places, so all layers must have them drawn alike, or not at all."""
    drawn = {layer.position().drawn_from: layer.position() for layer in layers}
    if len(drawn) > 1:
        ranges = ", ".join(f"{type(position).__name__} from {size or 'nothing'}" for size, position in drawn.items())
        yield (
            f"all layers see the same positions, but they would be drawn differently: {ranges}; use "
            "model/position=randomized in all layers or in none."
        )
    for size, position in drawn.items():
        if size is not None and size < task.max_length:
            yield (
                f"{type(position).__name__} draws different positions for all places of a sequence from {size}, but "
                f"the task has sequences of {task.max_length} places; raise model.position.drawn_from."
            )
        if size is not None and position.limit is not None and position.limit < size:
            yield (
                f"{type(position).__name__} draws positions from {size}, but its encoding has a table of "
                f"{position.limit} rows (model.max_len); set model.max_len={size} or lower model.position.drawn_from."
            )


def values(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """The first layer offers the values that others mix in, of the shape that theirs have."""
    shapes = [layer.attention().shares_values for layer in layers]
    sharing = [index for index, shape in enumerate(shapes) if shape is not None]
    if not sharing:
        return
    if sharing == [0]:
        yield (
            "value_residual mixes the first layer's values into later ones, but no later layer has it, so it would do "
            "nothing; set model.attention.value_residual in the others, or to 0 in the first."
        )
    elif sharing[0] != 0:
        yield (
            "value_residual mixes in the first layer's values, which that layer offers only if it has one too (its own "
            f"values stay as they are); it has none, but layer {sharing[0]} has."
        )
    if len({shapes[index] for index in sharing}) > 1:
        found = ", ".join(f"layer {index}: {shapes[index]}" for index in sharing)
        yield (
            f"value_residual needs values of one shape, but (heads, width) differ ({found}); give these layers the "
            "same num_heads, head_dim and num_kv_heads, or set value_residual=0 where they differ."
        )


def streams(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """All layers share one stream, and one that is walked backwards must be found again from what comes after."""
    residuals = [layer.residual() for layer in layers]
    streams = {residual.keeps: type(residual).__name__ for residual in residuals}
    if len(streams) > 1:
        kinds = ", ".join(f"{name} keeps {stream}" for stream, name in streams.items())
        yield f"all layers share one stream, but their residuals differ: {kinds}; use one of them in all layers."
    for layer, residual in zip(layers, residuals, strict=True):
        if not residual.recomputes:
            continue
        name = type(residual).__name__
        if layer.placement().after:
            yield (
                f"residual {name} cannot be walked back through a norm after the sum; use model/placement=pre or "
                "sandwich, or another residual."
            )
        if layer.ffn().has_auxiliary_loss:
            yield (
                f"residual {name} computes every branch without a graph, through which the balancing loss of "
                f"{type(layer.ffn()).__name__} could not act; use model/ffn=mlp or glu, or another residual."
            )
        if layer.attention().has_auxiliary_loss:
            yield (
                f"residual {name} computes every branch without a graph, through which the losses on heads of "
                f"{type(layer.attention()).__name__} could not act; use model/attention=mha as it is, or "
                "another residual."
            )
        if layer.attention().shares_values is not None:
            yield (
                f"residual {name} computes every branch again on its own, where the first layer's values of "
                "model.attention.value_residual are not at hand; set model.attention.value_residual=0, or use "
                "model/residual=add or another one."
            )
        if layer.norm().crosses_places:
            yield (
                f"residual {name} computes every branch twice, which would count a batch twice in the running averages "
                f"of {type(layer.norm()).__name__}; use model/norm=layernorm or rmsnorm, or another residual."
            )


def ends(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """What stands outside the layers of a stack is one thing."""
    if len({(layer.placement().embed, layer.placement().final) for layer in layers}) > 1:
        yield "placement's `embed` and `final` stand outside the layers: they must be the same for all of them."


def exchange(topology: type[Topology], plan: ModelPlan, task: Task, encoder: Mapping[str, Any]) -> Iterator[str]:
    """What a task hands over and what a topology takes."""
    name, asked = topology.__name__, plan.interface
    if asked.source and not topology.reads_source:
        yield (
            f"the task {type(task).__name__} has a source that is read first, but the topology {name} reads none; use "
            "model/topology=encoder_decoder, or another task."
        )
    if topology.reads_source and not asked.source:
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
    """What attention must be able to do where a source is read."""
    for layer in plan.layers if plan.encoder else ():
        kind = layer.kind("attention")
        if not kind.crosses or not layer.cross_attention().crosses:
            yield (
                f"attention {kind.__name__} mixes the places of one sequence, so it cannot read the source that the "
                f"topology {topology.__name__} hands it; use model/attention=mha, gqa, linear or performer, or "
                "model/topology=decoder."
            )


def futures(topology: type[Topology], plan: ModelPlan, task: Task, allowed: Sequence[str]) -> Iterator[str]:
    """Where the next token is predicted, no place sees a later one."""
    if not task.predicts_next or "future" in allowed:
        return
    start = (
        f"the task {type(task).__name__} predicts each next token, so no place of the topology {topology.__name__} may "
        "see a later one, but "
    )
    for layer in plan.layers:
        kind, pattern = layer.kind("attention"), layer.pattern()
        if not kind.causal_safe:
            plain = pattern.full or pattern.plain_causal
            yield (
                f"{start}attention {kind.__name__} mixes all places of a row before any of them asks; use "
                f"model/attention={'linear, performer or mha' if plain else 'mha'}, or a task whose answers are no "
                f"next tokens{'; to study the leak, add allow=[future]' if plain else ''}."
            )
        elif not pattern.causal:
            yield (
                f"{start}the pattern {type(pattern).__name__} lets it; use model/pattern=causal, or window with "
                "after=0; to study the leak, add allow=[future]."
            )


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
