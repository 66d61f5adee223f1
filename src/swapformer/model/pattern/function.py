"""A pattern by any function of the tokens that a user writes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, steps_ahead
from swapformer.model.tokens import Tokens
from swapformer.ranges import Count

Rule = Callable[..., Tensor]
"""A user's pattern: rule(query, key, its own keywords) → bool [B|1, H|1, Q, K]."""


def states(*, causal: bool = False, anchored: bool = False) -> Callable[[Rule], Rule]:
    """Decorate a rule with facts of `Pattern`: whether it is causal, and whether it is anchored."""

    def note(rule: Rule) -> Rule:
        rule.causal, rule.anchored = causal, anchored  # type: ignore[attr-defined]
        return rule

    return note


class Function(Pattern):
    """Any importable rule(query, key) → bool [B|1, H|1, Q, K], named in a YAML by its dotted name.

    A rule that states nothing with `@states(…)` counts as anchored and not causal: combine it with Causal for a causal
    model, as the preset `function` does. Settings of the rule are keywords, set next to its name.

    Args:
        rule: the function; every query must be allowed at least one key.
    """

    def __init__(self, dims: Dims, *, rule: Rule) -> None:
        own = getattr(rule, "func", rule)  # a rule with keywords comes as a partial
        self.causal, self.anchored = getattr(own, "causal", False), getattr(own, "anchored", True)
        self.rule = rule

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return self.rule(query, key)


@states(anchored=False)
def same_remainder(query: Tokens, key: Tokens, *, period: Count) -> Tensor:
    """An example of a rule: tokens whose distance is a multiple of `period`."""
    return steps_ahead(query, key) % period == 0
