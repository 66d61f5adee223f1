"""Parts that nothing would use: refused unless they are the default, so that no choice is silently ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.options import default_option, option
from swapformer.targets import targets
from swapformer.training.assemble import FULL, encoder_node

USED_BY = {"attention": ("score", "normaliser", "pattern", "kernel", "qk_norm", "extension"), "ffn": ("activation",)}
"""For each slot whose parts are built from others, the slots that they may use."""


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
