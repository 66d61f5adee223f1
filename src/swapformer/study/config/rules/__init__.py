"""Rules of parts that cannot go together: each reads facts and names both sides and what would work."""

from swapformer.study.config.rules.stack import (
    devices,
    embeddings,
    ends,
    layer_rules,
    positions,
    streams,
    updates,
    values,
)
from swapformer.study.config.rules.whole_model import depth, exchange, futures, initialisation, placed, sources

__all__ = [
    "depth",
    "devices",
    "embeddings",
    "ends",
    "exchange",
    "futures",
    "initialisation",
    "layer_rules",
    "placed",
    "positions",
    "sources",
    "streams",
    "updates",
    "values",
]
