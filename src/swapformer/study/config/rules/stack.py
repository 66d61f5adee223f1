"""Rules of the layers of one stack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swapformer.model.dims import Side
from swapformer.model.plan import LayerPlan
from swapformer.task.base import Task


def embeddings(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """An encoding that is added to the embeddings applies to every layer."""
    distinct = list(dict.fromkeys(layer.position() for layer in layers))
    if len({frozenset(part for part in position.encodings() if part.embeds) for position in distinct}) > 1:
        names = " and ".join(type(position).__name__ for position in distinct)
        yield (
            f"a position that is added to the embeddings is there for every layer, but the layers have {names}; give "
            "all layers the same, or use rope, alibi, t5 or none where they differ."
        )


def layer_rules(layer: LayerPlan, task: Task) -> Iterator[str]:
    """The parts of one layer that cannot work together."""
    position, attention = layer.position(), layer.attention()
    norm, ffn, pattern = layer.norm(), layer.ffn(), layer.pattern()
    layer.block(branches=2 if ffn.present else 1)
    if norm.crosses_positions and pattern.causal:
        bound = task.predicts_next or not _can_see_all(layer)
        whose = f", the only one that attention {type(attention).__name__} takes" if not _can_see_all(layer) else ""
        yield (
            f"norm {type(norm).__name__} takes its statistics over all positions in training, so that the future would "
            f"leak into the causal pattern {type(pattern).__name__}{whose}; use model/norm=layernorm, rmsnorm, "
            f"scalenorm or dyt{'' if bound else ', or a pattern that is not causal (model/pattern=full)'}."
        )
    if missing := [tag for tag in layer.pattern().tags if tag not in task.tags]:
        yield (
            f"the pattern {type(layer.pattern()).__name__} needs the tags {', '.join(missing)}, but the task "
            f"{type(task).__name__} supplies {', '.join(task.tags) or 'none'}; choose a task that tags its tokens so, "
            "or model/pattern=causal, window or another one without tags."
        )
    score, qk_norm = layer.kind("score"), layer.kind("qk_norm")
    if {"score", "qk_norm"} <= set(attention.uses) and score.of_directions and qk_norm.of_lengths:
        yield (
            f"score {score.__name__} does not see the lengths of queries and keys, which are all that qk_norm "
            f"{qk_norm.__name__} changes; use model/score=dot or dot_unscaled, or another model/qk_norm."
        )
    if (refusal := attention.refuses(position)) is not None:
        yield f"{refusal}."
    if not norm.normalises and moves_norms(layer):
        yield (
            "norm=none leaves nothing to place, so every placement would be the same model; use model/placement=pre, "
            "or a norm."
        )
    if position.limit is not None and position.limit < task.max_length:
        yield (
            f"{type(position).__name__} positions have a table of {position.limit} rows (model.max_len), but the task "
            f"has sequences of {task.max_length} tokens; raise model.max_len, shorten the task's evaluation lengths, "
            "or use model/position=rope, alibi, t5 or none."
        )
    reach = task.max_length if position.drawn_from is None else position.drawn_from
    if attention.limit is not None and attention.limit < reach:
        yield (
            f"{type(attention).__name__} attention has a table of {attention.limit} rows (model.max_len), but "
            f"positions reach to {reach}; set model.max_len={reach}, shorten the task's evaluation lengths, or use "
            "model/attention=nystrom, linear or mha."
        )


def moves_norms(layer: LayerPlan) -> bool:
    """Whether norms would stand elsewhere than the default has them."""
    placement = layer.placement()
    return placement.embed or placement.inside or placement.after or not placement.before


def _can_see_all(layer: LayerPlan) -> bool:
    """Whether the attention of a layer takes a pattern that lets every position see all."""
    try:
        layer.cross_attention()
    except ValueError:
        return False
    return True


def devices(layers: Sequence[LayerPlan], accelerator: str) -> Iterator[str]:
    """The devices that kernels need."""
    for layer in layers:
        if "kernel" not in layer.attention().uses:
            continue
        kernel = layer.part("kernel")
        if kernel.accelerator not in (None, accelerator):
            yield (
                f"kernel {type(kernel).__name__} needs trainer.accelerator={kernel.accelerator}, but it is "
                f"{accelerator}; use trainer={kernel.accelerator}, or model/kernel=auto, blocked (for bands) or sdpa."
            )


def positions(layers: Sequence[LayerPlan], task: Task) -> Iterator[str]:
    """A batch has one position for each of its tokens, so all layers must have them drawn alike, or not at all."""
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
                f"{type(position).__name__} draws different positions for all tokens of a sequence from {size}, but "
                f"the task has sequences of {task.max_length} tokens; raise model.position.drawn_from."
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
            "nothing; give the others model.extension.value_residual too, or the first none."
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
            "same num_heads, head_dim and num_kv_heads, or no value_residual where they differ."
        )


def streams(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """All layers share one stream, and one that is walked backwards must be found again from what comes after."""
    residuals = [layer.residual() for layer in layers]
    streams = {residual.keeps: type(residual).__name__ for residual in residuals}
    if len(streams) > 1:
        kinds = ", ".join(f"{name} keeps {stream}" for stream, name in streams.items())
        yield f"all layers share one stream, but their residuals differ: {kinds}; use one of them in all layers."
    for layer, residual in zip(layers, residuals, strict=True):
        if residual.needs_norms and not layer.norm().normalises:
            yield (
                f"residual {type(residual).__name__} tells its streams apart by norms, but norm=none has none; use "
                "model/residual=add or another one, or a norm."
            )
        elif missing := [norm for norm in residual.needs_norms if not getattr(layer.placement(), norm)]:
            yield (
                f"residual {type(residual).__name__} needs the norms {' and '.join(residual.needs_norms)} of a "
                f"placement, but this one lacks {' and '.join(missing)}; use model/placement=dual, or another residual."
            )
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
                f"{_with_extensions(layer, 'has_auxiliary_loss')} could not act; use model/residual=add or another "
                "one, or an attention without them."
            )
        if layer.attention().shares_values is not None:
            yield (
                f"residual {name} computes every branch again on its own, where the first layer's values, which "
                f"{_with_extensions(layer, 'shares_values')} mixes in, are not at hand; use model/residual=add or "
                "another one, or an attention without them."
            )
        if layer.norm().crosses_positions:
            yield (
                f"residual {name} computes every branch twice, which would count a batch twice in the running averages "
                f"of {type(layer.norm()).__name__}; use model/norm=layernorm or rmsnorm, or another residual."
            )


def _with_extensions(layer: LayerPlan, fact: str) -> str:
    """The name of a layer's attention, and of its extensions that state a fact."""
    found = [type(part).__name__ for part in layer.extensions(layer.pattern()).values() if getattr(part, fact)]
    return type(layer.attention()).__name__ + (f" ({', '.join(found)})" if found else "")


def updates(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """A stream with weights for every update before a branch takes it that all layers write as many."""
    counting = [residual for residual in (layer.residual() for layer in layers) if residual.counts_updates]
    crosses = bool(layers[0].dims.encoder_layers) and layers[0].dims.side is Side.DECODER
    branches = [len(layer.block(branches=1 + crosses + layer.ffn().present).sublayers) for layer in layers]
    if counting and len(set(branches)) > 1:
        yield (
            f"residual {type(counting[0]).__name__} has weights for every update before a branch, so all layers must "
            f"have as many branches, but they have {', '.join(map(str, branches))}; use model/ffn=none in all layers "
            "or in none, and one model/block, or model/residual=dense or add."
        )


def ends(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """Parts outside the layers of a stack exist once."""
    if len({(layer.placement().embed, layer.placement().final) for layer in layers}) > 1:
        yield "placement's `embed` and `final` stand outside the layers: they must be the same for all of them."
