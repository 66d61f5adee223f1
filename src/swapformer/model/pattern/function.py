"""A pattern that is a function of the user's."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from swapformer.model.context import Tokens
from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, steps_ahead


class Function(Pattern):
    """Any importable rule(query, key) → bool [B|1, H|1, Q, K], named in a YAML by its dotted name.

    It counts as anchored and not causal, whatever the rule does: combine it with Causal where the future must stay
    hidden, as the preset `function` does. What it needs beyond the two Tokens are its keywords, set beside its name.

    Args:
        rule: the function; every place must see at least one.
    """

    anchored = True

    def __init__(self, dims: Dims, *, rule: Callable[[Tokens, Tokens], Tensor]) -> None:
        self.rule = rule

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return self.rule(query, key)


def same_remainder(query: Tokens, key: Tokens, *, period: int) -> Tensor:
    """An example of a rule: places whose distance is a multiple of `period`."""
    return steps_ahead(query, key) % period == 0
